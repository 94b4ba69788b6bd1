//! The conditions for the readiness of the process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::locked::locked;

/// The list of pending conditions. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    missing: Arc<Mutex<BTreeSet<String>>>,
}

impl Readiness {
    /// Adds a condition, which is pending until [`Part::done`]. If the part is dropped before, the condition stays
    /// pending permanently, because the task that had to meet it has ended.
    pub fn needs(&self, what: impl Into<String>) -> Part {
        let what = what.into();
        locked(&self.missing).insert(what.clone());
        Part { what, readiness: self.clone() }
    }

    /// The pending conditions, in order.
    pub fn missing(&self) -> Vec<String> {
        locked(&self.missing).iter().cloned().collect()
    }
}

/// One condition for the readiness of the process.
#[derive(Debug)]
#[must_use = "without a call of `done` the process never becomes ready"]
pub struct Part {
    what: String,
    readiness: Readiness,
}

impl Part {
    /// Marks the condition as met.
    pub fn done(self) {
        locked(&self.readiness.missing).remove(&self.what);
    }
}
