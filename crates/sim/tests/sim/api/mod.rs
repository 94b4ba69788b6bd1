//! The API servers: one for each cluster.

pub mod calls;
pub mod objects;
pub mod quorum;
pub mod restore;
pub mod server;
pub mod watch;
pub mod workloads;
