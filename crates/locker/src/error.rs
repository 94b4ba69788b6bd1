//! Why something did not succeed.

use std::time::Duration;

use redislease_core::lock;

use crate::Node;
use crate::node::{no_majority, not_voting};

/// How many bytes of a key an error shows.
const SHOWN_KEY: usize = 64;

/// The configuration cannot be used. The text names the value and what to do. See the example of
/// [`Locker::builder`](crate::Locker::builder).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(pub(crate) String);

/// Why [`Locker::ready`](crate::Locker::ready) did not succeed. See the example of [`Locker::ready`](crate::Locker::ready).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// No majority of the servers voted in time.
    #[error("{} after {waited:?}: {}", no_majority(nodes), not_voting(nodes))]
    NoMajority {
        /// How long the call waited.
        waited: Duration,
        /// All servers.
        nodes: Vec<Node>,
    },
    /// The [`Locker`](crate::Locker) was shut down.
    #[error("the Locker was shut down: build another one")]
    Closed,
}

/// Why a request did not get its lock.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
/// # fn main() { with_locker(async |locker| {
/// match locker.lock("report").try_acquire().await {
///     Ok(guard) => println!("write the report with token {}", guard.token()),
///     Err(AcquireError::Held { by, .. }) => println!("{by} writes the report"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another holder has the lock.
    #[error(
        "key {key:?} is held by {by:?}, and its keys expire in {free_in:?} unless it renews them: try again later, or wait \
         longer with wait()"
    )]
    Held {
        /// The key that the holder has. Of several, it is the first one of the request.
        key: String,
        /// The [owner](crate::Request::owner) that the holder named.
        by: String,
        /// When the keys expire if the holder does not renew or release them.
        free_in: Duration,
    },
    /// A guard of this [`Locker`](crate::Locker) has the lock. A lock is not reentrant.
    #[error(
        "key {key:?} is held by a guard of this Locker, and a lock is not reentrant: release that guard first, or pass it to \
         the function that needs the lock"
    )]
    AlreadyHeldHere {
        /// The key that the guard has. Of several, it is the first one of the request.
        key: String,
    },
    /// The time of [`Request::wait`](crate::Request::wait) has passed. The last attempt failed for the reason in `last`.
    #[error("waited {waited:?}, and the last attempt failed: {last}")]
    TimedOut {
        /// How long the request waited.
        waited: Duration,
        /// Why the last attempt failed.
        last: Box<AcquireError>,
    },
    /// No majority of the servers votes.
    #[error("key {key:?} cannot be taken, because {}: {}", no_majority(nodes), not_voting(nodes))]
    NoMajority {
        /// The first key of the request.
        key: String,
        /// All servers.
        nodes: Vec<Node>,
    },
    /// The nodes vote, and no majority of them granted the lock in time: they are slow, or the attempt collided with another one.
    #[error(
        "key {key:?} was not granted by a majority in time: another attempt collided with this one, or the nodes answer \
         slowly; try again"
    )]
    TooSlow {
        /// The first key of the request.
        key: String,
    },
    /// The lock was granted, and the program did not poll the future of the request for one TTL, so the lock was released.
    #[error(
        "key {key:?} was granted, and the program did not poll its request for one ttl, so the lock was released: poll the future of \
         `acquire` until it is ready, and do not block its thread"
    )]
    NotPolled {
        /// The first key of the request.
        key: String,
    },
    /// Another program has written to a key of the request. It blocks the lock until somebody deletes it.
    #[error(
        "the Redis key {key:?} has a value that this library did not write, or no time to live: delete it on all servers if no other program needs it, \
         or choose another key, namespace or prefix"
    )]
    Foreign {
        /// The key as the servers name it.
        key: String,
    },
    /// The clock of this process stood still, as on a virtual machine that was paused or migrated. It makes no attempt until every
    /// lock that was held then has expired.
    #[error(
        "key {key:?} cannot be taken yet: the clock of this process stood still (a virtual machine was paused), and it makes no \
         attempt for another {free_in:?}: try again then"
    )]
    ClockStoodStill {
        /// The first key of the request.
        key: String,
        /// When attempts begin again.
        free_in: Duration,
    },
    /// The lock was lost: [`Guard::extend`](crate::Guard::extend) cannot renew it.
    #[error("key {key:?} cannot be extended: {why}")]
    Lost {
        /// The first key of the request.
        key: String,
        /// Why it was lost.
        why: Lost,
    },
    /// The request is invalid.
    #[error("{}{problem}", key.as_deref().map(before).unwrap_or_default())]
    Invalid {
        /// The first key of the request, unless the problem is about a key itself or about all requests.
        key: Option<String>,
        /// Names what is invalid and says what to do, without `key`.
        problem: String,
    },
    /// The [`Locker`](crate::Locker) was shut down.
    #[error("the Locker was shut down: build another one")]
    Closed,
}

/// The key before a problem.
fn before(key: &str) -> String {
    format!("key {}: ", shown(key))
}

/// A key in quotes. Only the beginning of a long one.
pub fn shown(key: &str) -> String {
    let begin = &key[..key.floor_char_boundary(SHOWN_KEY)];
    format!("{begin:?}{}", if begin.len() < key.len() { "..." } else { "" })
}

/// Why a lock is not valid any more. See the example of [`Guard`](crate::Guard).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No majority of the servers confirmed the lock in time: they did not answer, or lost all their data and do not vote yet, or have
    /// another value in its keys. Or this process was paused for too long.
    #[error(
        "the lock expired: no majority of the Redis nodes confirmed it in time, or this process was paused. Stop the work, and \
         acquire the lock again"
    )]
    Expired,
    /// A majority of the servers does not have the keys of this lock: somebody deleted them, or some servers lost their data.
    #[error(
        "a majority of the Redis nodes does not hold the lock any more: they lost their data, or the keys were deleted. Stop the \
         work, and acquire the lock again"
    )]
    Missing,
    /// The time of [`Request::max_hold`](crate::Request::max_hold) has passed.
    #[error(
        "the lock was held for the longest time that its request allows: stop the work, or allow a longer time with max_hold()"
    )]
    MaxHold,
    /// The [`Locker`](crate::Locker) was shut down.
    #[error(
        "the Locker was shut down, and the keys of this lock expire: stop the work, and release guards before shutdown()"
    )]
    Closed,
    /// The guard was released, abandoned or dropped. Only [`Renewals::next`](crate::Renewals::next) returns it.
    #[error("the guard of the lock was released or dropped")]
    Released,
}

impl From<lock::Lost> for Lost {
    fn from(lost: lock::Lost) -> Self {
        match lost {
            lock::Lost::Expired => Self::Expired,
            lock::Lost::Missing => Self::Missing,
            lock::Lost::MaxHold => Self::MaxHold,
            lock::Lost::Closed => Self::Closed,
        }
    }
}
