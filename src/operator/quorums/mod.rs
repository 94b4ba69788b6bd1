//! The quorums on which leases may be held: each RedisQuorum in the operator's namespace, with one set of connections for
//! each configuration.
//!
//! One task reconciles them with their resources and secrets, sends the facts about them to the engine, and writes their
//! status. It reads the secrets of all quorums concurrently and does not block on them.

mod connection;
mod controller;
mod entry;
mod parts;
mod secret;
mod show;
#[cfg(test)]
mod tests;

pub use connection::{Connection, InUse};
pub use controller::run;
pub use entry::QuorumUpdate;
pub use parts::{CONTROLLER, Parts};
pub use secret::Secrets as QuorumSecrets;
