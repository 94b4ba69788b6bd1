//! `docs/coming-from.md` has the pages of the library's guide for those who come from another lock.

use redislease_lab::read;

use super::assert_current;

/// The pages that the module of the guide includes, in its order.
fn pages() -> String {
    let in_guide = |file: &str| read(&format!("crates/locker/src/guide/{file}"));
    let module = in_guide("coming_from.rs");
    let included = module.split("include_str!(\"").skip(1).filter_map(|text| text.split('"').next());
    let pages: Vec<String> = included.map(in_guide).collect();
    assert!(pages.len() > 5, "the pages are not found");
    pages.join("\n")
}

#[test]
fn the_page_for_those_who_come_from_another_lock_is_current() {
    assert_current("docs/coming-from.md", &pages());
}
