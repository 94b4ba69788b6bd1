//! Reads from the Redis servers whether they vote, and which leases were extended since a given time.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use super::{Options, objects::Planned};
use crate::{Installation, RedisServer, Result};

/// Keys are read in batches of this size.
const BATCH: usize = 1000;
/// The interval between two reads of all keys; each costs the servers some milliseconds for 10,000 leases.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until a majority of the servers has a marker with which it votes.
///
/// # Errors
/// [`Error::NotInTime`](crate::Error::NotInTime).
pub(super) fn wait_for_votes(installation: &Installation, within: Duration) -> Result<()> {
    let votes = |server: &RedisServer| {
        let marker = server.command(&["GET", "redislease:marker"]).ok().and_then(|marker| marker.text());
        marker.is_some_and(|marker| !marker.starts_with("wait:"))
    };
    let majority = installation.redis().len() / 2 + 1;
    let count = || installation.redis().iter().filter(|server| votes(server)).count();
    let probe = || match count() {
        count if count >= majority => Ok(()),
        count => Err(format!("{count} vote")),
    };
    installation.wait_for("a majority of the Redis servers votes", within, probe)
}

/// The extensions of leases after a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extended {
    /// The number of leases that a majority of the servers has extended.
    pub(super) leases: usize,
    /// The time until the last of them was extended.
    pub(super) last: Duration,
}

/// Waits until a majority has extended all leases after `since`, a time since 1970, or until the timeout. A server
/// stores the expiry of a key, and a key lasts one lease duration from its extension, which gives the time of the
/// extension.
///
/// # Errors
/// [`Error::Redis`](crate::Error::Redis) when a server does not answer.
pub(super) fn wait_for_extensions(
    installation: &Installation,
    options: &Options,
    planned: &[Planned],
    since: Duration,
    within: Duration,
) -> Result<Extended> {
    let [lifetime, since] =
        [options.lease_duration, since].map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let majority = installation.redis().len() / 2 + 1;
    let deadline = Instant::now() + within;
    let mut first: BTreeMap<String, i64> = BTreeMap::new();
    loop {
        let mut ends: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for server in installation.redis() {
            for batch in planned.chunks(BATCH) {
                let commands: Vec<_> = batch
                    .iter()
                    .map(|lease| vec!["PEXPIRETIME".to_owned(), format!("redislease:lock:{}", lease.key())])
                    .collect();
                for (lease, reply) in batch.iter().zip(server.pipeline(&commands)?) {
                    if let Some(end) = reply.integer() {
                        ends.entry(lease.key()).or_default().push(end - lifetime);
                    }
                }
            }
        }
        for (key, mut extended) in ends {
            extended.retain(|at| *at >= since);
            extended.sort_unstable();
            if let Some(at) = extended.get(majority - 1) {
                first.entry(key).or_insert(*at);
            }
        }
        if first.len() == planned.len() || Instant::now() >= deadline {
            let last = first.values().max().map_or(0, |at| at - since);
            return Ok(Extended { leases: first.len(), last: Duration::from_millis(last.try_into().unwrap_or(0)) });
        }
        thread::sleep(LOOK_EVERY);
    }
}
