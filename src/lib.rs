//! RedisLease elects one active pod among several, within a Kubernetes cluster or across clusters. The lease is held on a
//! majority of independent Redis masters. Each term of a lease has a fencing token that is greater than all earlier ones, so
//! that a store can reject the late write of an earlier holder.
//!
//! ```text
//!   kube-apiserver
//!     │ watch: RedisLease, RedisQuorum, Pods          ▲ status, events, pod labels: on transitions only
//!     ▼                                               │
//!   operator ──── facts ────▶ plan (pure): reconciler ──── effects ────▶ operator
//!     │ commands: acquire, adopt, end                 ▲ views: held, ending, idle
//!     ▼                                               │
//!   redislease_lock::keeper   runs the lock protocol of redislease-core, and renews the leases
//!     │ requests                                      ▲ votes
//!     ▼                                               │
//!   redislease_lock::nodes    one task per Redis node: scripts, deadlines, admission
//!     │
//!   N Redis masters
//! ```
//!
//! | module | feature | responsibility |
//! |---|---|---|
//! | `redislease_core` (crate) | | the lock protocol: pure state machines without clock, sockets or randomness of their own |
//! | [`api`] | `api` | the custom resources as types, their admission rules, and their specs after validation |
//! | [`election`] | `api` | pure: which pods are eligible, and whether a term continues |
//! | [`status`] | `api` | pure: composes status, conditions and events |
//! | [`plan`] | `api` | pure: one reconciler per lease, which decides everything about that lease |
//! | [`index`] | `api` | pure: compact facts from the watches, and which leases an event concerns |
//! | `redislease_lock` (crate) | `operator` | keeper and nodes: the lock on real Redis servers, without Kubernetes |
//! | `metrics` | `operator` | the Prometheus metrics |
//! | `operator` | `operator` | watches and writes Kubernetes objects; does not talk to Redis itself |
//! | `http`, `telemetry`, [`cli`] | `operator` | health checks and metrics endpoint, the log, the command line |
//!
//! `election`, `status`, `plan` and `index` are public because the simulator, another crate of this workspace, drives them.
//! Their interface can change at any time.
//!
//! A module uses only modules that come before it in this order: `api` and the core; `election`; `status`; `plan`; `index`;
//! `operator`; `cli`. Programs take locks with the crate `redislease-locker`, not with this one.

#[cfg(feature = "api")]
pub mod api;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(all(test, feature = "operator"))]
mod docs;
#[cfg(feature = "api")]
pub mod election;
#[cfg(feature = "operator")]
mod http;
#[cfg(feature = "api")]
pub mod index;
#[cfg(feature = "operator")]
pub mod metrics;
#[cfg(feature = "operator")]
mod operator;
#[cfg(feature = "api")]
pub mod plan;
#[cfg(feature = "api")]
pub mod status;
#[cfg(feature = "operator")]
mod telemetry;
