//! The Redis masters and the network between them and the operators.

pub mod clock;
pub mod link;
pub mod network;
pub mod server;
