//! The Prometheus metrics at `/metrics`.
//!
//! Every counter exists from the start with the value zero, because `increase()` misses a first event without a previous
//! zero. A series is removed with its object. Label values come from fixed sets or are names of RedisLease resources.

#[cfg(feature = "operator")]
pub(crate) mod lease;
pub mod nodes;
#[cfg(feature = "operator")]
pub(crate) mod operator;
#[cfg(feature = "operator")]
mod page;
pub mod panics;
#[cfg(feature = "operator")]
pub(crate) mod renewals;

#[cfg(feature = "operator")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "operator")]
pub(crate) use page::Page;

/// A poisoned lock is used anyway: a metric may be off by one update.
#[cfg(feature = "operator")]
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(feature = "operator")]
mod names_tests;
