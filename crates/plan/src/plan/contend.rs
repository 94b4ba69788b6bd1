//! Selects the pod that should hold the lease, and decides when an attempt may start.
//!
//! An attempt starts only if the API server has answered a call of this process after the reason to contend arose.
//! Without this rule, a cluster without its API server could acquire a shared lease, never publish the term, and keep a
//! healthy cluster from the lease.

use redislease_core::lease::{Standing, TermId, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::Reconciler;
use super::effect::{Command, Effect, Read};
use super::facts::{Authority, Facts, PodKnowledge};
use super::inputs::Inputs;
use super::keeper_link::holder_of;
use super::permits::PermitUse;
use super::recorded::{Recorded, latest_token};
use crate::api::RedisLease;
use crate::api::validated::Readiness;
use crate::election::{Electorate, EndCause, HandoverOrder, HolderName, HolderPod, Sighting, Situation, Step, decide};

/// The pause before repeating an unanswered read.
const READ_AGAIN: Millis = Millis(1000);
/// The timeout after which a requested attempt that has not started is requested again: the keeper drops a request that
/// cannot start at once.
const ATTEMPT_SHOWN: Millis = Millis(1000);
/// The interval between two reads of the Kubernetes node of a vanished holder.
const NODE_AGAIN: Millis = Millis(5000);
/// How long other clusters can acquire the lease before this process contends again, counted from the expiry of the keys
/// of an unpublished term. Their next attempts start when the keys expire, so a second is enough.
const HEAD_START: Millis = Millis(1000);
/// How long an attempt and its publication use a permit at most: terms that cannot be published delay other leases only
/// briefly.
const PERMIT: Millis = Millis(10_000);
/// The longest cooldown while no status write succeeds, unless the keys last longer.
const COOLDOWN_MOST: Millis = Millis(60_000);

/// The state about attempts and the holder's pod that is kept between turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Contention {
    /// Since when an attempt has been due that has not started.
    due_since: Option<Time>,
    /// When the keeper allows the next attempt, if one is wanted and no other process holds the lease.
    turn_at: Option<Time>,
    /// Whether the API server was asked for an answer for that attempt.
    probing: bool,
    /// Whether the lease uses a permit, or waits for one.
    permit: PermitUse,
    /// When the attempt was requested that uses the permit.
    permit_since: Option<Time>,
    /// Set after a term that could not be published, because another cluster may be able to publish.
    cooldown: Option<Cooldown>,
    /// The unpublished term, and when it is ended.
    unpublished: Option<(Attempt, Time)>,
    holder_read: HolderRead,
    /// Since when the holder of this term has had a scheduling gate.
    gated_since: Option<(Attempt, Time)>,
    node_again_at: Option<Time>,
    node_reading: bool,
}

/// The time without attempts after a term that could not be published.
///
/// Otherwise a cluster whose API server accepts no status would acquire a shared lease repeatedly. Two lease durations
/// are enough for another cluster to acquire it. When a status write succeeds, the reason is gone; the cooldown then ends
/// [`HEAD_START`] after the keys expire.
#[derive(Clone, Copy, Debug)]
struct Cooldown {
    /// The end if a status write has succeeded.
    shortest: Time,
    /// The end if none has.
    longest: Time,
    /// Whether a status write of this lease has succeeded since the cooldown began.
    written: bool,
}

impl Cooldown {
    /// Creates a cooldown for a term that was extended no later than `now`.
    fn new(now: Time, ttl: Millis) -> Self {
        let shortest = now + ttl + HEAD_START;
        Self { shortest, longest: shortest.max(now + (ttl + ttl).min(COOLDOWN_MOST)), written: false }
    }

    const fn ends_at(&self) -> Time {
        if self.written { self.shortest } else { self.longest }
    }
}

