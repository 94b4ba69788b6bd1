//! The wait for a term on a quorum whose nodes are not known any more.

use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::facts::OpenQuorum;
use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::recorded::Recorded;
use crate::api::RedisLeaseStatus;
use crate::api::validated::MAX_LEASE;

/// The tolerated difference between the wall clocks of two processes when a wait is continued after a restart.
const WALL_CLOCK_MARGIN: Millis = Millis(10_000);

/// The wait for a term whose quorum was replaced by another configuration while no operator ran.
#[derive(Clone, Debug)]
struct Wait {
    /// The attempt of this term, which the status names.
    attempt: Attempt,
    /// The configuration on which it was acquired.
    fingerprint: String,
    until: Time,
    /// The same time for users.
    ends: jiff::Timestamp,
}

/// The wait, if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Block(Option<Wait>);

impl Block {
    /// The term in the status was acquired on a quorum with another configuration, whose nodes are unknown to this
    /// process. It waits for the longest lease duration that the API allows, until the keys have certainly expired. The
    /// wait ends at once if the quorum gets its earlier configuration back. Returns the message during the wait.
    pub fn update(
        &mut self,
        turn: &Turn<'_>,
        quorum: &OpenQuorum,
        link: Option<&KeeperLink>,
        out: &mut Effects,
    ) -> Option<String> {
        let named = Recorded::of(turn.lease).map(|recorded| recorded.attempt);
        let is_over =
            |wait: &Wait| wait.fingerprint == quorum.fingerprint || named.is_some_and(|named| named != wait.attempt);
        if self.0.as_ref().is_none_or(is_over) {
            self.0 = Wait::new(turn, quorum, link);
        }
        let wait = self.0.as_ref().filter(|wait| turn.now < wait.until)?;
        out.wake_at(wait.until);
        Some(format!(
            "The term that the status names was taken on a quorum of another configuration ({} instead of {}), whose \
             nodes are not known. The operator waits one hour, the longest lease, from when it first saw this, until {}, or until \
             the quorum has its old configuration again.",
            wait.fingerprint, quorum.fingerprint, wait.ends
        ))
    }
}

impl Wait {
    fn new(turn: &Turn<'_>, quorum: &OpenQuorum, link: Option<&KeeperLink>) -> Option<Self> {
        let &Turn { now, lease, facts, .. } = turn;
        let recorded = Recorded::of(lease)?;
        if link.is_some_and(|link| link.quorum.is_some() && link.knows(recorded.attempt)) {
            return None;
        }
        let status = lease.status.as_ref()?;
        let fingerprint = status.quorum.as_ref().map(|quorum| quorum.fingerprint.clone())?;
        if fingerprint == quorum.fingerprint {
            return None;
        }
        let wait = Drift::STANDARD.most(Millis::from(MAX_LEASE));
        let left = wait.saturating_sub(waited_before(status, facts.wall));
        let ends = facts.wall.saturating_add(core::time::Duration::from(left)).unwrap_or(facts.wall);
        let ends = ends.round(jiff::Unit::Second).unwrap_or(ends);
        Some(Self { attempt: recorded.attempt, fingerprint, until: now + left, ends })
    }
}

/// How long an earlier process has certainly waited for the term in the status: it recorded the end there when it began to
/// wait.
fn waited_before(status: &RedisLeaseStatus, wall: jiff::Timestamp) -> Millis {
    let end = status.history.first().filter(|past| past.fencing_token == status.given_token());
    let since = end.and_then(|past| u64::try_from(wall.duration_since(past.end_time.0).as_millis()).ok());
    since.map_or(Millis::ZERO, |since| Millis(since).saturating_sub(WALL_CLOCK_MARGIN))
}
