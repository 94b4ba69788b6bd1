//! Runs the commands of docs/annotations.md, in their order.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use redislease_lab::{ControlPlane, Result, Tools};
use serde_json::json;

use crate::support::{Cluster, FIRST_ELECTION, SOON, options};

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Runs a block of shell as an administrator. Returns what it printed, or its error.
fn run(block: &str, folder: &Path, cluster: &ControlPlane) -> std::result::Result<String, String> {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", block])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()
        .expect("bash can be run");
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned()).concat();
    if output.status.success() { Ok(said) } else { Err(format!("{block}\nfailed:\n{said}")) }
}

#[test]
fn the_commands_of_the_page_on_annotations_work() -> Result<()> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/annotations.md")).expect("the page");
    let folder = tempfile::tempdir().expect("a folder");
    symlink(Tools::locate()?.kubectl, folder.path().join("kubectl")).expect("a link to kubectl");
    let mut options = options();
    options.quorum = json!({"maxLeaseDuration": "30s"});
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    installation.wait_for_quorum("its nodes vote", FIRST_ELECTION * 3, |quorum| quorum.count("Up") == 3)?;
    let cluster = installation.control_plane();
    let (mut last, mut commands, mut expected) = ("", 0, 0);
    for (language, text) in blocks(&page) {
        match language {
            "sh" => {
                run(text, folder.path(), cluster)
                    .unwrap_or_else(|error| panic!("{error}\n{}", installation.log_tails()));
                last = text.trim().lines().last().unwrap_or_default();
                commands += text.trim().lines().count();
            }
            "yaml" => {
                let name = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the file's name");
                fs::write(folder.path().join(name), text).expect("the file is written");
            }
            // What the last command prints, at once or soon: events are written after the change.
            "text" => {
                installation.wait_for(last, SOON, || {
                    let printed = run(last, folder.path(), cluster)?;
                    let missing = text.trim().lines().find(|line| !printed.contains(line));
                    missing.map_or(Ok(()), |line| Err(format!("{line:?} is not in {printed:?}")))
                })?;
                expected += text.trim().lines().count();
            }
            other => panic!("a block is marked as {other:?}"),
        }
    }
    assert!(commands >= 17 && expected >= 6, "{commands} commands and {expected} lines of output");
    operator.stop().map(drop)
}

#[test]
fn the_page_lists_every_annotation_and_event() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/annotations.md")).expect("the page");
    let source = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        fs::read_to_string(path).expect("a source file")
    };
    let parse = source("operator/annotations/parse.rs");
    let known = parse.split_once("pub const KNOWN").and_then(|(_, rest)| rest.split_once("];")).expect("the list").0;
    let known: Vec<&str> = known.split('"').skip(1).step_by(2).collect();
    assert!(known.contains(&"lease") && known.len() >= 6, "{known:?}");
    let rows = page.lines().filter(|line| line.starts_with("| `redislease.io/"));
    let listed: Vec<&str> = rows.filter_map(|row| row.split(['`', '/']).nth(2)).collect();
    assert_eq!(listed, known);
    let texts = [parse.clone(), source("operator/annotations/decide.rs")].concat();
    let reasons = texts.split("NoticeReason::").skip(1);
    let reasons: BTreeSet<&str> =
        reasons.filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphabetic()).next()).collect();
    assert!(reasons.len() >= 4, "{reasons:?}");
    for reason in reasons {
        assert!(page.contains(&format!("\n| {reason} | ")), "{reason} is missing");
    }
}
