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
//! | [`mutant`] | known-bad variants that the checkers must find |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod admission;
pub mod backoff;
pub mod ballot;
pub mod clock;
pub mod invariants;
pub mod lease;
pub mod marker;
pub mod mutant;
pub mod op;
pub mod quorum;
#[cfg(feature = "reference")]
pub mod reference;
pub mod seed;
pub mod time;