/// The read of the holder's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HolderRead {
    #[default]
    None,
    UnderWay,
    /// The read was answered: the next turn uses the result.
    Fresh,
    /// The read was not answered.
    AgainAt(Time),
}

impl Contention {
    pub const fn awaits_api_answer(&self) -> bool {
        self.probing
    }

    /// The end of the cooldown, if there is one.
    fn cooldown_until(&self, now: Time) -> Option<Time> {
        self.cooldown.map(|cooldown| cooldown.ends_at()).filter(|at| now < *at)
    }

    /// Every turn decides again whether the lease waits for a permit. Without `may_begin` it needs none.
    pub fn begin_turn(&mut self, may_begin: bool) {
        if !may_begin || self.permit == PermitUse::Waits {
            self.permit = PermitUse::None;
        }
        self.permit_since = self.permit_since.filter(|_| may_begin);
    }

    /// Whether the lease uses a permit, or waits for one.
    pub const fn permit(&self) -> PermitUse {
        self.permit
    }

    pub fn is_cooling_down(&self, now: Time) -> bool {
        self.cooldown_until(now).is_some()
    }

    /// Records that the API server has accepted a status of this lease.
    pub const fn status_was_written(&mut self) {
        if let Some(cooldown) = &mut self.cooldown {
            cooldown.written = true;
        }
    }

    pub const fn holder_read(&mut self, now: Time, answered: bool) {
        self.holder_read = if answered { HolderRead::Fresh } else { HolderRead::AgainAt(Time(now.0 + READ_AGAIN.0)) };
    }

    pub fn node_read(&mut self, now: Time) {
        self.node_reading = false;
        self.node_again_at = Some(now + NODE_AGAIN);
    }

    fn not_due(&mut self) {
        self.due_since = None;
        self.turn_at = None;
        self.probing = false;
        self.permit = PermitUse::None;
    }

    /// When the next attempt starts that is wanted and in backoff.
    pub const fn turn_at(&self) -> Option<Time> {
        self.turn_at
    }
}

impl Reconciler {
    /// Decides the next step and sends it to the keeper.
    pub(super) fn decide(&mut self, now: Time, lease: &RedisLease, inputs: &Inputs, facts: &Facts) {
        let Some(link) = &self.link else { return self.contention.not_due() };
        if link.is_behind() {
            return;
        }
        let view = link.view.clone();
        let overdue = self.unpublished_too_long(now, &view);
        let fresh = std::mem::take(&mut self.contention.holder_read);
        let is_fresh = fresh == HolderRead::Fresh;
        if !is_fresh {
            self.contention.holder_read = fresh;
        }
        self.review_handover(now, lease, inputs, facts, &view);
        self.end_unobservable_handover(inputs, facts);
        let holder_name = holder_of(&view);
        if let (PodKnowledge::Unseen, Some(holder)) = (&facts.holder, &holder_name)
            && facts.pods_listed
            && !is_fresh
        {
            // Another replica may have elected a pod that this process has not observed yet: an unobserved pod is not
            // proof.
            self.read_holder(now, holder);
        }
        let waiting = self.wait_of_holder(now, &view, facts);
        let holder = match &facts.holder {
            PodKnowledge::Unseen => HolderPod::Unseen,
            PodKnowledge::Here(sighting) => {
                let sighting = waiting.as_ref().unwrap_or(&**sighting);
                HolderPod::Here { sighting, candidate: inputs.is_candidate(&sighting.facts.uid) }
            }
            PodKnowledge::Workload => HolderPod::Workload {
                candidate: holder_name.as_ref().is_some_and(|holder| inputs.is_candidate(&holder.pod_uid)),
            },
            PodKnowledge::Gone { stopped } => HolderPod::Gone { stopped: *stopped },
        };
        let unknown = std::sync::Arc::default();
        let electorate = inputs.electorate.as_ref().unwrap_or(&unknown);
        let may_begin = facts.authority == Authority::Lead && inputs.may_begin() && facts.pods_listed;
        let handover = self.handover.clone();
        let decision = decide(&Situation {
            now,
            view: &view,
            holder,
            electorate,
            handover: handover
                .as_ref()
                .and_then(|handover| handover.order())
                .or_else(|| never_started(lease, electorate)),
            readiness: self.spec.valid.as_ref().map_or(Readiness::UNKNOWN, |spec| spec.readiness),
            grace_period: self.spec.valid.as_ref().map_or_else(Default::default, |spec| spec.grace_period),
            may_begin,
            revoked: self.revoked(lease, inputs, &view, overdue),
            fresh: is_fresh,
        });
        for at in [decision.again_at, self.contention.cooldown_until(now)].into_iter().flatten() {
            self.wake_at(at);
        }
        match decision.step {
            Step::Keep => self.contention.not_due(),
            Step::LookAgain => {
                if let Some(holder) = &holder_name {
                    self.read_holder(now, holder);
                }
            }
            Step::Want { name, uid } => self.contend(now, (name, uid), &view, facts),
            Step::Forget => self.stop_contending(&view),
            Step::End { term, proof, cause } => self.end(now, term, proof, cause),
        }
        if let (PodKnowledge::Gone { stopped: false }, Some(holder)) = (&facts.holder, &holder_name) {
            self.read_node(now, lease, holder);
        }
    }

