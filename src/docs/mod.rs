//! Keeps the documentation current: generates the pages that have another source, and checks links and commands.
//!
//! `make docs` writes the generated pages. Otherwise these tests fail if a page differs from its source.

#![allow(clippy::format_push_string, reason = "a page is short, and `format!` shows what it contains")]

mod annotations;
mod api;
mod coming_from;
mod commands;
mod conditions;
mod flags;
mod links;

use std::fs;
use std::path::{Path, PathBuf};

use redislease_lab::repository;

/// With this variable, the tests write the generated pages instead of comparing them.
const UPDATE: &str = "UPDATE_DOCS";

/// Compares a generated page with the committed one, or writes it.
fn assert_current(page: &str, generated: &str) {
    let path = repository().join(page);
    if std::env::var_os(UPDATE).is_some() {
        // Another test may read the page at the same time.
        let new = path.with_extension("new");
        let written = fs::write(&new, generated).and_then(|()| fs::rename(&new, &path));
        written.unwrap_or_else(|error| panic!("cannot write {page}: {error}"));
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "{page} is not current: run `make docs` and commit the result");
}

/// The Markdown pages for readers, as paths from the root of the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/runbooks", "charts/redislease", "examples"] {
        let entries = fs::read_dir(repository().join(folder)).into_iter().flatten().flatten();
        pages.extend(entries.map(|entry| Path::new(folder).join(entry.file_name())));
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(pages.len() > 15, "the pages are not found: {pages:?}");
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Text in a cell of a table: one line, and no character that ends the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
