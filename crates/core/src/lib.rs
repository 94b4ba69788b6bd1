//! The lock protocol of RedisLease as pure state machines.
//!
//! A lease is held on a majority of independent Redis masters, taken in one round or two so that every term has a fencing
//! token greater than any before it. Nothing here reads a clock, opens a socket or draws a random number: `now` and
//! random words are arguments, effects are values, and the same inputs replay the same run.
//!
//! | module | contents |
//! |---|---|
//! | [`time`], [`quorum`], [`ballot`], [`backoff`] | spans and drift, majorities, votes of three values, delays |
//! | [`op`], [`marker`] | what a Redis node stores, the requests to it, and its answers |
//! | [`lease`] | the machine of one lease in one process: acquire, publish, extend, join, adopt, seal, release |
//! | [`driver`] | the machine above a lease that decides when its attempts and rounds begin, and the turns of many leases |
//! | [`lock`] | the machine of one lock in a program: request, wait, hold, let go; it stands above a driver |
//! | [`wire`] | the machine of one node in a process: owns its admission, gathers requests into calls, and takes their replies apart into votes |
//! | [`admission`], [`seed`], [`clock`] | the machine of one Redis node: when it may vote, with which counter, and whether its clock stepped |
//! | [`servers`] | which node of a quorum votes with which server, when two addresses lead to one |
//! | [`invariants`] | the invariants that the simulator, the model checker, the unit tests and the debug assertions share |
//! | `check` | planted bugs and the reference node, for the checkers; compiled with the feature `check` only |
//!
//! # Words
//! | word | meaning |
//! |---|---|
//! | node | one independent Redis master |
//! | quorum | the configured nodes, and the majority `q = N/2 + 1` of them |
//! | attempt | one try to take a lease, named by 128 random bits |
//! | term | one uninterrupted period in which one holder has the lease, named by attempt and token |
//! | token | the fencing token: a number that grows with every term of a quorum |
//! | vote | a node's answer: yes, no, or unknown. Unknown is neither yes nor no |
//! | round | a group of requests, at most one to each node, that were sent together |
//! | join | to give the term to a node that does not hold it: acquire there, extend elsewhere, confirm there |
//! | adopt | to continue a term that another process, or this one before a restart, has taken |
//! | seal | to mark a term's keys so that no process extends them. Sealed keys end by their TTL |
//! | proof | evidence that the holder of a term has stopped, so that its keys may be released at once |
//! | marker | the key by which a node says under which configuration it votes |
//! | ticket | a marker that says that a node waits for its admission |
//! | quarantine | the wait of a node that may have lost its data: one longest lease |
//! | fence | the counter of a node from which grant numbers and tokens come |
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
pub mod driver;
pub mod duration;
pub mod invariants;
pub mod judge;
pub mod lease;
pub mod lock;
pub mod marker;
pub mod op;
pub mod quorum;
pub mod seed;
pub mod servers;
pub mod time;
pub mod wire;
