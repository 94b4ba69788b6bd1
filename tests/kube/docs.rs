//! Runs the commands of docs/annotations.md, in their order, and applies the manifest of docs/run.md.

use std::fs;
use std::process::Command;

use redislease_lab::{Block, Reader, Result, read};
use serde_json::json;

use crate::support::{Cluster, FIRST_ELECTION, SOON, options, shared};

#[test]
fn the_commands_of_the_page_on_annotations_work() -> Result<()> {
    let page = read("docs/annotations.md");
    let reader = Reader::new()?;
    let mut options = options();
    options.quorum = json!({"maxLeaseDuration": "30s"});
    options.allow_scheduling_gate = true;
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    installation.wait_for_quorum("its nodes vote", FIRST_ELECTION * 3, |quorum| quorum.count("Up") == 3)?;
    let cluster = installation.control_plane();
    let (mut last, mut commands, mut expected, mut files) = ("", 0, 0, Vec::new());
    for block in Block::of(&page) {
        let text = block.text;
        match block.language {
            "sh" => {
                reader.run(text, cluster, &[]).unwrap_or_else(|error| panic!("{error}\n{}", installation.log_tails()));
                last = text.trim().lines().last().unwrap_or_default();
                commands += text.trim().lines().count();
            }
            "yaml" => {
                let name = block.file().expect("the file's name");
                fs::write(reader.folder().join(name), text).expect("the file is written");
                files.push(name);
            }
            // What the last command prints, at once or soon: events are written after the change.
            "text" => {
                installation.wait_for(last, SOON, || {
                    let printed = reader.run(last, cluster, &[])?;
                    let missing = text.trim().lines().find(|line| !printed.contains(line));
                    missing.map_or(Ok(()), |line| Err(format!("{line:?} is not in {printed:?}")))
                })?;
                expected += text.trim().lines().count();
            }
            other => panic!("a block is marked as {other:?}"),
        }
    }
    assert!(commands >= 21 && expected >= 7, "{commands} commands and {expected} lines of output");
    // No command applies some of the files.
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let check = format!("kubectl apply --dry-run=server --validate=strict --filename {file}");
        reader.run(&check, cluster, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
    operator.stop().map(drop)
}

/// `make e2e` runs its pods.
#[test]
fn the_manifest_of_the_page_on_run_is_accepted() -> Result<()> {
    let page = read("docs/run.md");
    let block = Block::of(&page).into_iter().find(|block| block.language == "yaml").expect("a manifest");
    let (reader, cluster) = (Reader::new()?, shared().installation.control_plane());
    fs::write(reader.folder().join(block.file().expect("the file's name")), block.text).expect("the file is written");
    let run = |command: &str| reader.run(command, cluster, &[]).unwrap_or_else(|error| panic!("{error}"));
    run("kubectl create namespace importer");
    run("kubectl label namespace importer pod-security.kubernetes.io/warn=restricted");
    let printed = run("kubectl apply --namespace importer --dry-run=server --validate=strict --filename importer.yaml");
    assert_eq!(
        printed,
        "secret/importer created (server dry run)\ndeployment.apps/importer created (server dry run)\n"
    );

    let show = |path: &str| {
        run(&format!("kubectl create --dry-run=client --filename importer.yaml --output=jsonpath='{path}'"))
    };
    fs::write(reader.folder().join("urls"), show("{.stringData.urls}")).expect("the file is written");
    let words = |name: &str| -> Vec<String> {
        serde_json::from_str(&show(&format!("{{.spec.template.spec.containers[0].{name}}}"))).expect("a list of words")
    };
    let command = words("command").into_iter().chain(words("args")).skip(1);
    // The servers of the page do not exist.
    let output = Command::new(env!("CARGO_BIN_EXE_redislease"))
        .args(command.map(|word| word.replace("/servers/", "./")))
        .current_dir(reader.folder())
        .env("REDISLEASE_RUN_WAIT", "0")
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{errors}");
    assert!(errors.contains("no majority of the 3 Redis nodes votes"), "{errors}");
    Ok(())
}
