//! RedisLease installed on this machine: a control plane, the Redis servers of one quorum, the CRDs, the operator's rights
//! as the chart has them, and any number of operator processes with the operator's service account.
//!
//! ```no_run
//! # fn main() -> redislease_lab::Result<()> {
//! use std::time::Duration;
//! use redislease_lab::{Installation, InstallationOptions};
//! use serde_json::json;
//!
//! let installation = Installation::start(&InstallationOptions::new("target/debug/redislease"))?;
//! let operator = installation.start_operator("operator-0", &[])?;
//! installation.deployment("shop", "billing", 3)?;
//! let lease = installation.lease("shop", "billing", &json!({"leaseDuration": "10s"}))?;
//! let first = lease.wait("a holder", Duration::from_secs(30), |lease| lease.is_active())?;
//! operator.restart()?;
//! installation.control_plane().kubectl(&["delete", "pod", "-n", "shop", first.holder().unwrap_or_default()])?;
//! lease.wait("another holder", Duration::from_secs(5), |lease| {
//!     lease.is_active() && lease.holder() != first.holder() && lease.token() > first.token()
//! })?;
//! # Ok(())
//! # }
//! ```

mod deadline;
mod events;
mod installed;
mod lease;
mod network;
mod operator;
mod options;
mod quorum;
mod workload;

pub use self::{
    deadline::Deadline,
    events::Event,
    installed::Installation,
    lease::{Lease, LeaseState, Role},
    network::Peer,
    operator::Operator,
    options::{InstallationOptions, nodes, redis_quorum},
    quorum::QuorumState,
    workload::workload,
};
