//! What must have happened before the process is ready.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The list of what is missing. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    missing: Arc<Mutex<BTreeSet<String>>>,
}

impl Readiness {
    /// Nothing is missing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for `what` until [`Part::done`]. A part that is dropped before is missing for ever: whoever had to do it
    /// has ended.
    pub fn needs(&self, what: impl Into<String>) -> Part {
        let what = what.into();
        self.locked().insert(what.clone());
        Part { what, readiness: self.clone() }
    }

    /// What is missing, in order.
    pub fn missing(&self) -> Vec<String> {
        self.locked().iter().cloned().collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that must happen before the process is ready.
#[derive(Debug)]
#[must_use = "what is never done keeps the process from being ready"]
pub struct Part {
    what: String,
    readiness: Readiness,
}

impl Part {
    /// It has happened.
    pub fn done(self) {
        self.readiness.locked().remove(&self.what);
    }
}
