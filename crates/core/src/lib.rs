//! The lock protocol of RedisLease as pure state machines.
//!
//! A lease is held on a majority of independent Redis masters, taken in two rounds so that every term has a fencing
//! token greater than any before it. Nothing here reads a clock, opens a socket or draws a random number: `now` and
//! random words are arguments, effects are values, and the same inputs replay the same run.
//!
//! | room | what it knows |
//! |---|---|
//! | [`time`], [`quorum`], [`ballot`], [`backoff`] | spans and drift, majorities, votes of three values, delays |
//! | [`op`], [`marker`] | what a node stores, what it is asked, what it answers |
//! | [`lease`] | one lease in one process: acquire, publish, extend, join, adopt, seal, release |
//! | [`admission`], [`seed`], [`clock`] | one node: when it may vote, with which counter, and whether its clock stepped |
//! | [`invariants`] | what must hold; shared by simulator, model checker and debug assertions |
//! | `check` | with the feature `check` only: planted bugs and the reference node, for the checkers |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

#[macro_use]
mod rules;

pub mod admission;
pub mod backoff;
pub mod ballot;
#[cfg(feature = "check")]
pub mod check;
pub mod clock;
pub mod invariants;
pub mod lease;
pub mod marker;
pub mod op;
pub mod quorum;
pub mod seed;
pub mod time;
