//! Requests for the tests of the wire.

use alloc::vec::Vec;

use crate::check::ops;
pub use crate::check::ops::seal;
use crate::op::{Op, Stages};
use crate::time::{Millis, Time};
use crate::wire::batch::{Asked, Batch, Call, Request};

pub fn confirm(attempt: u128) -> Op {
    ops::confirm(attempt, 1, 1)
}

pub fn extend(attempt: u128) -> Op {
    ops::extend(attempt, 1, Millis(1000))
}

pub fn release(attempt: u128) -> Op {
    ops::release(attempt, Stages::All)
}

/// A request with so many keys. The receiver of its vote is its attempt.
pub fn asked(op: Op, keys: usize, give_up_at: u64) -> Asked<usize, u128> {
    let reply = Some(op.attempt().0);
    Asked { request: Request { keys: (0..keys).collect(), op, give_up_at: Time(give_up_at) }, reply }
}

pub fn batch<const N: usize>(asked: [Asked<usize, u128>; N]) -> Call<usize, u128, ()> {
    Call::Batch(Batch { asked: asked.into(), terms: None })
}

pub fn attempts(asked: &[Asked<usize, u128>]) -> Vec<u128> {
    asked.iter().map(|asked| asked.attempt().0).collect()
}
