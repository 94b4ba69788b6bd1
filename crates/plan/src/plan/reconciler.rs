//! The state machine of one lease: it puts the parts together and is the only one that knows all of them.

use std::sync::Arc;

use redislease_core::lease::{TermId, View};
use redislease_core::time::Time;

use super::authority_changes::AuthorityChanges;
use super::block::Block;
use super::contend::Contention;
use super::context::Context;
use super::gap::Gap;
use super::handover::Handovers;
use super::holder::{HolderReads, holder_pod, never_started, revoked};
use super::inputs::{Inputs, Objections, Turn};
use super::keeper::Keeper;
use super::keeper_link::{KeeperLink, holder_of};
use super::key_reads::KeyReads;
use super::metrics::Metrics;
use super::output::{Effects, Output};
use super::publish::Publisher;
use super::recorded::Recorded;
use super::roles::Roles;
use super::workload::{is_unproven, stop_risk, waits_for_deletion};
use super::{
    Authority, CandidateFacts, Effect, Event, Facts, Identity, Machine, PermitUses, PodKnowledge, QuorumFacts,
};
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::QuorumIdentity;
use crate::api::validated::Readiness;
use crate::api::{RedisLease, RedisLeaseStatus, ValidLease};
use crate::election::{EndCause, Situation, Step, decide, takeover};
use crate::status::{self, Composed, Obstacle, QuorumOutlook, compose};

/// One lease of this cluster, identified by the resource's UID: a resource that was created again is another lease.
#[derive(Clone, Debug)]
pub struct Reconciler {
    identity: Arc<Identity>,
    authority: AuthorityChanges,
    block: Block,
    keeper: Keeper,
    contention: Contention,
    key_reads: KeyReads,
    holder: HolderReads,
    handover: Handovers,
    status: Publisher,
    metrics: Metrics,
    roles: Roles,
    /// Whether the spec that the last turn used makes a workload the only candidate.
    is_for_workload: bool,
    pub(super) gap: Gap,
    /// The resource is deleted, and this process must not remove the labels before it decides again.
    clears_later: bool,
    out: Effects,
}

impl Machine for Reconciler {
    type Config = ();

    fn new((): &(), identity: Identity) -> Self {
        Self {
            roles: Roles::new(&identity.name),
            identity: Arc::new(identity),
            authority: AuthorityChanges::default(),
            block: Block::default(),
            keeper: Keeper::default(),
            contention: Contention::default(),
            key_reads: KeyReads::default(),
            holder: HolderReads::default(),
            handover: Handovers::default(),
            status: Publisher::default(),
            metrics: Metrics::default(),
            is_for_workload: false,
            gap: Gap::default(),
            clears_later: false,
            out: Output::new(),
        }
    }

    fn holder(&self) -> Option<(String, String)> {
        let holder = holder_of(self.view()?)?;
        Some((holder.pod, holder.pod_uid))
    }

    fn awaits_api_answer(&self) -> bool {
        self.contention.awaits_api_answer()
    }

    fn permit_uses(&self) -> PermitUses {
        PermitUses { attempt: self.contention.permit(), ..self.status.permit_uses() }
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Facts(mut facts) => {
                if let Some(why) = waits_for_deletion(&facts) {
                    facts.candidates = CandidateFacts::Unusable(LeaseReady::Unheld, why);
                } else if is_unproven(&facts) {
                    facts.candidates = CandidateFacts::Unknown;
                }
                self.turn(now, &facts);
            }
            Event::View(view) => self.keeper.show(view, &mut self.out),
            Event::KeeperEnded => self.keeper.ended(now, &mut self.out),
            Event::StatusWritten(outcome) => {
                self.status.written(now, outcome, &mut self.keeper, &mut self.contention, &mut self.out);
            }
            Event::LeaseRead(read) => {
                self.out.lease_was_read();
                self.roles.lease_read(read.as_ref().ok().and_then(Option::as_deref));
                self.status.lease_read(&read, &self.keeper, &mut self.out);
            }
            Event::HolderRead { uid, answered } => self.holder.holder_read(now, &uid, answered),
            Event::StartableRead { answered } => self.roles.pods_read(now, answered),
            Event::NodeRead => self.holder.node_read(now),
            Event::RoleWritten { uid, outcome } => self.roles.written(now, &uid, &outcome, &mut self.out),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let mut effect = self.out.poll()?;
        if let Effect::Report(notice) = &mut effect
            && self.is_for_workload
        {
            // The holder is no pod.
            notice.on_pods.clear();
        }
        Some(effect)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.out.deadline()
    }

