//! Runs the commands of docs/annotations.md, in their order.

use std::collections::BTreeSet;
use std::fs;

use redislease_lab::{Block, Reader, Result, read};
use serde_json::json;

use crate::support::{Cluster, FIRST_ELECTION, SOON, options};

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

#[test]
fn the_page_lists_every_annotation_and_event() {
    let page = read("docs/annotations.md");
    let parse = read("crates/plan/src/annotations/parse.rs");
    let known = read("crates/plan/src/api/spelling.rs");
    let known = known
        .split_once("pub const WORKLOAD_ANNOTATIONS")
        .and_then(|(_, rest)| rest.split_once("];"))
        .expect("the list")
        .0;
    let known: Vec<&str> = known.split('"').skip(1).step_by(2).collect();
    assert!(known.contains(&"lease") && known.len() >= 6, "{known:?}");
    let section = page.split("## The annotations of a workload").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = section.expect("the section").lines().filter(|line| line.starts_with("| `redislease.io/"));
    let listed: Vec<&str> = rows.filter_map(|row| row.split(['`', '/']).nth(2)).collect();
    assert_eq!(listed, known);
    let others = ["decide.rs", "problem.rs"].map(|file| read(&format!("crates/plan/src/annotations/{file}")));
    let texts = [parse.clone(), others.concat()].concat();
    let reasons = texts.split("NoticeReason::").skip(1);
    let reasons: BTreeSet<&str> =
        reasons.filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphabetic()).next()).collect();
    assert!(reasons.len() >= 4, "{reasons:?}");
    for reason in reasons {
        assert!(page.contains(&format!("\n| {reason} | ")), "{reason} is missing");
    }
}
