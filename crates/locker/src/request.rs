//! A request for a lock.

use std::sync::Arc;
use std::time::Duration;

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Config, OnDeadline};
use redislease_core::lock;
use redislease_core::op::Holder;
use redislease_core::time::{Drift, Millis};
use redislease_lock::clock;

use crate::acquire::{self, Plan};
use crate::error::shown;
use crate::interval::{MIN_RENEW, renewal, shortest};
use crate::{AcquireError, Guard, Locker, Retry, inspect};

/// The most keys of one request.
const MAX_KEYS: usize = 8;
/// The longest key, in bytes.
const MAX_KEY: usize = 512;
/// The longest owner, in bytes.
const MAX_OWNER: usize = 256;
/// The longest metadata, in bytes.
const MAX_METADATA: usize = 1024;
/// The longest `longest_lease`.
const LONGEST_LEASE: Duration = Duration::from_hours(1);

/// The answer to a request.
type Acquired = Result<Guard, AcquireError>;

/// A request for a lock, see [`Locker::lock`]. It does nothing before [`acquire`](Self::acquire) or one of the similar methods.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
/// # use redislease_locker::Request;
/// # fn main() { with_locker(async |locker| {
/// let request: Request = locker
///     .lock("report")
///     .ttl(Duration::from_millis(900))
///     .renew_every(Duration::from_millis(250))
///     .stop_budget(Duration::from_millis(100))
///     .owner("worker 1")
///     .metadata("the report of May")
///     .wait(Duration::from_secs(10))
///     .attempts(5);
/// let guard = request.acquire().await?;
/// # Ok(()) }) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing before acquire()"]
pub struct Request {
    locker: Locker,
    keys: Vec<String>,
    ttl: Option<Duration>,
    renew_every: Option<Duration>,
    stop_budget: Option<Duration>,
    owner: Option<Arc<str>>,
    metadata: String,
    wait: Option<Duration>,
    retry: Retry,
    attempts: Option<u32>,
    max_hold: Option<Duration>,
    hold_at_least: Duration,
}

impl Locker {
    /// A request for the lock of `key`: 1 to 512 bytes. See the example of [`Request`].
    pub fn lock(&self, key: impl Into<String>) -> Request {
        Request::new(self.clone(), vec![key.into()])
    }

    /// A request for the locks of 1 to 8 different keys together: all or none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let both = locker.lock_all(["account", "audit"]).acquire().await?;
    /// assert!(locker.lock("audit").try_acquire().await.is_err());
    /// both.release().await;
    /// locker.lock("audit").try_acquire().await?;
    /// # Ok(()) }) }
    /// ```
    pub fn lock_all<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> Request {
        Request::new(self.clone(), keys.into_iter().map(Into::into).collect())
    }
}

impl Request {
    fn new(locker: Locker, keys: Vec<String>) -> Self {
        Self {
            locker,
            keys,
            ttl: None,
            renew_every: None,
            stop_budget: None,
            owner: None,
            metadata: String::new(),
            wait: None,
            retry: Retry::default(),
            attempts: None,
            max_hold: None,
            hold_at_least: Duration::ZERO,
        }
    }

