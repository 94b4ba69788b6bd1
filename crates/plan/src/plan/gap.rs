//! How long no pod has held a lease that one should hold.

use redislease_core::lease::Standing;
use redislease_core::time::{Millis, Time};

use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use crate::api::RedisLeaseStatus;
use crate::api::validated::Candidates;
use crate::election::Electorate;
use crate::status::TermEnd;

/// The time without a holder.
#[derive(Clone, Debug, Default)]
pub(super) struct Gap {
    since: Option<Time>,
    /// Whether this process has looked since it may decide.
    has_measured: bool,
    /// Whether another cluster held the lease when the nodes were last asked.
    was_elsewhere: bool,
}

impl Gap {
    /// Since when no pod has held the lease.
    pub const fn since(&self) -> Option<Time> {
        self.since
    }

    /// A term of another cluster, a lease without a desired holder, and an unknown state do not count. `yields`: a handover lets another
    /// cluster acquire the lease.
    pub fn measure(&mut self, turn: &Turn<'_>, link: Option<&KeeperLink>, yields: bool) {
        let Turn { now, lease, .. } = turn;
        let standing = link.map(|link| &link.view.standing);
        let held = matches!(standing, Some(Standing::Held(_) | Standing::Adopting(_) | Standing::Uncertain(_)));
        let says_elsewhere = lease.status.as_ref().is_some_and(RedisLeaseStatus::says_held_by_peer);
        self.was_elsewhere = says_elsewhere || (self.was_elsewhere && link.is_none_or(|link| link.quorum.is_none()));
        let unwanted = lease.spec.suspend || turn.is_deleting();
        let no_gap = held || self.was_elsewhere || unwanted || yields || is_between_runs(turn);
        let begin = || if self.has_measured { *now } else { begin_of_gap(turn) };
        self.since = if no_gap { None } else { Some(self.since.unwrap_or_else(begin)) };
        self.has_measured = true;
    }
}

/// When the last term was lost, if another process, or this one before it lost the right to decide, has seen that.
fn begin_of_gap(turn: &Turn<'_>) -> Time {
    let newest = turn.lease.status.as_ref().and_then(|status| status.history.first());
    let lost = newest.filter(|past| TermEnd::from_word(&past.reason).is_some_and(TermEnd::is_loss));
    let since = lost.and_then(|past| u64::try_from(turn.facts.wall.duration_since(past.end_time.0).as_millis()).ok());
    turn.now - Millis(since.unwrap_or(0))
}

/// Whether the workload is a Job or a CronJob of which no pod is known to run, and nothing else prevents a term.
fn is_between_runs(turn: &Turn<'_>) -> bool {
    let Turn { inputs, facts, spec, .. } = turn;
    if inputs.obstacle.is_some() {
        return false;
    }
    let candidates = spec.map(|spec| &spec.candidates);
    let ends = matches!(candidates, Some(Candidates::Workload(workload)) if workload.kind.runs_to_completion());
    let has_ended =
        |electorate: &Electorate| electorate.workload().is_none() && electorate.pods().all(|pod| pod.finished);
    ends && facts.electorate().is_none_or(|electorate| has_ended(electorate))
}
