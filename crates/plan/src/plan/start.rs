//! When the elected pod of a lease with a scheduling gate may start.
//!
//! At most one started pod of the lease may run. So the next one starts only when every pod that was started before is proven to
//! have stopped, or was asked to stop so long ago that it must have stopped: its deletion grace period plus the lease's
//! `gracePeriod` have passed on the clock of this process. A deletion that the API server refuses asks nobody.
//!
//! The watch of pods can be late, and another process may have decided before. So this process reads the pods directly once, after
//! it has gained its authority and before it starts the first one.

use redislease_core::time::{Millis, Time};

use super::activation::Activator;
use super::direct_read::DirectRead;
use super::effect::{Effect, Read};
use super::inputs::Turn;
use super::output::Effects;
use super::recorded::Recorded;
use super::refusals::Refusals;
use crate::election::PodFacts;

/// The pause before a refused read of the pods is repeated.
const READ_AGAIN: Millis = Millis(1000);

/// The state about the start of the next pod.
#[derive(Clone, Debug, Default)]
pub(super) struct StartState {
    /// The started pods that were asked to stop, or whose phase is final, and since when this process knows it.
    stopping: Vec<(String, Time)>,
    /// Why the elected pod is not started yet: one sentence.
    waits: Option<String>,
    /// The read of the pods of the lease, since this process may decide about the lease.
    pods: DirectRead,
}

impl StartState {
    pub fn waits(&self) -> Option<&str> {
        self.waits.as_deref()
    }

    /// This process does not decide any more: another one may start pods.
    pub const fn authority_lost(&mut self) {
        self.pods = self.pods.void();
    }

    /// Another process decides, or the lease has no gate any more.
    pub fn forget(&mut self) {
        *self = Self { pods: self.pods.void(), ..Self::default() };
    }

    /// The read of the pods was answered, or refused. An answer to a read before a loss of authority counts for nothing.
    pub fn pods_read(&mut self, now: Time, answered: bool) {
        self.pods = match self.pods {
            DirectRead::UnderWay if answered => DirectRead::Answered,
            DirectRead::UnderWay => DirectRead::AgainAt(now + READ_AGAIN),
            DirectRead::Void => DirectRead::Unsent,
            other => other,
        };
    }

    /// Records which of these pods stop.
    fn observe<'a>(&mut self, now: Time, started: impl Iterator<Item = &'a PodFacts>) {
        let before = std::mem::take(&mut self.stopping);
        let asked = started.filter(|pod| pod.deletion_grace.is_some() || pod.finished);
        let since = |uid: &str| before.iter().find(|(known, _)| known == uid).map_or(now, |(_, since)| *since);
        self.stopping = asked.map(|pod| (pod.uid.clone(), since(&pod.uid))).collect();
    }

    /// When the pod must have stopped; `None` if it was not asked to.
    fn stopped_at(&self, pod: &PodFacts, grace_period: Millis) -> Option<Time> {
        let (_, since) = self.stopping.iter().find(|(uid, _)| *uid == pod.uid)?;
        Some(*since + Millis::from(pod.deletion_grace.unwrap_or_default()) + grace_period)
    }

    /// Decides whether the elected pod waits for a pod that was started before it.
    pub fn review(&mut self, turn: &Turn<'_>, activator: &Activator, refusals: &Refusals, out: &mut Effects) {
        let &Turn { now, lease, facts, spec, .. } = turn;
        let all: Vec<_> = facts.pods().collect();
        let may_run = |pod: &&PodFacts| activator.may_run(pod);
        self.observe(now, all.iter().map(|pod| &***pod).filter(may_run));
        self.waits = None;
        let holder =
            Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.pod_uid().to_owned());
        let Some(holder) = all.iter().find(|pod| Some(&pod.uid) == holder.as_ref() && !pod.gates.is_empty()) else {
            return;
        };
        let grace_period = spec.map_or(Millis::ZERO, |spec| Millis::from(spec.grace_period));
        for earlier in all.iter().map(|pod| &***pod).filter(|pod| pod.uid != holder.uid && may_run(pod)) {
            let stopped_at = self.stopped_at(earlier, grace_period);
            if stopped_at.is_some_and(|at| at <= now) {
                continue;
            }
            if let Some(at) = stopped_at {
                out.wake_at(at);
            }
            self.waits = Some(waits_for(&holder.name, earlier, stopped_at.is_some(), refusals));
            return;
        }
    }

    /// Whether every pod that may have been started is known: the pods were read directly since this process may decide. If not,
    /// they are read.
    pub fn are_pods_known(&mut self, now: Time, out: &mut Effects) -> bool {
        if self.pods.begin(now, out) {
            out.emit(Effect::Read(Read::Startable));
        }
        self.pods == DirectRead::Answered
    }
}

fn waits_for(holder: &str, earlier: &PodFacts, is_asked: bool, refusals: &Refusals) -> String {
    let name = &earlier.name;
    match (is_asked, refusals.of_deletion(&earlier.uid)) {
        (true, _) => format!(
            "{holder} is not started yet: {name}, which was started for an earlier term, was asked to stop and may still run."
        ),
        (false, Some(why)) => format!(
            "{holder} is not started: {name}, which was started for an earlier term, may still run, and cannot be deleted: {why}"
        ),
        (false, None) => format!(
            "{holder} is not started yet: {name}, which was started for an earlier term, may still run and is deleted first."
        ),
    }
}
