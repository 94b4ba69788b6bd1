//! When the elected pod of a lease with a scheduling gate may start.
//!
//! At most one started pod of the lease may run. So the next one starts only when every pod that was started before is proven to
//! have stopped, or was asked to stop so long ago that it must have stopped: its deletion grace period plus the lease's
//! `gracePeriod` have passed on the clock of this process. A deletion that the API server refuses asks nobody.
//!
//! The watch of pods can be late, and another process may have decided before. So this process reads the pods directly once, after
//! it has gained its authority and before it starts the first one.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::time::{Millis, Time};

use super::Reconciler;
use super::activation::Activator;
use super::desired_roles::DesiredRole;
use super::effect::{Effect, PodChange, Read};
use super::facts::Facts;
use super::inputs::Inputs;
use super::recorded::Recorded;
use crate::api::RedisLease;
use crate::api::names::{self, PodRole};
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
    /// The pods to which this process has had a fence stored since it may decide about the lease, and to which it has sent no
    /// start since then. No start of another process can match their versions any more.
    fenced: BTreeSet<String>,
    pods: Pods,
}

/// Whether the pods of the lease were read directly since this process may decide about the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pods {
    #[default]
    Unread,
    /// The read has no answer yet.
    Reading,
    /// The read was refused.
    AgainAt(Time),
    Read,
}

impl StartState {
    /// Why the elected pod is not started yet.
    pub fn waits(&self) -> Option<&str> {
        self.waits.as_deref()
    }

    /// This process does not decide any more: another one may start pods.
    pub fn authority_lost(&mut self) {
        self.fenced.clear();
        self.pods = Pods::Unread;
    }

    /// The read of the pods was answered, or refused. An answer to a read before a loss of authority counts for nothing.
    pub fn pods_read(&mut self, now: Time, answered: bool) {
        if self.pods == Pods::Reading {
            self.pods = if answered { Pods::Read } else { Pods::AgainAt(now + READ_AGAIN) };
        }
    }

    /// A write was sent or answered.
    pub fn wrote(&mut self, uid: &str, change: PodChange, is_stored: bool) {
        match change {
            PodChange::Fence(_) if is_stored => _ = self.fenced.insert(uid.to_owned()),
            PodChange::Start => _ = self.fenced.remove(uid),
            _ => {}
        }
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
}

impl Reconciler {
    /// Decides whether the elected pod waits for a pod that was started before it.
    pub(super) fn review_start(&mut self, now: Time, lease: &RedisLease, inputs: &Inputs, facts: &Facts) {
        let activator = self.activator(facts);
        if !activator.starts_pods() {
            self.start = StartState::default();
            return;
        }
        let candidates = inputs.electorate.iter().flat_map(|electorate| electorate.pods());
        let all: Vec<_> = candidates.chain(&facts.strays).collect();
        let may_run = |pod: &&PodFacts| activator.may_run(pod);
        self.start.observe(now, all.iter().map(|pod| &***pod).filter(may_run));
        self.start.waits = None;
        let holder =
            Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.pod_uid().to_owned());
        let Some(holder) = all.iter().find(|pod| Some(&pod.uid) == holder.as_ref() && !pod.gates.is_empty()) else {
            return;
        };
        let grace_period = self.spec.valid.as_ref().map_or(Millis::ZERO, |spec| Millis::from(spec.grace_period));
        for earlier in all.iter().map(|pod| &***pod).filter(|pod| pod.uid != holder.uid && may_run(pod)) {
            let stopped_at = self.start.stopped_at(earlier, grace_period);
            if stopped_at.is_some_and(|at| at <= now) {
                continue;
            }
            if let Some(at) = stopped_at {
                self.wake_at(at);
            }
            self.start.waits = Some(self.waits_for(&holder.name, earlier, stopped_at.is_some()));
            return;
        }
    }

    /// Whether every pod that may have been started is known: the pods were read directly since this process may decide. If not,
    /// they are read.
    pub(super) fn are_pods_known(&mut self, now: Time) -> bool {
        match self.start.pods {
            Pods::Read => return true,
            Pods::Reading => return false,
            Pods::AgainAt(at) if now < at => {
                self.wake_at(at);
                return false;
            }
            Pods::AgainAt(_) | Pods::Unread => {}
        }
        self.start.pods = Pods::Reading;
        self.emit(Effect::Read(Read::Startable));
        false
    }

    /// Adds a fence to the write of each pod that an earlier start may still reach: before the next start, of every pod that has
    /// its gate, and of a pod to which a write was not answered.
    pub(super) fn fence(&self, activator: &Activator, desired_roles: &mut [(Arc<PodFacts>, DesiredRole)]) {
        if !activator.starts_pods() {
            return;
        }
        let starts = desired_roles.iter().any(|(_, desired)| desired.change == PodChange::Start);
        let withdrawn = names::withdrawn_annotation(&self.identity.name);
        for (pod, desired) in desired_roles {
            let is_reached = !pod.gates.is_empty() && !self.start.fenced.contains(&pod.uid);
            let may_be_sent = starts || self.may_be_active(pod.object());
            if desired.role == Some(PodRole::Standby) && is_reached && may_be_sent {
                let last = pod.annotations.get(&withdrawn).and_then(|last| last.rsplit_once('.')?.1.parse().ok());
                desired.change = PodChange::Fence(last.unwrap_or(0_u64).checked_add(1).unwrap_or(0));
            }
        }
    }

    fn waits_for(&self, holder: &str, earlier: &PodFacts, is_asked: bool) -> String {
        let name = &earlier.name;
        let refused = self.refused.as_ref().filter(|one| one.uid == earlier.uid && one.change == PodChange::Delete);
        match (is_asked, refused) {
            (true, _) => format!(
                "{holder} is not started yet: {name}, which was started for an earlier term, was asked to stop and may still run."
            ),
            (false, Some(refused)) => format!(
                "{holder} is not started: {name}, which was started for an earlier term, may still run, and cannot be deleted: {}",
                refused.why
            ),
            (false, None) => format!(
                "{holder} is not started yet: {name}, which was started for an earlier term, may still run and is deleted first."
            ),
        }
    }
}

impl Activator {
    /// Whether the operator let the pod start, and nothing proves that it has stopped.
    pub(super) fn may_run(&self, pod: &PodFacts) -> bool {
        match self {
            Self::Gate { started, .. } => pod.annotations.get(started).is_some() && !pod.stopped,
            Self::Role => false,
        }
    }
}
