//! Starters for tests and the demo: real redis-servers, a real local Kubernetes control plane, and [`Installation`], the
//! two together with the operator. All of it on loopback ports that the kernel gives.
//!
//! Everything blocks; an async test calls it through `spawn_blocking`, or directly when nothing else shares its thread.
//! What is started stops when it is dropped, and also when the owner is killed (see `watchdog`).

mod control_plane;
mod error;
mod gate;
mod http;
mod installation;
mod process;
mod redis;
mod resp;
mod tools;
mod watchdog;

pub use control_plane::{Components, ControlPlane};
pub use error::{Error, Result};
pub use gate::Gate;
pub use installation::{
    Condition, Installation, InstallationOptions, Lease, LeaseState, Metrics, Operator, QuorumState, Role, SYSTEM,
};
pub use process::Process;
pub use redis::{RedisOptions, RedisServer, Snapshot, free_address};
pub use resp::Reply;
pub use tools::Tools;
pub use watchdog::keep_running;
