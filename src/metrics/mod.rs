//! The Prometheus metrics at `/metrics`.
//!
//! Every counter exists from the start with the value zero, because `increase()` misses a first event without a previous
//! zero. A series is removed with its object. Label values come from fixed sets or are names of RedisLease resources.

pub(crate) mod lease;
pub mod nodes;
pub(crate) mod operator;
mod page;
pub mod panics;
pub(crate) mod renewals;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use page::Page;

/// A poisoned lock is used anyway: a metric may be off by one update.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod names_tests;
