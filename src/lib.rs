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
//! | crate or module | responsibility |
//! |---|---|
//! | `redislease_core` (crate) | the lock protocol: pure state machines without clock, sockets or randomness of their own |
//! | `redislease_plan` (crate) | the resources, and every decision about a lease: data and pure functions |
//! | `redislease_lock` (crate) | keeper and nodes: the lock on real Redis servers, without Kubernetes |
//! | [`metrics`] | the Prometheus metrics |
//! | `operator` | watches and writes Kubernetes objects; does not talk to Redis itself |
//! | `http`, `telemetry`, [`cli`] | health checks and metrics endpoint, the log, the command line |
//!
//! Programs take locks with the crate `redislease-locker`, not with this one.

pub mod cli;
#[cfg(test)]
mod docs;
mod http;
mod locked;
pub mod metrics;
mod operator;
mod telemetry;
