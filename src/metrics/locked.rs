//! Mutexes of metrics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock is used anyway: a metric may be off by one update.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
