//! Checks that the page on annotations lists those of a workload, and the events about them.

use redislease_lab::read;
use redislease_plan::api::spelling::WORKLOAD_ANNOTATIONS;

#[test]
fn the_page_lists_every_annotation_and_event() {
    let page = read("docs/annotations.md");
    let section = page.split("## The annotations of a workload").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = section.expect("the section").lines().filter(|line| line.starts_with("| `redislease.io/"));
    let listed: Vec<&str> = rows.filter_map(|row| row.split(['`', '/']).nth(2)).collect();
    assert_eq!(listed, WORKLOAD_ANNOTATIONS);
    let files = ["decide", "parse", "problem"].map(|file| format!("crates/plan/src/annotations/{file}.rs"));
    let texts = files.map(|file| read(&file)).concat();
    let reasons = texts.split("NoticeReason::").skip(1);
    let reasons: Vec<&str> = reasons.filter_map(|rest| rest.split(|c: char| !c.is_alphabetic()).next()).collect();
    assert!(reasons.len() >= 4, "{reasons:?}");
    for reason in reasons {
        assert!(page.contains(&format!("\n| {reason} | ")), "{reason} is missing");
    }
}
