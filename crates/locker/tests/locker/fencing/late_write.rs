//! What every recipe must do.

use redislease_locker::Locker;

use crate::support::{PATIENCE, ms, once};

/// A store that checks tokens.
pub trait Store {
    /// Whether the write was accepted.
    fn write(&self, value: &str, token: u64) -> bool;
    /// The value that is stored.
    fn value(&self) -> String;
}

/// The code in a block of the page, so that the page shows what runs here.
pub fn recipe(language: &str) -> String {
    let page = include_str!("../../../src/guide/fencing.md");
    let block = page.split_once(&format!("```{language}\n")).unwrap().1;
    block.split_once("```").unwrap().0.trim().to_owned()
}

/// The first holder loses its lock and does not notice. Then it writes late.
pub async fn late_write_is_rejected(locker: &Locker, store: &impl Store) {
    let slow = once(locker, "k").max_hold(ms(100)).acquire().await.unwrap();
    assert!(store.write("slow, in time", slow.token()));
    assert!(store.write("slow, again", slow.token()), "the same holder writes again");
    slow.lost().await;
    let next = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    // Nothing rejects this write: the store has not seen the new token. The new holder overwrites it.
    assert!(store.write("slow, before the next holder", slow.token()));
    assert!(store.write("next", next.token()));
    assert!(!store.write("slow, too late", slow.token()));
    assert_eq!(store.value(), "next");
    next.release().await;
}