    /// A holder with a scheduling gate cannot run. The time in which it must be started begins with its term.
    fn wait_of_holder(&mut self, now: Time, view: &View, facts: &Facts) -> Option<Sighting> {
        let (Standing::Held(term), PodKnowledge::Here(sighting)) = (&view.standing, &facts.holder) else {
            self.contention.gated_since = None;
            return None;
        };
        if sighting.facts.gates.is_empty() {
            self.contention.gated_since = None;
            return None;
        }
        // While an earlier pod may still run, it is not the holder that fails to start.
        let counts = |(attempt, _): &(Attempt, Time)| *attempt == term.id.attempt && self.start.waits().is_none();
        let known = self.contention.gated_since.filter(counts);
        let (_, since) = *self.contention.gated_since.insert(known.unwrap_or((term.id.attempt, now)));
        Some(Sighting { not_ready_since: Some(since), not_running_since: Some(since), ..Sighting::clone(sighting) })
    }

    /// Starts an attempt for the pod or workload if it can start at once and the API server answers.
    fn contend(&mut self, now: Time, (name, uid): (&str, &str), view: &View, facts: &Facts) {
        let Some(link) = &mut self.link else { return };
        if let Standing::Acquiring(_, holder) = &view.standing {
            self.contention.not_due();
            if holder.0.parse().is_ok_and(|name: HolderName| name.pod_uid != uid) {
                self.command(Command::Forget);
            }
            return;
        }
        if let Some(at) = link.attempt_requested_at.map(|at| at + ATTEMPT_SHOWN).filter(|at| now < *at) {
            return self.wake_at(at);
        }
        let changed = link.last_candidate.as_ref().is_some_and(|last| *last != uid);
        if let Some(at) = link.next_attempt_at().filter(|at| now < *at) {
            if changed && view.refused_by.is_none() && view.ending.is_none() {
                // The backoff was for attempts for another pod.
                link.last_candidate = Some(uid.to_owned());
                self.command(Command::TryNow);
            }
            self.contention.not_due();
            self.contention.turn_at = Some(at).filter(|_| view.refused_by.is_none() && view.ending.is_none());
            return self.wake_at(at);
        }
        if !facts.permitted.attempt {
            self.contention.not_due();
            self.contention.permit = PermitUse::Waits;
            return;
        }
        self.contention.permit = PermitUse::Uses;
        let due_since = *self.contention.due_since.get_or_insert(now);
        if facts.api_answered_at.is_none_or(|answered| answered < due_since) {
            if !std::mem::replace(&mut self.contention.probing, true) {
                self.emit(Effect::Probe);
            }
            return;
        }
        self.contention.not_due();
        let holder = HolderName {
            cluster: self.identity.cluster.clone(),
            namespace: self.identity.namespace.clone(),
            lease: self.identity.name.clone(),
            pod: name.to_owned(),
            pod_uid: uid.to_owned(),
        };
        link.attempt_requested_at = Some(now);
        self.contention.permit_since = Some(now);
        link.last_candidate = Some(uid.to_owned());
        self.command(Command::Want(holder));
        // The keeper may drop the attempt without a view that causes a turn.
        self.wake_at(now + ATTEMPT_SHOWN);
    }

