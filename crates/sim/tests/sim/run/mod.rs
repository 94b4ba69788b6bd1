//! Runs many seeds.

pub mod search;
pub mod steer;
