//! Mutexes that are used after a panic, too.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock is used anyway. Its users must keep the state consistent between any two statements that change it, or accept that
/// one update is lost, such as that of a metric.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
