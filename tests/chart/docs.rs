//! Runs the commands of docs/install.md, in their order.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use redislease_lab::{Components, ControlPlane, Installation, InstallationOptions, RedisServer, Result, SYSTEM, Tools};
use tempfile::TempDir;

/// A fenced block of a page.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).map(|(language, text)| Block { language, text }).collect()
}

/// A folder in which the commands run: it has the chart, and a folder with the pinned tools.
fn folder() -> Result<TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = Tools::locate()?;
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).expect("a folder for tools");
    for (tool, name) in [(tools.helm, "helm"), (tools.kubectl, "kubectl")] {
        symlink(tool, bin.join(name)).expect("a link to the tool");
    }
    symlink(repository().join("charts"), folder.path().join("charts")).expect("a link to the charts");
    Ok(folder)
}

/// Runs a block of shell as an administrator.
fn run(block: &str, folder: &Path, cluster: &ControlPlane) {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", block])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PASSWORD", "correct")
        .output()
        .expect("bash can be run");
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned()).concat();
    assert!(output.status.success(), "{block}\nfailed:\n{said}");
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

#[test]
fn the_commands_of_the_page_on_installation_work() -> Result<()> {
    let page = read("docs/install.md");
    let folder = folder()?;
    let options = InstallationOptions {
        password: Some("correct".to_owned()),
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let redis = options.start_redis()?;
    let mut cluster = Some(ControlPlane::start(Components::Nodes(3))?);
    let mut installed: Option<Installation> = None;
    let mut operator = None;
    let mut run_blocks = 0;
    for block in blocks(&page) {
        match block.language {
            "sh" if block.text.contains("helm install") => {
                // The operator's pods are simulated. Before the commands that wait for the operator, a process with the
                // rights of the release starts.
                let (install, wait) = block.text.split_once('\n').expect("a command after helm install");
                let control_plane = cluster.take().expect("the page installs once");
                run(install, folder.path(), &control_plane);
                let installation = Installation::of_release(&options, control_plane, redis.clone())?;
                operator = Some(installation.start_operator("operator-0", &[])?);
                run(wait, folder.path(), installation.control_plane());
                installed = Some(installation);
            }
            "sh" => {
                if block.text.contains("helm uninstall") {
                    operator.take();
                }
                let control_plane = installed.as_ref().map(Installation::control_plane).or(cluster.as_ref());
                run(block.text, folder.path(), control_plane.expect("a control plane"));
            }
            "yaml" => {
                let name = block.text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the file's name");
                let servers = if name == "my-values.yaml" { &redis[..] } else { &[] };
                let text =
                    if servers.is_empty() { block.text.to_owned() } else { with_these_servers(block.text, servers) };
                fs::write(folder.path().join(name), text).expect("the file is written");
            }
            "text" => {}
            other => panic!("a block is marked as {other:?}"),
        }
        run_blocks += u32::from(block.language == "sh");
    }
    assert!(run_blocks >= 8, "only {run_blocks} blocks were run");
    let installation = installed.expect("the page installs");
    let left = installation.control_plane().get(&format!("/api/v1/namespaces/{SYSTEM}"))?;
    assert!(left.is_none(), "the last command deletes the namespace");
    Ok(())
}

#[test]
fn the_readme_names_the_same_commands() {
    let page = read("docs/install.md");
    let tested: Vec<&str> =
        blocks(&page).iter().filter(|block| block.language == "sh").flat_map(|block| block.text.lines()).collect();
    for file in ["README.md", "charts/redislease/README.md"] {
        let readme = read(file);
        let commands: Vec<&str> = blocks(&readme)
            .iter()
            .filter(|block| block.language == "sh")
            .flat_map(|block| block.text.lines())
            .filter(|line| line.starts_with("helm") || line.starts_with("kubectl"))
            .collect();
        assert!(commands.iter().any(|line| line.starts_with("helm install")), "{file} does not say how to install");
        for command in commands {
            assert!(tested.contains(&command), "{file}: `{command}` is not in docs/install.md");
        }
    }
}