    fn is_finished(&self) -> bool {
        self.keeper.link().is_none() && !self.status.is_writing() && !self.roles.is_writing() && !self.clears_later
    }
}

impl Reconciler {
    /// The identity of the lease.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The last view of the keeper machine.
    pub fn view(&self) -> Option<&View> {
        self.keeper.view()
    }

    fn turn(&mut self, now: Time, facts: &Facts) {
        self.out.begin_turn();
        self.status.begin_turn();
        self.contention.begin_turn(facts.lease.is_some() && facts.authority == Authority::Lead);
        if self.authority.observe(now, facts, &mut self.out) {
            self.authority_lost();
        }
        if facts.authority == Authority::Follow {
            return self.follow();
        }
        let Some(lease) = &facts.lease else { return self.finalize(now, facts) };
        // Whether a quorum is missing is known only after every quorum was read once.
        if !facts.quorum.read {
            return;
        }
        let identity = self.identity.clone();
        let (spec, inputs) = (facts.spec.valid.as_deref(), Inputs::default());
        let mut turn = Turn { now, identity: &identity, lease, facts, spec, inputs };
        turn.inputs = self.resolve(&turn);
        self.keeper.configure(&turn, &mut self.out);
        if facts.authority == Authority::Renew {
            if let Some(link) = self.keeper.link_mut() {
                // Its term could not be published.
                self.contention.stop(link, &mut self.out);
            }
            self.give_up_unpublished(now);
            return self.keeper.drop_unconfirmed(now, &mut self.out);
        }
        if let Some(at) = self.keeper.waits_until(now) {
            // Nothing is known about a running term before it is adopted again.
            return self.out.wake_at(at);
        }
        self.keeper.sync(&turn, &mut self.out);
        self.decide(&turn);
        self.gap.measure(&turn, self.keeper.link(), self.handover.obstacle().is_some());
        // A view that is older than the last command must not be written to the status.
        if !self.keeper.is_behind() {
            self.show(&turn);
        }
        let is_used =
            self.status.is_known() && (self.contention.is_contending(self.keeper.link()) || self.status.is_writing());
        self.contention.update_permit(now, is_used, &mut self.out);
    }

    /// Writes the status, then the roles that follow from it.
    fn show(&mut self, turn: &Turn<'_>) {
        self.roles.review_start(turn, &mut self.out);
        let composed = self.compose(turn);
        self.metrics.count(turn.lease, &composed, self.gap.since().is_some(), &mut self.out);
        let (keeper, contention) = (&self.keeper, &self.contention);
        let context = Context { turn, keeper, contention, unheld_since: self.gap.since() };
        self.status.write(&context, composed, &mut self.out);
        self.roles.assign(&context, &self.status, &mut self.out);
    }

    /// This process could not decide for a while: what it knows about pods and about the time without a holder may be outdated.
    fn authority_lost(&mut self) {
        self.roles.authority_lost();
        self.gap = Gap::default();
        self.metrics.forget();
    }

    fn follow(&mut self) {
        self.clears_later = false;
        self.keeper.close(&mut self.out);
        self.contention = Contention::default();
        self.key_reads = KeyReads::default();
        self.holder = HolderReads::default();
        self.handover = Handovers::default();
        self.block = Block::default();
        self.gap = Gap::default();
        self.metrics.forget();
        self.status.forget(&mut self.out);
        self.roles.forget(&mut self.out);
    }

    /// The resource is deleted: the term ends, the labels are removed, and the keeper machine stays until the last key has expired.
    fn finalize(&mut self, now: Time, facts: &Facts) {
        let stopped = match &facts.holder {
            PodKnowledge::Here(sighting) => sighting.facts.stopped,
            PodKnowledge::Gone { stopped } => *stopped,
            PodKnowledge::Unseen | PodKnowledge::Workload => false,
        };
        self.keeper.retire(stopped, &mut self.out);
        self.status.withdraw(&mut self.out);
        self.clears_later = !facts.authority.decides();
        if !self.clears_later {
            self.roles.clear(now, facts, &mut self.out);
        }
    }

