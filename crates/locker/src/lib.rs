//! A distributed lock with fencing tokens, on a majority of independent Redis masters.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use redislease_locker::Locker;
//!
//! async fn work(token: u64) {
//!     println!("write with token {token}");
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let locker = Locker::builder(["redis://127.0.0.1:7001", "redis://127.0.0.1:7002", "redis://127.0.0.1:7003"])
//!         .namespace("shop")
//!         .longest_lease(Duration::from_secs(30))
//!         .build()?;
//!     locker.ready(Duration::from_secs(35)).await?;
//!     let guard = locker.lock("my-key").ttl(Duration::from_secs(30)).wait(Duration::from_secs(10)).acquire().await?;
//!     guard.run(work(guard.token())).await?;
//!     guard.release().await;
//!     Ok(())
//! }
//! ```
//!
//! A [`Locker`] connects to the servers on a thread of its own, which also renews every lock. [`Request::acquire`] returns a
//! [`Guard`]. The guard has a fencing token, which is greater than the token of every earlier lock with one of its keys, and
//! it says at any time how long the lock is still valid.
//!
//! * [`guide::limits`]: what a lock can and cannot do. Read it first.
//! * [`guide::fencing`]: how the token makes late writes harmless.
//! * [`guide::several_keys`]: one lock on several keys.
//! * [`guide::coming_from`]: what the calls of other libraries are here.
//!
//! Each lock has a `tracing` span named `lock`, with its first key and its token, from the return of the acquire until its end. A
//! loss is an event of it. The connections log under the target `redislease_lock`. For metrics, see [`Observer`].
//!
//! Only this crate has a stable interface. `redislease-lock`, on which it is built, is internal.

mod acquire;
mod builder;
mod deadlines;
mod error;
mod guard;
pub mod guide;
mod inspect;
mod interval;
mod local;
mod locker;
mod node;
mod observer;
mod renewals;
mod request;
mod retry;
mod state;
mod tls;
mod url;

pub use builder::LockerBuilder;
pub use error::{AcquireError, InvalidConfig, Lost, NotReady};
pub use guard::{Guard, Released};
pub use inspect::Inspection;
pub use locker::Locker;
pub use node::{Node, NodeState};
pub use observer::Observer;
pub use renewals::Renewals;
pub use request::Request;
pub use retry::Retry;
pub use tls::Tls;
pub use tokio_util::sync::CancellationToken;
