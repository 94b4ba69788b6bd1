//! `docs/coming-from.md` has the pages of the library's guide for those who come from another lock.

use std::path::Path;

use super::{assert_current, read};

const GUIDE: &str = "crates/locker/src/guide";

/// The pages that the module of the guide includes, in its order.
fn pages() -> String {
    let module = read(&Path::new(GUIDE).join("coming_from.rs"));
    let included = module.split("include_str!(\"").skip(1).filter_map(|text| text.split('"').next());
    let pages: Vec<String> = included.map(|page| read(&Path::new(GUIDE).join(page))).collect();
    assert!(pages.len() > 5, "the pages are not found");
    pages.join("\n")
}

#[test]
fn the_page_for_those_who_come_from_another_lock_is_current() {
    assert_current("docs/coming-from.md", &pages());
}
