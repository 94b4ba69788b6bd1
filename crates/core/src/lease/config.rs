//! The configuration of one lease in one process.

use crate::backoff::Backoff;
use crate::quorum::Quorum;
use crate::time::{Drift, Millis};

/// The durations and policies of a lease. They may change while the lease is held: the next round that begins uses the
/// new ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The configured nodes. They never change.
    pub quorum: Quorum,
    /// TTL of the keys after an acquire or an extension.
    pub ttl: Millis,
    /// Time from the start of a successful round of extension to the start of the next.
    pub renew_interval: Millis,
    /// Time that the holder needs to stop. The process gives a term up that long before the end of its validity.
    pub stop_budget: Millis,
    /// Longest time for one request to one node.
    pub command_timeout: Millis,
    /// How far the rates of two clocks may differ.
    pub drift: Drift,
    /// Delays between two attempts.
    pub backoff: Backoff,
    /// What the process does with a term that it cannot keep. [`Command::Configure`](super::Command::Configure) changes it
    /// at once.
    pub deadline: OnDeadline,
}

impl Config {
    /// Time from the start of a failed round to the start of the next, and between two requests to a node that refuses
    /// a join. A lost packet costs nothing, and an outage of every node makes no storm of requests.
    pub fn retry_pace(&self) -> Millis {
        let brisk = Millis((self.renew_interval.0 / 2).min(self.ttl.0 / 10));
        self.command_timeout.max(brisk).max(Millis(1))
    }

    /// How long the keys of a term can exist after a node has set them.
    pub(super) const fn longest_life(&self) -> Millis {
        self.drift.most(self.ttl)
    }
}

/// What a process does with a term that it cannot keep. In either case it no longer treats the term as held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDeadline {
    /// At [`TermView::stop_at`](super::TermView::stop_at) it seals the term, which ends the term for every process. For
    /// a process that decides about this lease.
    #[default]
    Seal,
    /// At [`TermView::stop_at`](super::TermView::stop_at) the term becomes unconfirmed
    /// ([`Standing::Adopting`](super::Standing::Adopting)). It is extended, and held again as soon as a majority
    /// confirms it. No deadline ends it, and a term that is lost by misses is dropped without a seal. A term whose publication
    /// is not answered ends for this process, without a seal. For a process that does not lead: another process may keep the
    /// term. When the process leads again ([`Seal`](Self::Seal)), and no majority
    /// has confirmed the term since, one more round decides: the term ends with it if no majority confirms it then.
    Unconfirm,
}

/// A process that notices a deadline later than this was paused or suspended. Others may have kept the term meanwhile,
/// so the process does not seal by its own clock: it continues as after a restart.
pub const LATE_WAKE: Millis = Millis::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_tried_again_after_a_part_of_the_interval_or_of_the_ttl_and_not_before_its_timeout() {
        for (renew_interval, ttl, command_timeout, pace) in
            [(5000, 60_000, 100, 2500), (5000, 20_000, 100, 2000), (5000, 60_000, 3000, 3000), (1, 1, 0, 1)]
        {
            let [ttl, renew_interval, command_timeout] = [ttl, renew_interval, command_timeout].map(Millis);
            let config = Config { ttl, renew_interval, command_timeout, ..super::super::tests::config() };
            assert_eq!(config.retry_pace(), Millis(pace), "{config:?}");
        }
    }
}
