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
mod spread;
mod tools;
mod wait;
mod watchdog;

/// The folder of the whole project.
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub use control_plane::{Components, ControlPlane, Watch, WatchEvent};
pub use error::{Error, Result};
pub use gate::Gate;
pub use installation::{
    Condition, Deadline, Event, Installation, InstallationOptions, Lease, LeaseState, Metrics, Operator, QuorumState,
    Role, SYSTEM,
};
pub use process::Process;
pub use redis::{RedisOptions, RedisServer, Snapshot, free_address};
pub use resp::Reply;
pub use spread::Spread;
pub use tools::Tools;
pub use wait::poll;
pub use watchdog::keep_running;
