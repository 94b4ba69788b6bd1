//! The custom resources `RedisLease` and `RedisQuorum`: types, admission rules and names. No IO.
//!
//! | module | content |
//! |---|---|
//! | [`lease`], [`lease_status`] | `RedisLease`: the spec, which users write, and the status, which the operator writes |
//! | [`quorum`] | `RedisQuorum`: the Redis nodes in the spec, and the state of each node in the status |
//! | [`validated`] | specs after validation, with parsed values; all other modules use these |
//! | [`conditions`] | condition types and their reasons |
//! | [`names`] | API group, labels and annotations |
//! | [`spelling`] | the known name that is nearest to another one |
//! | [`crd`] | the two CustomResourceDefinitions |
//!
//! Durations in a spec stay strings until [`validated`] parses them. An invalid value is then an error of that one object and
//! does not break the list or the watch that returned it.

pub mod conditions;
pub mod crd;
mod duration;
pub mod lease;
pub mod lease_status;
mod lenient;
pub mod names;
pub mod quorum;
mod rules;
pub mod spelling;
pub mod validated;

pub use conditions::{ConditionReason, ConditionStatus, ConditionType};
pub use duration::Duration;
pub use lease::{RedisLease, RedisLeaseSpec};
pub use lease_status::RedisLeaseStatus;
pub use quorum::{RedisQuorum, RedisQuorumSpec, RedisQuorumStatus};
pub use validated::{InvalidSpec, ValidLease, ValidQuorum};

#[cfg(test)]
mod tests;
