//! RedisLease: a lease for a pod, or for a cluster, on a quorum of independent Redis masters, so that exactly one copy
//! of a workload is active, with a fencing token that makes late writes harmless.
//!
//! ```text
//!     kube-apiserver ──watch──▶ operator   RedisLease, RedisQuorum, Pods
//!                                 │ plan (pure): what is there ─▶ what comes next
//!                                 ▼
//!                               keeper     one owner per lease: feeds the core, runs its effects, shows the view
//!                                 │ requests                              ▲ votes
//!                                 ▼                                       │
//!                               nodes      one task per Redis node: scripts, deadlines, admission
//!                                 │
//!                               N Redis masters
//!     view ──▶ status (pure) ──▶ operator: conflict-checked status, events, labels: on transitions only
//! ```
//!
//! | room | feature | what it knows |
//! |---|---|---|
//! | `redislease_core` | | the protocol: pure machines, no clock, no socket, no randomness of their own |
//! | [`api`] | `api` | the resources as types, their rules, and the specs that make sense |
//! | [`plan`] | `api` | pure: who may hold, and what comes next |
//! | [`status`] | `api` | pure: what status, conditions and events say |
//! | [`clock`] | `lock` | the one door to the clock |
//! | [`nodes`] | `lock` | the Redis nodes: it never sees a resource |
//! | [`keeper`] | `lock` | the owner of each lease: where the core, the nodes and time meet |
//! | [`metrics`] | `lock` | what is counted |
//! | [`operator`] | `operator` | watches, decides, writes: it never speaks to Redis |
//! | [`http`], [`telemetry`], [`cli`] | `operator` | health and metrics, the log, the command line |
//!
//! Arrows point one way: `api` and the core are roots, then `plan` and `status`, `nodes` and `keeper`, `operator`,
//! `cli`. The features `api` and `lock` build without the rooms they do not name.

#[cfg(feature = "api")]
pub mod api;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(feature = "lock")]
pub mod clock;
#[cfg(feature = "lock")]
pub mod contain;
#[cfg(feature = "api")]
pub mod election;
#[cfg(feature = "operator")]
pub mod http;
#[cfg(feature = "lock")]
pub mod keeper;
#[cfg(feature = "lock")]
mod mailbox;
#[cfg(feature = "lock")]
pub mod metrics;
#[cfg(feature = "lock")]
pub mod nodes;
#[cfg(feature = "operator")]
pub mod operator;
#[cfg(feature = "api")]
pub mod plan;
#[cfg(feature = "api")]
pub mod status;
#[cfg(feature = "operator")]
pub mod telemetry;
