//! The lock protocol of RedisLease as pure state machines.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod admission;
pub mod clock;
pub mod marker;
pub mod mutant;
pub mod op;
pub mod quorum;
pub mod seed;
pub mod time;
