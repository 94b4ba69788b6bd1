//! One pure state machine for each lease, which holds its state and makes its decisions.
//!
//! The machine takes [`Event`]s and returns [`Effect`]s. It has no client, clock or socket, so the operator and the
//! simulator drive the same machine. All events except [`Event::Facts`] are only recorded; [`Event::Facts`] is a turn,
//! which depends only on the current state and can be repeated at any time.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`], [`event`], [`effect`] | the interface |
//! | [`spec`] | which version of the spec is used: it is valid and fits the quorum |
//! | [`inputs`] | resolve the quorum and the candidates; why no new term may start |
//! | [`keeper_link`], [`sync`] | the keeper machine: open, configure, adopt, end |
//! | [`views`] | the newest view of a keeper machine, for a turn that comes later |
//! | [`contend`] | which pod should hold the lease; when an attempt may start |
//! | [`publish`] | the status and its writes |
//! | [`entitlement`] | which pod may be `active` |
//! | [`roles`], [`desired_roles`] | label and token on pods |
//! | [`activation`] | leases whose pods start only after their election; which ways of activation the operator may use |
//! | [`start`] | when the elected pod may start: pods that were started before may still run |
//! | [`confirmation`] | the direct read of the status that must precede a start |
//! | [`guard`], [`altered`] | the back-off of writes to objects of others; what the API server stored instead |
//! | [`workload`] | when a workload that is a candidate itself is started and stopped |
//! | [`handover`] | requested handovers |
//! | [`finalize`] | a lease whose resource is deleted |
//! | [`leadership`] | which replica decides about the leases of a quorum |
//! | [`calls`] | the order in which calls reach the API server |
//! | [`permits`], [`fair_queue`] | how many leases acquire, publish and write at the same time; tenants take turns |
//! | [`durations`], [`recorded`] | durations for the core, the term in a status |
//! | [`repeat`], [`restarts`] | repeated writes, keeper machines that panicked |

mod activation;
mod altered;
pub mod calls;
mod confirmation;
mod contend;
mod desired_roles;
mod durations;
mod effect;
mod entitlement;
mod event;
mod facts;
mod fair_queue;
mod finalize;
pub mod guard;
mod handover;
mod inputs;
mod keeper_link;
mod leadership;
mod permits;
mod publish;
mod recorded;
pub mod repeat;
mod restarts;
mod roles;
mod spec;
mod start;
mod sync;
#[cfg(test)]
mod tests;
mod views;
mod workload;

pub use altered::{Altered, withdrawal};
pub use effect::{Command, Effect, Measure, PodChange, Priority, Read, RoleWrite, Shown, StatusWrite};
pub use event::{Event, RoleOutcome, StatusOutcome, lacks_right};
pub use facts::{Allowed, Authority, CandidateFacts, Facts, Granted, OpenQuorum, PodKnowledge, QuorumFacts};
pub use fair_queue::FairQueue;
pub use leadership::{Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts};
pub use permits::{PERMITS, PermitUse, PermitUses, Permits, Permitted};
pub use spec::{SpecCache, SpecFacts};
pub use views::{News, Views};

use std::collections::VecDeque;
use std::sync::Arc;

use redislease_core::lease::{EndReason, Standing, View};
use redislease_core::time::Time;

use crate::api::RedisLease;
use crate::api::conditions::{ConditionReason as _, ConditionType, LeaseActive};
use crate::api::validated::Candidates;
use crate::election::{Cluster, Electorate};
use crate::status::{Notice, NoticeReason, ObservedTerms, renewal_notice};
use activation::Refusal;
use confirmation::Confirmation;
use contend::Contention;
use handover::Handover;
use inputs::{Block, Inputs};
use keeper_link::KeeperLink;
use publish::StatusState;
use restarts::Restarts;
use roles::RoleState;
use start::StartState;
use workload::WorkloadState;

/// One lease of this cluster, identified by the resource's UID: a resource that was created again is another lease.
#[derive(Clone, Debug)]
pub struct Reconciler {
    identity: Identity,
    /// The spec that the last turn used.
    spec: SpecFacts,
    block: Option<Block>,
    link: Option<KeeperLink>,
    restarts: Restarts,
    /// The terms that this keeper machine has run, and why they were ended.
    terms: ObservedTerms,
    contention: Contention,
    /// The requested handover, until the status shows its result. Boxed: most leases have none.
    handover: Option<Box<Handover>>,
    status: StatusState,
    roles: RoleState,
    start: StartState,
    /// The workload that is the candidate, with granularity Cluster.
    workload: WorkloadState,
    confirmation: Confirmation,
    /// How many reads of the lease are under way.
    lease_reads: u32,
    /// The last refusal of a role write. Boxed: most leases have none.
    refused: Option<Box<Refusal>>,
    /// Since when no pod has held the lease.
    unheld_since: Option<Time>,
    /// The resource is deleted, and this process must not remove the labels before it decides again.
    clears_later: bool,
    /// The latest time of the next turn.
    deadline: Option<Time>,
    effects: VecDeque<Effect>,
}

