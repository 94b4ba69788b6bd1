//! The resources `RedisLease` and `RedisQuorum` as types: data, admission rules and names. No IO.
//!
//! | module | what |
//! |---|---|
//! | [`lease`], [`lease_status`] | `RedisLease`: what a user asks for, what the operator answers |
//! | [`quorum`] | `RedisQuorum`: the Redis nodes, and how each of them is doing |
//! | [`validated`] | parse, don't validate: what every later stage works with |
//! | [`conditions`] | condition types and their reasons, as fixed sets |
//! | [`names`] | group, labels and annotations, in one place |
//! | [`crd`] | the two definitions as they are installed |
//!
//! A spec as read from the API server is text that somebody wrote: durations stay strings until [`validated`] parses them,
//! so that one malformed object is an error about that object and nothing else.

pub mod conditions;
pub mod crd;
mod duration;
pub mod lease;
pub mod lease_status;
pub mod names;
pub mod quorum;
mod rules;
pub mod validated;

pub use conditions::{ConditionReason, ConditionStatus, ConditionType};
pub use duration::{Duration, ParseDurationError};
pub use lease::{RedisLease, RedisLeaseSpec};
pub use lease_status::RedisLeaseStatus;
pub use quorum::{RedisQuorum, RedisQuorumSpec, RedisQuorumStatus};
pub use validated::{InvalidSpec, Mismatch, ValidLease, ValidQuorum};

#[cfg(test)]
mod tests;