    fn stop_contending(&mut self, view: &View) {
        self.contention.not_due();
        let Some(link) = &mut self.link else { return };
        if link.attempt_requested_at.take().is_some() || matches!(view.standing, Standing::Acquiring(..)) {
            self.command(Command::Forget);
        }
    }

    fn end(&mut self, now: Time, term: TermId, proof: bool, cause: EndCause) {
        self.contention.not_due();
        let Some(link) = &mut self.link else { return };
        let ttl = link.config.ttl;
        if !link.request_end(term.attempt, proof) {
            return;
        }
        if cause == EndCause::NotPublished {
            let cooldown = Cooldown::new(now, ttl);
            self.contention.cooldown = Some(cooldown);
            self.wake_at(cooldown.ends_at());
            self.emit(Effect::Warn(format!(
                "The API server did not accept the status of the term with token {} within one lease duration. The \
                 operator ends the term and makes no attempt for {} ms, or for {} ms if the API server accepts a status \
                 meanwhile.",
                term.token,
                cooldown.longest.since(now).0,
                cooldown.shortest.since(now).0
            )));
        }
        self.terms.record_decision(term.attempt, cause, proof);
        self.status.last_end_was_proven = proof;
        self.command(Command::End { term, proof });
    }

    /// Whether the running term has been unpublished for one lease duration. Its keys block others and no process may act
    /// on it, so it ends whether the API server answers or not.
    fn unpublished_too_long(&mut self, now: Time, view: &View) -> bool {
        let Standing::Publishing(term) = &view.standing else {
            self.contention.unpublished = None;
            return false;
        };
        let Some(link) = &self.link else { return false };
        let attempt = term.id.attempt;
        let limit = now + link.config.drift.most(link.config.ttl);
        let ends_at = match self.contention.unpublished {
            Some((waiting, at)) if waiting == attempt => at,
            _ => limit,
        };
        self.contention.unpublished = Some((attempt, ends_at));
        if now < ends_at {
            self.wake_at(ends_at);
        }
        now >= ends_at
    }

    /// Ends a term that could not be published for one lease duration. Without the API server this process may make no
    /// other decision, but renewing the term indefinitely would keep all other clusters from the lease.
    pub(super) fn give_up_unpublished(&mut self, now: Time) {
        let Some(view) = self.link.as_ref().filter(|link| !link.is_behind()).map(|link| link.view.clone()) else {
            return;
        };
        if self.unpublished_too_long(now, &view)
            && let Some(term) = view.standing.term()
        {
            self.end(now, term.id.clone(), false, EndCause::NotPublished);
        }
    }