    fn resolve(&mut self, turn: &Turn<'_>) -> Inputs {
        let (link, out) = (self.keeper.link(), &mut self.out);
        self.is_for_workload = turn.spec.is_some_and(|spec| spec.cluster.is_some());
        // Without a term to end, a quorum that the namespace may not use is like one that does not exist.
        let has_term = link.is_some_and(|link| !link.is_idle()) || Recorded::of(turn.lease).is_some();
        let quorum = turn.facts.quorum.open.clone().filter(|_| !turn.facts.quorum.denied || has_term);
        self.handover.follow(turn, link, out);
        let ends_by_request =
            turn.lease.spec.suspend || turn.facts.quorum.denied || self.handover.new_request(turn).is_some();
        // The test follows when the term is confirmed and published. Another process that decides may have started the holder of a
        // term that this one publishes.
        let is_running = link.is_some_and(|link| link.running().is_some()) || is_adoptable(turn.lease, link);
        let objections = Objections {
            stop_test: self.roles.stop_test(turn.facts, ends_by_request && is_running).cloned(),
            is_running,
            forbidden: self.roles.forbidden(turn.now, turn.facts, out),
            refused_stop: self.roles.refused_stop(turn.facts),
            block: quorum.as_ref().and_then(|quorum| self.block.update(turn, quorum, link, out)),
            cools_down: self.contention.cooldown_until(turn.now).is_some(),
            yields: self.handover.obstacle(),
        };
        Inputs::resolve(turn, quorum, objections)
    }

    /// Decides the next step and sends it to the keeper.
    fn decide(&mut self, turn: &Turn<'_>) {
        let Turn { now, lease, facts, spec, .. } = turn;
        let Some(link) = self.keeper.link() else { return self.contention.not_due() };
        if link.is_behind() {
            return;
        }
        let overdue = self.contention.unpublished_too_long(*now, link, &mut self.out);
        let fresh = self.holder.take_fresh();
        self.handover.review(turn, link);
        self.handover.end_unobservable(turn);
        let holder_name = holder_of(&link.view);
        let workload = spec.and_then(ValidLease::candidate_kind);
        if let (PodKnowledge::Unseen, Some(holder)) = (&facts.holder, &holder_name)
            && facts.pods_listed
            && !fresh
        {
            // Another replica may have elected a pod that this process has not observed yet: an unobserved pod is not
            // proof.
            self.holder.read_holder(*now, holder, workload, &mut self.out);
        }
        let is_held_up = self.roles.start_waits().is_some();
        let waiting = self.holder.wait(*now, &link.view, &facts.holder, is_held_up);
        let unknown = Arc::default();
        let electorate = facts.electorate().unwrap_or(&unknown);
        let view = link.view.clone();
        let decision = decide(&Situation {
            now: *now,
            view: &view,
            holder: holder_pod(&facts.holder, waiting.as_ref(), holder_name.as_ref(), turn),
            electorate,
            handover: self.handover.order().or_else(|| never_started(lease, electorate)),
            readiness: spec.map_or(Readiness::UNKNOWN, |spec| spec.readiness),
            grace_period: spec.map_or_else(Default::default, |spec| spec.grace_period),
            may_begin: facts.authority == Authority::Lead && turn.may_begin() && facts.pods_listed,
            revoked: revoked(turn, link, &self.handover, overdue),
            fresh,
        });
        for at in [decision.again_at, self.contention.cooldown_until(*now)].into_iter().flatten() {
            self.out.wake_at(at);
        }
        let Some(link) = self.keeper.link_mut() else { return };
        let can_attempt = !matches!(decision.step, Step::Forget);
        match decision.step {
            Step::Keep => self.contention.not_due(),
            Step::LookAgain => {
                if let Some(holder) = &holder_name {
                    self.holder.read_holder(*now, holder, workload, &mut self.out);
                }
            }
            Step::Want { name, uid } => self.contention.contend(turn, (name, uid), link, &mut self.out),
            Step::Forget => self.contention.stop(link, &mut self.out),
            Step::End { term, proof, cause } => self.end(*now, term, proof, cause),
        }
        if let Some(link) = self.keeper.link() {
            self.key_reads.update(turn, link, can_attempt, &mut self.out);
        }
        if let (PodKnowledge::Gone { stopped: false }, Some(holder)) = (&facts.holder, &holder_name) {
            self.holder.read_node(*now, lease, holder, &mut self.out);
        }
    }