/// The identity of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster of this process.
    pub cluster: Cluster,
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// The resource's UID.
    pub uid: String,
}

impl Reconciler {
    /// Creates a reconciler without facts.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            spec: SpecFacts::default(),
            block: None,
            link: None,
            restarts: Restarts::default(),
            terms: ObservedTerms::default(),
            contention: Contention::default(),
            handover: None,
            status: StatusState::default(),
            roles: RoleState::default(),
            start: StartState::default(),
            workload: WorkloadState::default(),
            confirmation: Confirmation::default(),
            lease_reads: 0,
            refused: None,
            unheld_since: None,
            clears_later: false,
            deadline: None,
            effects: VecDeque::new(),
        }
    }

    /// The identity of the lease.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The pod of the running term, or else of the ending one: name and UID. The facts must contain its state.
    pub fn holder(&self) -> Option<(String, String)> {
        let holder = keeper_link::holder_of(&self.link.as_ref()?.view)?;
        Some((holder.pod, holder.pod_uid))
    }

    /// The last view of the keeper machine.
    pub fn view(&self) -> Option<&View> {
        self.link.as_ref().map(|link| &link.view)
    }

    /// Whether the lease needs a turn after the next answer of the API server.
    pub const fn awaits_api_answer(&self) -> bool {
        self.contention.awaits_api_answer()
    }

    /// The permits that the lease uses or waits for.
    pub fn permit_uses(&self) -> PermitUses {
        PermitUses { attempt: self.contention.permit(), ..self.status.permit_uses() }
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Facts(facts) => self.turn(now, &facts),
            Event::View(view) => self.show_view(view),
            Event::KeeperEnded => self.keeper_ended(now),
            Event::StatusWritten(outcome) => self.status_written(now, outcome),
            Event::LeaseRead(read) => {
                self.lease_reads = self.lease_reads.saturating_sub(1);
                self.confirmation.lease_read(read.as_ref().ok().and_then(Option::as_deref));
                self.lease_read(read);
            }
            Event::HolderRead { answered } => self.contention.holder_read(now, answered),
            Event::StartableRead { answered } => self.start.pods_read(now, answered),
            Event::NodeRead { answered: _ } => self.contention.node_read(now),
            Event::RoleWritten { uid, outcome } => self.role_written(now, &uid, &outcome),
        }
    }

    /// The next effect to execute.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // Most leases wait most of the time: an empty buffer would take a kilobyte of each.
            self.effects = VecDeque::new();
        }
        effect
    }

    /// The time of the next turn if no event arrives before.
    pub const fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Whether nothing is left to do for a lease whose resource is deleted.
    pub fn is_finished(&self) -> bool {
        self.link.is_none() && !self.status.is_writing() && !self.roles.is_writing() && !self.clears_later
    }

    fn turn(&mut self, now: Time, facts: &Facts) {
        self.deadline = None;
        self.status.begin_turn();
        self.contention.begin_turn(facts.lease.is_some() && facts.authority == Authority::Lead);
        if facts.authority == Authority::Follow {
            return self.follow();
        }
        let Some(seen) = &facts.lease else { return self.finalize(now, facts) };
        // Whether a quorum is missing is known only after every quorum was read once.
        if !facts.quorum.read {
            return;
        }
        let lease = seen.clone();
        let inputs = self.resolve(now, &lease, facts);
        self.configure(facts.authority);
        if facts.authority == Authority::Renew {
            self.start.authority_lost();
            self.workload.authority_lost();
            self.confirmation = Confirmation::default();
            self.give_up_unpublished(now);
            return self.drop_unconfirmed(now);
        }
        if let Some(at) = self.restarts.waits_until(now) {
            // Nothing is known about a running term before it is adopted again.
            return self.wake_at(at);
        }
        self.sync_keeper(now, &lease, &inputs);
        self.decide(now, &lease, &inputs, facts);
        self.measure_gap(now, &lease, &inputs);
        // A view that is older than the last command must not be written to the status.
        if self.link.as_ref().is_none_or(|link| !link.is_behind()) {
            self.review_start(now, &lease, &inputs, facts);
            self.write_status(now, &lease, &inputs, facts);
            self.assign_roles(now, &lease, &inputs, facts);
        }
        self.update_permit(now);
    }

    /// Another replica leads: a running term is dropped, not ended, because the leader renews it.
    fn follow(&mut self) {
        self.clears_later = false;
        if self.link.take().is_some() {
            self.emit(Effect::Keeper(Command::Close));
        }
        self.terms = ObservedTerms::default();
        self.contention = Contention::default();
        self.handover = None;
        self.block = None;
        self.unheld_since = None;
        if self.status.is_writing() {
            self.emit(Effect::WithdrawStatus);
        }
        self.status.forget();
        for uid in self.roles.being_written() {
            self.emit(Effect::WithdrawRole { uid });
        }
        self.roles.forget();
        self.start = StartState::default();
        self.workload = WorkloadState::default();
        self.confirmation = Confirmation::default();
    }

    fn show_view(&mut self, view: View) {
        let Some(link) = &mut self.link else { return };
        let notice = renewal_notice(&link.view, &view);
        self.terms.record_view(&view);
        if view.ending.as_ref().is_some_and(|ending| ending.reason != EndReason::Decided) {
            self.status.last_end_was_proven = false;
        }
        link.show(view);
        if let Some(notice) = notice {
            self.emit(Effect::Report(notice));
        }
    }

    fn keeper_ended(&mut self, now: Time) {
        if let Some(link) = self.link.take() {
            if !link.retiring {
                self.restarts.panicked(now);
                let note = "The operator has a defect that affects this lease: the keeper of its term panicked and is started \
                            again. The operator's log has the message to report.";
                self.emit(Effect::Report(Notice {
                    reason: NoticeReason::InternalError,
                    note: note.into(),
                    on_pods: Vec::new(),
                }));
            }
            // The observations of this machine do not apply to the next one.
            self.terms = ObservedTerms::default();
        }
    }

    /// How long no pod has held the lease. A term of another cluster, a lease without a desired holder, and an unknown
    /// state do not count.
    fn measure_gap(&mut self, now: Time, lease: &RedisLease, inputs: &Inputs) {
        let standing = self.link.as_ref().map(|link| &link.view.standing);
        let held = matches!(standing, Some(Standing::Held(_) | Standing::Adopting(_) | Standing::Uncertain(_)));
        let reason = LeaseActive::HeldByPeerCluster.as_str();
        let active = lease.status.as_ref().and_then(|status| status.condition(ConditionType::Active));
        let elsewhere = active.is_some_and(|active| active.reason == reason);
        let yields = self.handover.as_ref().is_some_and(|handover| handover.obstacle().is_some());
        let idle = lease.spec.suspend || yields || self.is_between_runs(inputs) || self.contention.is_cooling_down(now);
        let no_gap = held || elsewhere || idle;
        self.unheld_since = if no_gap { None } else { Some(self.unheld_since.unwrap_or(now)) };
    }

    /// Whether the workload is a Job or a CronJob of which no pod is known to run, and nothing else prevents a term.
    fn is_between_runs(&self, inputs: &Inputs) -> bool {
        if inputs.obstacle.is_some() {
            return false;
        }
        let candidates = self.spec.valid.as_ref().map(|spec| &spec.candidates);
        let ends = matches!(candidates, Some(Candidates::Workload(workload)) if workload.kind.runs_to_completion());
        let has_ended =
            |electorate: &Electorate| electorate.workload().is_none() && electorate.pods().all(|pod| pod.finished);
        ends && inputs.electorate.as_deref().is_none_or(has_ended)
    }

    /// Schedules the next turn no later than `at`.
    fn wake_at(&mut self, at: Time) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    fn emit(&mut self, mut effect: Effect) {
        if let Effect::Report(notice) = &mut effect
            && self.spec.valid.as_ref().is_some_and(|spec| spec.cluster.is_some())
        {
            // The holder is no pod.
            notice.on_pods.clear();
        }
        if effect == Effect::Read(Read::Lease) {
            self.lease_reads += 1;
        }
        self.effects.push_back(effect);
    }

    fn command(&mut self, command: Command) {
        self.emit(Effect::Keeper(command));
    }
}

/// A lease that is shared between turns.
type Shared = Arc<RedisLease>;
