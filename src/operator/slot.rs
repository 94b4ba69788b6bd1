//! Passes the views of one machine from the keeper's threads to their reader, which must not make a keeper wait.

use std::fmt;
use std::sync::{Arc, Mutex};

use redislease_core::lease::View;
use redislease_core::time::Time;
use redislease_plan::plan::{News, Views};

use crate::locked::locked;

/// The views of one keeper machine.
pub(super) struct Slot {
    views: Mutex<Views>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("views", &self.views).finish_non_exhaustive()
    }
}

impl Slot {
    /// Creates a slot that calls `wake`, which must not block, when the reader must take the views: once until it does.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { views: Mutex::default(), wake: Box::new(wake) })
    }

    /// Takes the changes.
    pub fn take(&self) -> News {
        locked(&self.views).take()
    }

    /// The newest `stop_at` of the running term. Takes nothing.
    pub fn stop_at(&self) -> Option<Time> {
        locked(&self.views).stop_at()
    }

    /// Stores a new view.
    pub fn show(&self, view: &View) {
        let wakes = locked(&self.views).show(view);
        if wakes {
            (self.wake)();
        }
    }

    /// The machine has ended.
    pub fn end(&self) {
        let wakes = locked(&self.views).end();
        if wakes {
            (self.wake)();
        }
    }
}
