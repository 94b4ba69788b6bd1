//! Runs the commands of docs/install.md, in their order, and checks what other pages name.

use std::{fs, os::unix::fs::symlink, sync::Arc};

use redislease_lab::{
    Authority, Block, Components, ControlPlane, Installation, InstallationOptions, Reader, RedisServer, Result, SYSTEM,
    read, repository,
};

/// A reader with the repository's charts, the plugin of kubectl, and certificates for TLS to Redis.
fn reader() -> Result<Reader> {
    let reader = Reader::new()?;
    symlink(repository().join("charts"), reader.folder().join("charts")).expect("a link to the charts");
    let plugin = reader.folder().join("bin/kubectl-redislease");
    symlink(env!("CARGO_BIN_EXE_redislease"), plugin).expect("a link to the binary");
    let authority = Authority::new("redis")?;
    let client = authority.sign(&["client"])?;
    let files = [("ca.crt", authority.certificate()), ("tls.crt", client.certificate), ("tls.key", client.key)];
    for (file, text) in files {
        fs::write(reader.folder().join(file), text).expect("a file");
    }
    Ok(reader)
}

/// Runs a block of shell as an administrator.
fn run(block: &str, reader: &Reader, cluster: &ControlPlane) {
    reader.run(block, cluster, &[("PASSWORD", "correct")]).unwrap_or_else(|error| panic!("{error}"));
}

/// The page names hosts that do not exist here. The quorum waits for a shorter time, and still allows leases of 30 s.
fn with_these_servers(values: &str, redis: &[Arc<RedisServer>]) -> String {
    let mut values = values.replace("existingSecret:", "maxLeaseDuration: 30s\n    existingSecret:");
    for (server, name) in redis.iter().zip(["redis-a", "redis-b", "redis-c"]) {
        let host = format!("{name}.redis:6379");
        assert!(values.contains(&host), "the page has no {host}");
        values = values.replace(&host, &server.address().to_string());
    }
    values
}

/// The manifests of the page can be applied without Helm: they contain neither the pod of `helm test` nor a namespace.
fn renders_no_pod(command: &str, reader: &Reader, cluster: &ControlPlane) {
    run(&format!("{} >rendered.yaml", command.trim()), reader, cluster);
    let rendered = fs::read_to_string(reader.folder().join("rendered.yaml")).expect("the manifests");
    let has = |text: &str| rendered.lines().any(|line| line == text);
    assert!(has("kind: RedisQuorum") && !has("kind: Pod") && !has("kind: Namespace"), "{rendered}");
}

#[test]
fn the_commands_of_the_page_on_installation_work() -> Result<()> {
    let page = read("docs/install.md");
    let reader = reader()?;
    let options = InstallationOptions {
        password: Some("correct".to_owned()),
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let redis = options.start_redis()?;
    let mut cluster = Some(ControlPlane::start(Components::Nodes(3))?);
    let mut installed: Option<Installation> = None;
    let mut operator = None;
    let mut run_blocks = 0;
    for block in Block::of(&page) {
        match block.language {
            "sh" if block.text.contains("helm install") => {
                // The operator's pods are simulated. Before the commands that wait for the operator, a process with the
                // rights of the release starts.
                let (install, wait) = block.text.split_once('\n').expect("a command after helm install");
                let control_plane = cluster.take().expect("the page installs once");
                run(install, &reader, &control_plane);
                let installation = Installation::of_release(&options, control_plane, redis.clone())?;
                operator = Some(installation.start_operator("operator-0", &[])?);
                run(wait, &reader, installation.control_plane());
                installed = Some(installation);
            }
            "sh" => {
                if block.text.contains("helm uninstall") {
                    operator.take();
                }
                let control_plane = installed.as_ref().map(Installation::control_plane).or(cluster.as_ref());
                run(block.text, &reader, control_plane.expect("a control plane"));
            }
            "yaml" => {
                let name = block.file().expect("the file's name");
                let servers = if name == "my-values.yaml" { &redis[..] } else { &[] };
                let text =
                    if servers.is_empty() { block.text.to_owned() } else { with_these_servers(block.text, servers) };
                fs::write(reader.folder().join(name), text).expect("the file is written");
            }
            // The trial needs pods that run Redis: only its objects are rendered.
            "text" if block.text.starts_with("helm install") => {
                let cluster = installed.as_ref().map(Installation::control_plane).expect("the page has installed");
                run(&block.text.replacen("install", "template", 1), &reader, cluster);
            }
            "text" if block.text.starts_with("helm template") => {
                let cluster = installed.as_ref().map(Installation::control_plane).expect("the page has installed");
                renders_no_pod(block.text, &reader, cluster);
            }
            "text" => {}
            other => panic!("a block is marked as {other:?}"),
        }
        run_blocks += u32::from(block.language == "sh");
    }
    assert!(run_blocks >= 10, "only {run_blocks} blocks were run");
    let installation = installed.expect("the page installs");
    let left = installation.control_plane().get(&format!("/api/v1/namespaces/{SYSTEM}"))?;
    assert!(left.is_none(), "the last command deletes the namespace");
    Ok(())
}

#[test]
fn the_tests_that_the_comparison_names_exist() {
    let page = read("docs/comparison.md");
    let bugs: Vec<serde_json::Value> = serde_json::from_str(&read("bench/field_bugs.json")).expect("the list of bugs");
    let mut missing = Vec::new();
    for bug in &bugs {
        let [file, test] = ["file", "test"].map(|name| bug[name].as_str().expect("a text"));
        if !page.contains(&format!("| `{file}`: `{test}` |")) {
            missing.push(format!("docs/comparison.md does not name `{test}` of {file}"));
        }
        let source = read(file);
        let mut tests = ["#[test]", "#[tokio::test"].iter().flat_map(|attribute| source.split(attribute).skip(1));
        let is_test =
            tests.any(|item| item.split_once("fn ").is_some_and(|(_, rest)| rest.starts_with(&format!("{test}("))));
        if !is_test {
            missing.push(format!("{file} has no test `{test}`"));
        }
    }
    let listed = page.lines().filter(|line| line.contains(".rs`: `")).count();
    assert_eq!(listed, bugs.len(), "run bench/report.py: the page lists other bugs than bench/field_bugs.json");
    assert!(missing.is_empty(), "{missing:#?}");
}