    fn end(&mut self, now: Time, term: TermId, proof: bool, cause: EndCause) {
        self.contention.not_due();
        let Some(link) = self.keeper.link_mut() else { return };
        if !link.request_end(&term, proof) {
            return;
        }
        if cause == EndCause::NotPublished {
            self.contention.cool_down(now, link.config.ttl, term.token, &mut self.out);
        }
        self.keeper.end(term, proof, cause, &mut self.out);
    }

    /// Stops renewing a term that could not be published for one lease duration: it would keep all other clusters from the
    /// lease. It does not end the term: the write may have succeeded without an answer, and another replica may keep it.
    fn give_up_unpublished(&mut self, now: Time) {
        let Some(link) = self.keeper.link().filter(|link| !link.is_behind()) else { return };
        if self.contention.unpublished_too_long(now, link, &mut self.out)
            && let Some(term) = link.running()
        {
            self.contention.cool_down(now, link.config.ttl, term.token, &mut self.out);
            self.keeper.close(&mut self.out);
        }
    }

    fn compose(&self, turn: &Turn<'_>) -> Composed {
        let Turn { now, identity, lease, facts, spec, inputs } = turn;
        let none = RedisLeaseStatus::default();
        let link = self.keeper.link();
        let quorum = link.and_then(|link| link.quorum.as_ref()).or(inputs.quorum.as_ref());
        let current = facts.quorum.open.as_ref();
        let takeover_risk = spec.and_then(takeover::risk);
        let holder = link.and_then(|link| holder_of(&link.view));
        compose(&status::Inputs {
            previous: lease.status.as_ref().unwrap_or(&none),
            generation: lease.metadata.generation,
            now: facts.wall,
            cluster: &identity.cluster,
            namespace: &identity.namespace,
            lease: &identity.name,
            view: self.keeper.view(),
            observed_terms: self.keeper.terms(),
            withheld: inputs.blocked,
            reads_keys: !facts.quorum.denied
                && facts.quorum.open.is_some()
                && link.is_some_and(|link| link.quorum.is_some()),
            obstacle: inputs.obstacle.as_ref().map(|(reason, message)| Obstacle { reason: *reason, message }),
            no_candidates: match &facts.candidates {
                CandidateFacts::Unusable(LeaseReady::InvalidReference, why) => Some(why),
                _ => None,
            },
            electorate: facts.electorate().map(|electorate| &**electorate).filter(|_| facts.pods_listed),
            quorum: quorum
                .filter(|quorum| current.is_some_and(|now| now.id == quorum.id && facts.quorum.evaluated))
                .map(|quorum| QuorumOutlook {
                    name: &quorum.name,
                    up: facts.quorum.up,
                    majority: quorum.quorum.majority(),
                    mismatch: facts.quorum.mismatch.as_deref(),
                }),
            term_quorum: link
                .and_then(|link| link.quorum.as_ref())
                .map(|quorum| QuorumIdentity { name: quorum.name.clone(), fingerprint: quorum.fingerprint.clone() }),
            is_quorum_unused: is_quorum_unused(&facts.quorum, link),
            leaderless: self.gap.since().map(|since| now.since(since).into()),
            takeover_risk: takeover_risk.as_deref(),
            stop_risk: stop_risk(facts),
            start: self.roles.start_waits(),
            refused: holder.as_ref().and_then(|holder| self.roles.refused_grant(facts, &holder.pod_uid)),
            runs_on: inputs.runs_on.as_deref(),
            handover: self.handover.outlook(),
        })
    }
}

/// Whether this process cannot use the quorum, and has nothing open on it. A tenant must not tell a quorum that does not exist from
/// one that it may not use.
fn is_quorum_unused(quorum: &QuorumFacts, link: Option<&KeeperLink>) -> bool {
    let is_open = quorum.open.is_some() && (!quorum.denied || link.is_some_and(|link| link.quorum.is_some()));
    quorum.read && !is_open && quorum.obstacle.is_some()
}

/// Whether the status names a term that this process has not adopted yet.
fn is_adoptable(lease: &RedisLease, link: Option<&KeeperLink>) -> bool {
    let is_known = |attempt| link.is_some_and(|link| link.knows(attempt));
    Recorded::of(lease).is_some_and(|recorded| recorded.active && !is_known(recorded.attempt))
}
