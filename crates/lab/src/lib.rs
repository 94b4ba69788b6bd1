//! Test infrastructure: starts real redis-servers, a real local Kubernetes control plane, and [`Installation`], which is
//! both of them together with RedisLease and its operators. Servers listen on loopback ports that the kernel assigns.
//!
//! All functions block. An async test calls them in `spawn_blocking`, or directly when no other task needs its thread.
//! Every process started here stops when its value is dropped, and also when the process that started it is killed (see
//! `watchdog`).

mod api;
mod certificates;
mod command;
mod condition;
mod control_plane;
mod error;
mod files;
mod helm;
mod http;
mod installation;
mod metrics;
pub mod node;
mod numbers;
mod object_store;
mod page;
mod percentiles;
mod process;
mod prometheus;
mod proxy;
mod redis;
mod refusal;
mod resp;
pub mod scale;
mod skip;
mod suspend;
mod tools;
mod usage;
mod wait;
mod watchdog;

pub use certificates::{Authority, Identity};
pub use condition::Condition;
pub use control_plane::{Backup, Components, ControlPlane, PooledControlPlane, Watch, WatchEvent};
pub use error::{Error, Result};
pub use files::{read, repository};
pub use helm::{Helm, RELEASE, SYSTEM};
pub use installation::{
    Deadline, Event, Installation, InstallationOptions, Lease, LeaseState, Operator, Peer, QuorumState, Role, nodes,
    redis_quorum, workload,
};
pub use metrics::Metrics;
pub use numbers::Numbers;
pub use object_store::ObjectStore;
pub use page::{Block, Reader};
pub use percentiles::Percentiles;
pub use process::Process;
pub use prometheus::{Prometheus, Range};
pub use proxy::{Cut, Proxy};
pub use redis::{RedisOptions, RedisServer, RedisTls, Snapshot, free_address, pause, resume};
pub use refusal::{Refusal, refuse, refuse_statuses};
pub use resp::Reply;
pub use skip::skipped;
pub use suspend::{Machine, SuspendLibrary};
pub use tools::Tools;
pub use usage::{Usage, private_memory};
pub use wait::{poll, unix_time};
pub use watchdog::keep_running;