    /// Why a running term must end regardless of its holder's state.
    fn revoked(&self, lease: &RedisLease, inputs: &Inputs, view: &View, overdue: bool) -> Option<EndCause> {
        if inputs.deleting {
            return Some(EndCause::Deleted);
        }
        if inputs.suspended {
            return Some(EndCause::Suspended);
        }
        if inputs.denied {
            return Some(EndCause::NamespaceNotAllowed);
        }
        if inputs.refused || inputs.forbidden {
            return Some(EndCause::NoLongerCandidate);
        }
        if self.link.as_ref().is_some_and(|link| inputs.replaces(link)) {
            return Some(EndCause::QuorumChanged);
        }
        if overdue {
            return Some(EndCause::NotPublished);
        }
        let running = view.standing.term()?;
        let recorded = Recorded::of(lease);
        let ours = recorded.as_ref().is_some_and(|recorded| recorded.attempt == running.id.attempt);
        let ended = ours && recorded.is_some_and(|recorded| !recorded.active);
        // The status names another term with at least this token, or none: another process has ended this term.
        let passed =
            !matches!(view.standing, Standing::Publishing(_)) && !ours && latest_token(lease) >= running.id.token;
        if ended || passed {
            return Some(EndCause::EndedElsewhere);
        }
        let handed_over = self.handover.as_ref().is_some_and(|handover| handover.ends(running.id.attempt));
        handed_over.then_some(EndCause::HandoverRequested)
    }

    fn read_holder(&mut self, now: Time, holder: &HolderName) {
        match self.contention.holder_read {
            HolderRead::UnderWay | HolderRead::Fresh => return,
            HolderRead::AgainAt(at) if now < at => return self.wake_at(at),
            HolderRead::AgainAt(_) | HolderRead::None => {}
        }
        self.contention.holder_read = HolderRead::UnderWay;
        let workload = self.spec.valid.as_ref().and_then(|spec| spec.candidate_kind());
        self.emit(Effect::Read(Read::Holder { pod: holder.pod.clone(), uid: holder.pod_uid.clone(), workload }));
    }

    /// A pod that vanished without a last event proves nothing; the out-of-service taint on its node does.
    fn read_node(&mut self, now: Time, lease: &RedisLease, holder: &HolderName) {
        let shown = lease.status.as_ref().and_then(|status| status.holder.as_ref());
        let shown = shown.filter(|shown| shown.pod_uid == holder.pod_uid);
        let Some(node) = shown.and_then(|shown| shown.node.clone()) else { return };
        if self.contention.node_reading {
            return;
        }
        if let Some(at) = self.contention.node_again_at.filter(|at| now < *at) {
            return self.wake_at(at);
        }
        self.contention.node_reading = true;
        self.emit(Effect::Read(Read::Node { node, uid: holder.pod_uid.clone() }));
    }
}

/// After a term whose pod was never started, another pod goes first.
fn never_started<'a>(lease: &'a RedisLease, electorate: &Electorate) -> Option<HandoverOrder<'a>> {
    let past = lease.status.as_ref()?.history.first()?;
    let waits = electorate.eligible.iter().any(|pod| pod.name == past.pod && !pod.running);
    (waits && past.reason == EndCause::HolderUnhealthy.as_str()).then_some(HandoverOrder { to: None, from: &past.pod })
}

impl Reconciler {
    /// Ends the use of the permit when the attempt has failed, when its term is published, or after [`PERMIT`]. A refused or
    /// unanswered write ends it at once: it is not the length of the queue that delays the publication.
    pub(super) fn update_permit(&mut self, now: Time) {
        let Some(since) = self.contention.permit_since else { return };
        let ends_at = since + PERMIT;
        if now < ends_at && self.status.is_known() && (self.is_contending() || self.status.is_writing()) {
            self.contention.permit = PermitUse::Uses;
            return self.wake_at(ends_at);
        }
        self.contention.permit_since = None;
        if self.contention.permit == PermitUse::Uses && self.contention.due_since.is_none() {
            self.contention.permit = PermitUse::None;
        }
    }

    /// Whether an attempt is due, requested or in progress, or its term is being published.
    pub(super) fn is_contending(&self) -> bool {
        let link = self.link.as_ref();
        let under_way =
            link.is_some_and(|link| matches!(link.view.standing, Standing::Acquiring(..) | Standing::Publishing(_)));
        under_way || self.contention.due_since.is_some() || link.is_some_and(|link| link.attempt_requested_at.is_some())
    }
}
