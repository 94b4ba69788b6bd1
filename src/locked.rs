//! Mutexes that are used after a panic, too.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock is used anyway: the state behind it is consistent between any two statements that change it. A metric may be off
/// by one update.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
