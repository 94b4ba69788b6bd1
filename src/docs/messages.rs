//! Checks that the messages about Redis nodes that docs/troubleshooting.md quotes are in the code.

use std::path::Path;

use super::{read, repository};

const PAGE: &str = "docs/troubleshooting.md";
/// The section with the messages, and the states whose messages the operator composes. The messages for state Down come from the
/// operating system.
const SECTION: &str = "## A Redis node does not vote\n";
const STATES: [&str; 2] = ["| Quarantined |", "| Misconfigured |"];

/// The source of the modules that compose these messages, without the line breaks in their texts.
fn sources() -> String {
    let mut files =
        vec![repository().join("crates/core/src/seed.rs"), repository().join("crates/plan/src/api/quorum.rs")];
    let folder = "crates/lock/src/nodes";
    let nodes = std::fs::read_dir(repository().join(folder)).expect(folder);
    files.extend(nodes.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).expect("a source file")).collect();
    text.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn quoted_messages_about_nodes_are_in_the_code() {
    let page = read(Path::new(PAGE));
    let section = page.split_once(SECTION).expect("the section").1.split("\n## ").next().unwrap_or_default().to_owned();
    let rows = section.lines().filter(|line| STATES.iter().any(|state| line.starts_with(state)));
    let quoted: Vec<&str> =
        rows.filter_map(|row| row.split('|').nth(2)).flat_map(|cell| cell.split('…')).map(str::trim).collect();
    assert!(quoted.len() > 7, "{quoted:?}");
    let sources = sources();
    for message in quoted {
        assert!(sources.contains(message), "{PAGE} quotes {message:?}, which is not in the code");
    }
}
