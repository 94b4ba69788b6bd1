//! What a run of a model searches, two searches at a time. The model of order and fence has this file too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In which runs a world is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// In every run: `make check` has seconds for all of these together.
    Quick,
    /// In `make test`: together about a minute on two idle cores.
    Middle,
    /// In `make model` only.
    Large,
}

impl Size {
    /// The largest that this run searches.
    pub fn of_run() -> Self {
        match std::env::var("MODEL").as_deref() {
            Ok("quick") => Self::Quick,
            Ok("all") => Self::Large,
            Ok(other) if !other.is_empty() => panic!("MODEL={other} is neither quick nor all"),
            _ => Self::Middle,
        }
    }
}

/// Whether this run searches a world of this name.
pub fn is_selected(name: &str) -> bool {
    name.contains(&std::env::var("MODEL_ONLY").unwrap_or_default())
}

/// Searches all, in this order.
///
/// # Panics
/// Says what the searches have found.
pub fn search_all<J: Sync>(jobs: &[J], search: impl Fn(&J) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let failure = search(job).err();
            failures.lock().unwrap().extend(failure);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
