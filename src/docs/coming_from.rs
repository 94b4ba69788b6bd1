//! `docs/coming-from.md` and `docs/fencing.md` are pages of the library's guide.

use redislease_lab::read;

use super::assert_current;

fn in_guide(file: &str) -> String {
    read(&format!("crates/locker/src/guide/{file}"))
}

/// The pages that the module of the guide includes, in its order.
fn pages() -> String {
    let module = in_guide("coming_from.rs");
    let included = module.split("include_str!(\"").skip(1).filter_map(|text| text.split('"').next());
    let pages: Vec<String> = included.map(in_guide).collect();
    assert!(pages.len() > 5, "the pages are not found");
    pages.join("\n")
}

/// The page about fencing, with links to other pages of `docs` in place of those to the documentation of the library.
fn fencing() -> String {
    let links = [("(crate::Guard::token)", "(lock.md#all-methods)"), ("(crate::guide::limits)", "(guarantees.md)")];
    let page = links.iter().fold(in_guide("fencing.md"), |page, (library, docs)| page.replace(library, docs));
    assert!(!page.contains("crate::"), "a link leads to the documentation of the library");
    format!("# Fencing\n\n{page}")
}

#[test]
fn the_page_for_those_who_come_from_another_lock_is_current() {
    assert_current("docs/coming-from.md", &pages());
}

#[test]
fn the_page_about_fencing_is_current() {
    assert_current("docs/fencing.md", &fencing());
}
