//! The Prometheus metrics at `/metrics`.
//!
//! Every counter exists from the start with the value zero, because `increase()` misses a first event without a previous
//! zero. A series is removed with its object. Label values come from fixed sets or are names of RedisLease resources.

mod families;
pub(crate) mod lease;
pub mod nodes;
pub(crate) mod operator;
mod page;
pub mod panics;
pub(crate) mod renewals;

pub(crate) use page::Page;

#[cfg(test)]
mod names_tests;
