//! The lock layer of RedisLease: it runs the protocol of `redislease-core` on real Redis servers.
//!
//! **This interface is internal.** It can change with every commit. The operator and the library `redislease-locker` use it,
//! and so do the tests and benchmarks of this workspace. A program that needs a lock uses `redislease-locker`.
//!
//! | module | responsibility |
//! |---|---|
//! | [`clock`] | the only access to the system clock |
//! | [`contain`] | contains panics |
//! | [`mailbox`] | a queue with many senders and one receiver |
//! | [`nodes`] | the connections to the Redis nodes, one thread for each quorum |
//! | [`keeper`] | runs the lock machines of many leases in shards |
//!
//! The crate knows neither Kubernetes nor a metrics library. It reports through [`nodes::NodesObserver`],
//! [`keeper::Observer`] and [`PanicObserver`], and its users turn the reports into metrics.

pub mod clock;
pub mod contain;
pub mod keeper;
pub mod mailbox;
pub mod nodes;
mod own_thread;

pub use contain::PanicObserver;
