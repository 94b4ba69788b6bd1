//! The Redis masters and the network between them and the operators.

pub mod clock;
pub mod network;
pub mod server;
