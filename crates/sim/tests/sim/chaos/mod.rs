//! Faults: which there are, when they come, how they end, and the planted bugs.

pub mod bug;
pub mod fault;
pub mod meddlers;
pub mod nemesis;
pub mod orphans;
pub mod planted;
pub mod planted_effects;
pub mod pods;
pub mod processes;
pub mod quorum_edits;
pub mod rng;
pub mod swarm;