    /// How long the lock outlives its program, at least 200 ms, and at most the [`longest_lease`](crate::LockerBuilder::longest_lease).
    /// It is renewed until the guard is dropped, so the work may take longer. Default: 30 s, or the longest lease if it is shorter.
    /// See the example of [`Request`].
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often the lock is renewed, at least 10 ms. The servers must answer an attempt or a renewal within this time too, if it is
    /// shorter than the [`command_timeout`](crate::LockerBuilder::command_timeout). Two renewals and the stop budget must fit into the
    /// validity, which is 0.99 of `ttl` less 52 ms. Default: `(ttl - stop_budget) / 3`. See the
    /// example of [`Request`].
    pub const fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// How long before its expiry the guard counts as lost, so that the work has time to stop. Default: a tenth of `ttl`.
    /// See the example of [`Request`].
    pub const fn stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = Some(budget);
        self
    }

    /// A name that other programs see in [`AcquireError::Held`]: up to 256 bytes without line breaks. It is never compared. Default:
    /// host, process ID and a random word. See the example of [`Request`].
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(Into::<String>::into(owner).into());
        self
    }

    /// A text that other programs see with [`Locker::inspect`]: up to 1 KiB, for example what the holder works on. It is stored in
    /// the value of each key and never compared. Default: empty. See the example of [`Request`].
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// How long [`acquire`](Self::acquire) tries. Zero is one attempt. An attempt that has begun is not cut off: it usually takes less than
    /// one [`command_timeout`](crate::LockerBuilder::command_timeout) more, and at most four if the servers answer in the last moment. Default: `ttl`, which is enough after the crash of a holder with
    /// the same `ttl`. See the example of [`Request`].
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// When a refused request tries again. Default: [`Retry::default`]. See the example of [`Retry`].
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How many attempts are made at most, within [`wait`](Self::wait), at least 1. After the last one, [`acquire`](Self::acquire) returns
    /// why it failed. Default: no limit. See the example of [`Request`].
    pub const fn attempts(mut self, most: u32) -> Self {
        self.attempts = Some(most);
        self
    }

    /// Ends the lock this long after [`acquire`](Self::acquire) got it, at least 1 ms, as if it were lost
    /// ([`Lost::MaxHold`](crate::Lost::MaxHold)). The keys are not deleted then, because the work may still go on: they expire within one
    /// `ttl`, or when [`hold_at_least`](Self::hold_at_least) has passed, or are deleted by [`Guard::release`](crate::Guard::release), which says that it has stopped. Default: no limit.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").max_hold(Duration::from_millis(100)).acquire().await?;
    /// assert_eq!(guard.run(std::future::pending::<()>()).await, Err(Lost::MaxHold));
    /// # Ok(()) }) }
    /// ```
    pub const fn max_hold(mut self, longest: Duration) -> Self {
        self.max_hold = Some(longest);
        self
    }

    /// Lets no other program get the lock before this time has passed since [`acquire`](Self::acquire) got it, also if the guard is
    /// released or dropped before, or the program crashes: at most the [`longest_lease`](crate::LockerBuilder::longest_lease).
    /// Default: zero. For a task that several machines start at the same time of day: if it takes less time than their clocks
    /// differ by, it would run twice. Use a [`wait`](Self::wait) that is shorter than this time less that difference, and not
    /// [`try_acquire`](Self::try_acquire): two such attempts at once can refuse each other.
    ///
    /// The keys get the longer of this time and `ttl` as their TTL. The validity of the guard depends only on `ttl`. The time runs on the
    /// clocks of the servers. After a crash it begins one round trip earlier, and with a longer `ttl` the keys expire with that.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").hold_at_least(Duration::from_secs(1)).acquire().await?;
    /// assert!(matches!(guard.release().await, Released::Kept { .. }));
    /// let guard = locker.lock("mail").hold_at_least(Duration::from_secs(1)).acquire().await?;
    /// // There is no mail.
    /// assert_eq!(guard.release_unused().await, Released::Majority);
    /// # Ok(()) }) }
    /// ```
    pub const fn hold_at_least(mut self, least: Duration) -> Self {
        self.hold_at_least = least;
        self
    }

    /// Acquires the lock; tries again for the time of [`wait`](Self::wait). It needs no runtime: any executor can poll it.
    ///
    /// If the future is dropped, at any moment, the keys that it may have taken are deleted. On a server that is not connected then,
    /// they expire with their TTL. If the future is kept and not polled, a lock that it has acquired is renewed for one
    /// [`ttl`](Self::ttl) and then released; the request goes on when the future is polled again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").wait(Duration::from_secs(10)).acquire().await?;
    /// println!("write the report with token {}", guard.token());
    /// guard.release().await;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`] says why there is no lock. Keys that an attempt may have taken are deleted as above.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let (plan, report) = self.reported()?;
        report(acquire::acquire(plan).await)
    }

    /// Makes one attempt. It replaces [`wait`](Self::wait) by zero. See the example of [`AcquireError`].
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and never [`AcquireError::TimedOut`].
    pub async fn try_acquire(self) -> Result<Guard, AcquireError> {
        self.wait(Duration::ZERO).acquire().await
    }

    /// The same as [`acquire`](Self::acquire) for a program without an asynchronous runtime. It blocks this thread.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() -> Done {
    /// # let (_server, locker) = server();
    /// let guard = locker.lock("report").acquire_blocking()?;
    /// println!("write the report with token {}", guard.check()?);
    /// drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`AcquireError::Invalid`] inside of a tokio runtime, whose other tasks it would block.
    pub fn acquire_blocking(self) -> Result<Guard, AcquireError> {
        let (plan, report) = self.reported()?;
        if tokio::runtime::Handle::try_current().is_ok() {
            return report(invalid(
                "acquire_blocking() was called inside of a tokio runtime: call acquire().await, or Handle::block_on() in a blocking task"
                    .into(),
            ));
        }
        report(acquire::acquire_blocking(plan))
    }

    /// The checked values, and what to do with the answer. A lock is taken first: a shutdown while the observer works is a loss then.
    fn reported(self) -> Result<(Plan, impl FnOnce(Acquired) -> Acquired), AcquireError> {
        let observer = self.locker.0.observer.clone();
        let key = self.keys.first().cloned().unwrap_or_default();
        let began = clock::now();
        let plan = self.plan().inspect_err(|error| observer.report(|observer| observer.failed(&key, error)))?;
        let report = move |answer: Acquired| {
            let answer = answer.and_then(Guard::taken);
            let waited = clock::now().since(began).into();
            observer.report(|observer| match &answer {
                Ok(guard) => observer.acquired(&key, guard.token(), waited),
                Err(error) => observer.failed(&key, error),
            });
            answer.inspect(Guard::reported)
        };
        Ok((plan, report))
    }

    /// Checks the values without asking the servers: a program can do it when it starts.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redislease_locker::Locker;
    /// let locker = Locker::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"]).build()?;
    /// let request = locker.lock("report").ttl(Duration::from_secs(10)).stop_budget(Duration::from_secs(2));
    /// request.check().expect("two renewals and the stop budget fit into 10 s");
    /// let error = request.ttl(Duration::from_mins(2)).check().unwrap_err();
    /// assert!(error.to_string().starts_with("key \"report\": ttl is 2m: use 200ms to 30s, the longest_lease of the Locker"));
    /// # Ok::<(), redislease_locker::InvalidConfig>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Invalid`] names the value and what to do; [`AcquireError::Closed`] after [`Locker::shutdown`].
    pub fn check(&self) -> Result<(), AcquireError> {
        self.clone().plan().map(drop)
    }

    /// Checks the values.
    pub(crate) fn plan(self) -> Result<Plan, AcquireError> {
        self.check_keys()?;
        let inner = &self.locker.0;
        if inner.is_closed() {
            return Err(AcquireError::Closed);
        }
        let lease = self
            .check_values()
            .map_err(|problem| AcquireError::Invalid { key: self.keys.first().cloned(), problem })?;
        let owner = self.owner.as_ref().unwrap_or(&inner.owner);
        Ok(Plan {
            keys: self.keys.iter().map(|key| inner.nodes.keyspace().lock(&inner.namespace, key)).collect(),
            request: lock::Request {
                holder: Holder(inspect::join(owner, &self.metadata)),
                wait: self.wait.map_or(lease.ttl, Millis::from),
                retry: Backoff { limit: self.attempts, ..self.retry.backoff() },
                max_hold: self.max_hold.map(Millis::from),
                hold_at_least: self.hold_at_least.into(),
            },
            lease,
            names: self.keys,
            locker: self.locker,
        })
    }

    /// Checks the values other than the keys. The text of an error names the value.
    fn check_values(&self) -> Result<Config, String> {
        let inner = &self.locker.0;
        let owner = self.owner.as_ref().unwrap_or(&inner.owner);
        if owner.is_empty() || owner.contains(['\n', '\r']) {
            return Err(format!("owner is {owner:?}: use a name without line breaks, or leave it out"));
        }
        let metadata = &self.metadata;
        for (name, length, most) in [("owner", owner.len(), MAX_OWNER), ("metadata", metadata.len(), MAX_METADATA)] {
            if length > most {
                return Err(format!("{name} has {length} bytes: use up to {most}"));
            }
        }
        let longest = Duration::from(inner.nodes.longest_lease());
        if self.hold_at_least > longest {
            return Err(format!(
                "hold_at_least is {}: use up to {}, the longest_lease of the Locker; a longer one needs a longer longest_lease in \
                 all programs",
                show(self.hold_at_least),
                show(longest),
            ));
        }
        match (self.max_hold, self.attempts) {
            (Some(hold), _) if hold < Duration::from_millis(1) => {
                Err(format!("max_hold is {}: use at least 1ms", show(hold)))
            }
            (_, Some(0)) => Err("attempts is 0: use at least 1".to_owned()),
            _ => self.lease(),
        }
    }

    fn check_keys(&self) -> Result<(), AcquireError> {
        let count = self.keys.len();
        if !(1..=MAX_KEYS).contains(&count) {
            return invalid(format!("{count} keys: name 1 to {MAX_KEYS}"));
        }
        for (index, key) in self.keys.iter().enumerate() {
            if key.is_empty() || key.len() > MAX_KEY {
                return invalid(format!("key {} has {} bytes: use 1 to {MAX_KEY}", shown(key), key.len()));
            } else if self.keys[..index].contains(key) {
                return invalid(format!("key {key:?} is named twice: name each key once"));
            }
        }
        Ok(())
    }

    fn lease(&self) -> Result<Config, String> {
        let nodes = &self.locker.0.nodes;
        let longest = Duration::from(nodes.longest_lease());
        let ttl = self.ttl.unwrap_or(Duration::from_secs(30).min(longest));
        if ttl < Duration::from_millis(200) || ttl > longest {
            return Err(format!(
                "ttl is {}: use 200ms to {}, the longest_lease of the Locker; a longer one needs a longer longest_lease in all \
                 programs",
                show(ttl),
                show(longest),
            ));
        }
        if let Some(renew) = self.renew_every.filter(|renew| *renew < MIN_RENEW) {
            return Err(format!("renew_every is {}: use at least {}", show(renew), show(MIN_RENEW)));
        }
        let stop_budget = self.stop_budget.unwrap_or(ttl / 10);
        let Some(renew) = renewal(ttl, self.renew_every, stop_budget) else {
            let renewals = self.renew_every.map(|renew| format!(" of renew_every {}", show(renew))).unwrap_or_default();
            let shorter = if self.renew_every.is_some() { "renew_every or stop_budget" } else { "stop_budget" };
            let least = shortest(self.renew_every, stop_budget);
            let advice = if least <= longest {
                format!("use a ttl of at least {}, or a shorter {shorter}", show(least))
            } else if least <= LONGEST_LEASE {
                let least = show(least);
                format!(
                    "use a shorter {shorter}, or a ttl of at least {least} and a longer longest_lease in all programs"
                )
            } else {
                format!("use a shorter {shorter}")
            };
            return Err(format!(
                "ttl is {}, which has no room for two renewals{renewals} and the stop_budget {}: {advice}",
                show(ttl),
                show(stop_budget),
            ));
        };
        Ok(Config {
            quorum: nodes.quorum(),
            ttl: ttl.into(),
            renew_interval: renew.into(),
            stop_budget: stop_budget.into(),
            // A round that failed is over before the next one is due.
            command_timeout: nodes.command_timeout().min(renew.into()),
            drift: Drift::STANDARD,
            // The request has a policy of its own, and tries again by itself.
            backoff: Backoff::one_attempt(1),
            deadline: OnDeadline::Seal,
        })
    }
}

