//! Requests for tests.

use crate::op::{Attempt, Grant, Holder, Op, Stages, Token};
use crate::time::Millis;

/// An acquire without a proposal.
pub fn acquire(attempt: u128, ttl: Millis, holder: &str) -> Op {
    Op::Acquire { attempt: Attempt(attempt), proposal: None, ttl, holder: Holder(holder.into()) }
}

/// A confirm of a grant with this number.
pub fn confirm(attempt: u128, grant: u64, token: u64) -> Op {
    Op::Confirm { attempt: Attempt(attempt), grant: Grant::Numbered(grant), token: Token(token) }
}

/// An extension.
pub fn extend(attempt: u128, token: u64, ttl: Millis) -> Op {
    Op::Extend { attempt: Attempt(attempt), token: Token(token), ttl }
}

/// A seal.
pub fn seal(attempt: u128) -> Op {
    Op::Seal { attempt: Attempt(attempt) }
}

/// A release of keys in these stages.
pub fn release(attempt: u128, stages: Stages) -> Op {
    Op::Release { attempt: Attempt(attempt), stages }
}

/// One request of each kind, of attempt 255.
pub fn each() -> [Op; 5] {
    let ttl = Millis(30_000);
    [acquire(255, ttl, "pod-a"), confirm(255, 6, 7), extend(255, 7, ttl), seal(255), release(255, Stages::Unpublished)]
}
