//! Runs many seeds.

pub mod search;
