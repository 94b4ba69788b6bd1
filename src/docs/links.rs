//! Checks that every relative link in a page leads to a file, and to a heading of that file if it names one. Offline: links to
//! other sites are not followed.

use std::path::{Component, Path, PathBuf};

use redislease_lab::repository;

use super::{pages, read};

/// The targets of the links `[text](target)` outside code.
fn targets(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        // Code between backticks contains no links.
        let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets =
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned());
        found.extend(targets);
    }
    found
}

/// The lines outside fenced blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors of the headings, as GitHub computes them.
fn anchors(page: &str) -> Vec<String> {
    let headings = prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// What is wrong with a link from `page`, if anything.
fn problem(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { normal(&page.parent()?.join(file)) };
    if !repository().join(&path).exists() {
        return Some(format!("{}: {target} does not exist", page.display()));
    }
    let missing = !heading.is_empty() && !anchors(&read(&path)).iter().any(|anchor| anchor == heading);
    missing.then(|| format!("{}: {target}: {} has no such heading", page.display(), path.display()))
}

/// Resolves `..` without the file system.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
        normal
    })
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut links = 0;
    let mut problems = Vec::new();
    for page in pages() {
        for target in targets(&read(&page)) {
            links += 1;
            problems.extend(problem(&page, &target));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(links > 50, "only {links} links were found");
}

#[test]
fn every_page_of_the_docs_is_linked_from_the_readme_or_another_page() {
    let linked: Vec<PathBuf> = pages()
        .iter()
        .flat_map(|page| {
            let targets = targets(&read(page)).into_iter();
            targets.filter_map(|target| {
                let file = target.split('#').next().filter(|file| !file.is_empty())?;
                Some(normal(&page.parent()?.join(file)))
            })
        })
        .collect();
    let orphans: Vec<_> =
        pages().into_iter().filter(|page| page.starts_with("docs") && !linked.contains(page)).collect();
    assert!(orphans.is_empty(), "no page links to {orphans:?}");
}

#[test]
fn broken_links_are_found() {
    let page = Path::new("docs/install.md");
    for broken in ["absent.md", "../absent", "install.md#absent", "#absent"] {
        assert!(problem(page, broken).is_some(), "{broken}");
    }
    for good in ["metrics.md", "../README.md", "metrics.md#alerts", "#uninstall", "https://example.com/absent"] {
        assert_eq!(problem(page, good), None);
    }
    assert_eq!(targets("see [a](b.md#c) and `[d](e)`\n```\n[f](g)\n```\n[h](i)"), ["b.md#c", "i"]);
    assert_eq!(anchor("What `make demo` shows: a, b"), "what-make-demo-shows-a-b");
}