/// In whole milliseconds as the options of a command line, and otherwise exactly: a value that is too long must not look as its limit.
fn show(span: Duration) -> String {
    let millis = Millis::from(span);
    if Duration::from(millis) == span { redislease_core::duration::text(millis) } else { format!("{span:?}") }
}

fn invalid<T>(problem: String) -> Result<T, AcquireError> {
    Err(AcquireError::Invalid { key: None, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/lock.md`.
    #[test]
    fn defaults() {
        let plan = |seconds| {
            let longest = Duration::from_secs(seconds);
            let locker = Locker::builder(["redis://a:1"]).single_node().longest_lease(longest).build().unwrap();
            let owner = locker.owner().to_owned();
            (locker.lock("k").plan().unwrap(), owner)
        };
        let (Plan { lease, request, .. }, owner) = plan(60);
        assert_eq!((lease.ttl, lease.stop_budget, lease.renew_interval), (Millis(30_000), Millis(3000), Millis(9000)));
        assert_eq!((request.wait, request.max_hold, request.hold_at_least), (lease.ttl, None, Millis::ZERO));
        assert_eq!((request.retry, &*request.holder.0), (Retry::default().backoff(), &*owner));
        assert_eq!(plan(10).0.lease.ttl, Millis(10_000), "the longest lease is shorter");
    }
}
