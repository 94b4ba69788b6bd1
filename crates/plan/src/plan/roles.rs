//! The label `active` or `standby` and the token on each candidate pod.
//!
//! After a new term, every other pod first gets `standby` *and the new token*. This always changes its resource version,
//! so a late write of a process that was paused during the change conflicts. Only then does the holder get `active`.

use std::sync::Arc;

use redislease_core::lease::Standing;
use redislease_core::op::{Holder, Token};
use redislease_core::time::Time;

use super::activation::{Activator, may_write_candidates};
use super::confirmation::Confirmation;
use super::context::Context;
use super::desired_role::{DesiredRole, is_written, role_of};
use super::entitlement::Entitlement;
use super::inputs::Turn;
use super::keeper::Keeper;
use super::keeper_link::{KeeperLink, holder_of};
use super::output::Effects;
use super::publish::Publisher;
use super::recorded::{Recorded, latest_given_token};
use super::refusals::Refusals;
use super::role_writer::RoleWriter;
use super::start::StartState;
use super::stop_test::{StopTest, StopTests};
use super::template_label;
use super::workload::{Assignment, Missing, WorkloadState, heir, missing_consent, unmark_strays};
use super::{CandidateFacts, Facts, PodChange, PodKnowledge, Priority, RoleOutcome};
use crate::api::RedisLease;
use crate::api::conditions::LeaseReady;
use crate::api::names::{self, PodRole};
use crate::election::{HolderName, PodFacts};

/// Why the operator cannot stop a workload.
const BEING_DELETED: &str = "it is being deleted, and its controller ignores changes";
/// Why the operator does not know what runs.
const UNFIT: &str = "the spec is invalid, or does not fit the RedisQuorum, so that nobody knows which workload holds the term. Correct it";
/// Why the operator does not stop a StatefulSet.
const KEEPS_VOLUMES: &str = "Kubernetes would delete its volumes, because its field \
                             spec.persistentVolumeClaimRetentionPolicy.whenScaled is Delete";

/// How many pods of one lease are deleted at once: refused deletions leave room for other writes.
const DELETIONS: usize = 4;

/// The roles of the candidates, and what decides when one of them may start.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles {
    writer: RoleWriter,
    /// The entitlement by which the labels are written.
    entitlement: Option<Entitlement>,
    refusals: Refusals,
    start: StartState,
    confirmation: Confirmation,
    /// The workload that is the candidate, with granularity Cluster.
    workload: WorkloadState,
    stop_tests: StopTests,
}

impl Roles {
    pub fn new(lease: &str) -> Self {
        Self { writer: RoleWriter::new(lease), ..Self::default() }
    }

    pub const fn is_writing(&self) -> bool {
        self.writer.is_writing()
    }

    /// Why the operator must not write to the workload.
    pub fn forbidden(&mut self, now: Time, facts: &Facts, out: &mut Effects) -> Option<String> {
        self.refusals.forbidden(now, facts.workload().map(|workload| workload.uid.as_str()), out)
    }

    /// Why the API server has not stored what starts the holder with this UID, while it is not active.
    pub fn refused_grant(&self, facts: &Facts, holder: &str) -> Option<&str> {
        if let Some(workload) = facts.workload() {
            let why = self.refusals.of_grant(&workload.uid, true)?;
            let label = role_of(workload.object(), &names::role_label(self.writer.lease()));
            let is_active = label == Some(PodRole::Active.as_str()) && !workload.run.is_stopped();
            return (!is_active).then_some(why);
        }
        let why = self.refusals.of_grant(holder, false)?;
        let has_gate = |pod: &Arc<PodFacts>| pod.uid == holder && !pod.gates.is_empty();
        facts.pods().any(has_gate).then_some(why)
    }

    /// What runs on, and why the API server refuses to stop it.
    pub fn refused_stop(&self, facts: &Facts) -> Option<(String, String)> {
        if let Some(workload) = facts.workload() {
            let why = self.refusals.of_stop(&workload.uid).filter(|_| !workload.run.is_stopped())?;
            return Some(("The workload".to_owned(), why.to_owned()));
        }
        let refused = |pod: &Arc<PodFacts>| {
            let why = self.refusals.of_deletion(&pod.uid)?;
            // Otherwise nothing is to delete it any more.
            let is_ours = Activator::of(self.writer.lease(), facts).has_started(pod);
            is_ours.then(|| (format!("The pod {}", pod.name), why.to_owned()))
        };
        // While the candidates are unknown, so is what must stop.
        facts.electorate().and_then(|_| facts.pods().find_map(refused))
    }

    /// `ends`: a request is to end the term. Returns the test of whether its holder, which may run, can be stopped.
    pub fn stop_test(&mut self, facts: &Facts, ends: bool) -> Option<&StopTest> {
        let tests = &mut self.stop_tests;
        let is_workload = facts.spec.valid.as_ref().is_some_and(|spec| spec.cluster.is_some());
        let activator = Activator::of(self.writer.lease(), facts);
        match (&facts.candidates, &facts.holder) {
            _ if !ends => tests.follow(None),
            (_, PodKnowledge::Here(holder)) if activator.starts_pods() => {
                // While this cluster holds the lease, no other one starts a pod beside the earlier one, which is deleted first.
                let earlier = activator.earlier(facts, &holder.facts.uid);
                match earlier.map(|pod| self.refusals.of_deletion(&pod.uid)) {
                    Some(Some(why)) => tests.is_impossible(why),
                    Some(None) => tests.follow(Some("")),
                    None => tests.follow(activator.has_started(&holder.facts).then_some(&holder.facts.uid)),
                }
            }
            (_, PodKnowledge::Unseen) if activator.starts_pods() => tests.follow(Some("")),
            // Without the flag, the operator writes nothing to it. If it names another lease, the term ends at once.
            _ if !is_workload || !may_write_candidates(facts) => tests.follow(None),
            _ if matches!(missing_consent(facts), Some(Missing::Name(_))) => tests.follow(None),
            (CandidateFacts::Known(electorate), _) => {
                let running = electorate.workload().filter(|workload| !workload.run.is_stopped());
                match running {
                    Some(workload) if workload.deletes_volumes => tests.is_impossible(KEEPS_VOLUMES),
                    Some(workload) if workload.deleting => tests.is_impossible(BEING_DELETED),
                    running => tests.follow(running.map(|workload| &*workload.uid)),
                }
            }
            // Since its start, this process has read no spec that fits the quorum: the term may be that of another workload.
            (CandidateFacts::Unknown, _) if facts.spec.problem.is_some() => tests.is_impossible(UNFIT),
            (CandidateFacts::Unknown, _) => tests.follow(Some("")),
            (CandidateFacts::Unusable(LeaseReady::InvalidReference, _), _)
                if facts.lease.as_deref().is_none_or(|lease| names::created_for(&lease.metadata).is_none()) =>
            {
                tests.follow(None);
            }
            // It may run. Without a read, no write can name its version.
            (CandidateFacts::Unusable(_, why), _) => tests.is_impossible(why),
        }
        tests.result()
    }

    pub fn start_waits(&self) -> Option<&str> {
        self.start.waits()
    }

    pub fn written(&mut self, now: Time, uid: &str, outcome: &RoleOutcome, out: &mut Effects) {
        let Some(written) = self.writer.written(now, uid, outcome) else { return };
        if written.desired.dry_run {
            self.stop_tests.answered(uid, outcome);
        } else if written.kind.is_some() {
            self.workload.written(uid, &written.desired, outcome);
        }
        self.refusals.answered(now, &written, outcome, out);
    }

    /// Takes the answer to a read of the lease; `None` if there was none.
    pub fn lease_read(&mut self, lease: Option<&RedisLease>) {
        self.confirmation.lease_read(lease);
        self.writer.lease_read(lease.map(latest_given_token));
    }

    pub fn pods_read(&mut self, now: Time, answered: bool) {
        self.start.pods_read(now, answered);
    }

    /// This process does not decide any more.
    pub fn authority_lost(&mut self) {
        self.start.authority_lost();
        self.writer.forget_fences();
        self.workload.authority_lost();
        self.stop_tests = StopTests::default();
        self.confirmation = Confirmation::default();
    }

    /// Another replica leads. Pending writes are still answered.
    pub fn forget(&mut self, out: &mut Effects) {
        self.writer.forget(out);
        self.entitlement = None;
        self.start.forget();
        self.workload = WorkloadState::default();
        self.confirmation = Confirmation::default();
        self.stop_tests = StopTests::default();
    }

    pub fn review_start(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        let activator = Activator::of(&turn.identity.name, turn.facts);
        if activator.starts_pods() {
            return self.start.review(turn, &activator, &self.refusals, out);
        }
        self.start.forget();
        self.writer.forget_fences();
    }

    /// Removes label and token from every pod: the resource is deleted.
    pub fn clear(&mut self, now: Time, facts: &Facts, out: &mut Effects) {
        self.writer.withdraw_roles(out);
        if facts.has_successor {
            return self.writer.withdraw_all(out);
        }
        unmark_strays(now, facts, &mut self.writer, out);
        self.writer.clear(now, &facts.strays, Priority::Active, out);
    }

    /// Reconciles the labels of all pods with the entitlement.
    pub fn assign(&mut self, context: &Context<'_>, status: &Publisher, out: &mut Effects) {
        let Context { turn, keeper, .. } = context;
        let &Turn { now, lease, facts, .. } = *turn;
        let undecided = keeper.label_grace_deadline().filter(|deadline| now < *deadline);
        if let Some(deadline) = undecided {
            out.wake_at(deadline);
        }
        let entitlement = entitlement(turn, keeper, undecided.is_some() || keeper.is_newly_unconfirmed());
        self.workload.follow(entitlement.as_ref(), keeper.view(), Recorded::of(lease), heir(turn));
        if self.entitlement != entitlement {
            self.entitlement.clone_from(&entitlement);
            self.writer.entitlement_changed();
        }
        let Some(entitlement) = entitlement else { return };
        if !may_write_candidates(facts) {
            return;
        }
        // While the candidates are unknown, the candidate of the term may be among the strays.
        if !matches!(facts.candidates, CandidateFacts::Unknown) {
            unmark_strays(now, facts, &mut self.writer, out);
        }
        if turn.spec.is_some_and(|spec| spec.cluster.is_some()) {
            let (entitlement, state) = (&entitlement, &mut self.workload);
            let (writer, confirmation, is_status_known) = (&mut self.writer, &mut self.confirmation, status.is_known());
            let stop_tests = &self.stop_tests;
            return Assignment { context, is_status_known, entitlement, state, stop_tests, writer, confirmation, out }
                .run();
        }
        self.workload.leave(Recorded::of(lease));
        let activator = Activator::of(&turn.identity.name, facts);
        if !self.writer.is_in_order(&entitlement, turn) {
            self.write_pods(context, &entitlement, &activator, status.is_known(), out);
        }
        // An unconfirmed term may end at any time. A label comes first: one write of a pod at a time.
        if let PodKnowledge::Here(holder) = &facts.holder
            && self.stop_tests.is_due(&holder.facts.uid)
            && matches!(keeper.standing(), Some(Standing::Held(_)))
            && !self.writer.is_pending(&holder.facts.uid)
        {
            let (pod, tested) = (holder.facts.object(), DesiredRole::DELETED.tested());
            self.writer.write(now, pod, tested, Priority::Active, None, out);
        }
        if !activator.starts_pods() || turn.is_deleting() {
            self.writer.withdraw_deletions(out);
        } else {
            self.delete_lost_pods(context, &entitlement, &activator, status.is_known() && !status.is_writing(), out);
        }
    }

    fn write_pods(
        &mut self,
        context: &Context<'_>,
        entitlement: &Entitlement,
        activator: &Activator,
        is_status_known: bool,
        out: &mut Effects,
    ) {
        let turn = context.turn;
        let &Turn { now, facts, ref inputs, .. } = turn;
        let writer = &mut self.writer;
        let mut desired_roles = desired_roles(turn, entitlement, activator);
        writer.fence(activator, &mut desired_roles);
        desired_roles.retain(|(pod, desired)| writer.needed(pod.object(), desired) && !writer.leaves(pod, desired));
        let (grants, others): (Vec<_>, Vec<_>) =
            desired_roles.into_iter().partition(|(_, desired)| desired.role == Some(PodRole::Active));
        writer.forget_old_objects(facts);
        if let Some(electorate) = facts.electorate()
            && grants.is_empty()
            && others.is_empty()
            && !writer.is_writing()
        {
            return writer.set_in_order(electorate, entitlement);
        }
        // Each of these pods first gets the new token, so a late write of an earlier term conflicts and cannot start it. A pod
        // whose write the API server refuses does not delay the start of another pod.
        let unfenced = others.iter().any(|(pod, _)| !pod.gates.is_empty() && !writer.is_refused(&pod.uid));
        let (first, then): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(pod, _)| writer.may_be_active(pod.object()));
        let elsewhere = !first.is_empty();
        // During an attempt the other pods wait: if it succeeds, one write sets role and token.
        let then = if context.is_contending() { Vec::new() } else { then };
        for (pod, desired) in first.into_iter().chain(then) {
            let is_left = inputs.replaces_pods && template_label::changes(&pod, &turn.identity.name, &desired);
            if is_left || writer.must_verify(entitlement, pod.object(), out) {
                continue;
            }
            let priority = activator.standby_priority(&pod, writer.may_be_active(pod.object()));
            writer.write(now, pod.object(), desired, priority, None, out);
        }
        for (pod, desired) in grants {
            // A finished pod is not fenced for later terms, see `RoleWriter::leaves`. So no write of `active` may name its version.
            if pod.finished || self.writer.must_verify(entitlement, pod.object(), out) {
                continue;
            }
            // The answers to the writes above cause the next turn.
            let starts = desired.change == PodChange::Start;
            let is_held_up = starts && (unfenced || self.start.waits().is_some());
            // A pod whose label is left alone may be active, and gets no fence.
            let waits = elsewhere || is_held_up || inputs.replaces_pods;
            // Pods that were not listed yet may carry `active` too.
            let may_grant = facts.pods_listed && is_status_known && self.writer.grants_in_flight(entitlement);
            if !waits && may_grant && context.may_grant(entitlement) && (!starts || self.may_start(context, &pod, out))
            {
                self.writer.write(now, pod.object(), desired, Priority::Active, facts.stop_at, out);
            }
        }
    }

    fn may_start(&mut self, context: &Context<'_>, pod: &PodFacts, out: &mut Effects) -> bool {
        let now = context.turn.now;
        self.start.are_pods_known(now, out)
            && self.confirmation.is_confirmed(now, pod.object(), context.keeper.held(), out)
    }

    /// Deletes each pod that was started for an earlier term. If the term was lost, the status must say that it has ended: a replica
    /// that continues it does not let the status say this. If this process has ended the term, its keys expire, so the deletion follows
    /// the first answer to the label, and needs neither the label nor the status: the API server may refuse them.
    fn delete_lost_pods(
        &mut self,
        context: &Context<'_>,
        entitlement: &Entitlement,
        activator: &Activator,
        is_status_settled: bool,
        out: &mut Effects,
    ) {
        let &Turn { now, lease, facts, .. } = context.turn;
        let writer = &mut self.writer;
        let asked_to_end = context.keeper.link().and_then(KeeperLink::asked_to_end);
        let is_ended = |attempt| asked_to_end.is_some_and(|term| term.attempt == attempt);
        let recorded = Recorded::of(lease).filter(|recorded| recorded.active && !is_ended(recorded.attempt));
        let recorded = recorded.map(|recorded| recorded.pod_uid());
        let ended = asked_to_end.and_then(|term| pod_uid(&term.holder));
        let running = holder_of_running_term(context.keeper);
        let may_hold = |uid: &str| recorded == Some(uid) || running.as_deref() == Some(uid);
        // A lease that was created again has had no term, and perhaps no quorum that could elect another pod in its place.
        let is_lost = entitlement.latest > Token(0) || context.turn.can_elect() || context.held_elsewhere().is_some();
        for pod in facts.pods() {
            if !activator.has_started(pod) || may_hold(&pod.uid) {
                continue;
            }
            let is_due = if ended.as_ref() == Some(&pod.uid) {
                !writer.must_verify(entitlement, pod.object(), out)
            } else {
                // Another pod gets `active` only after this one has lost it, or was deleted because its label is refused.
                let has_lost_label = !writer.may_be_active(pod.object()) || writer.is_refused(&pod.uid);
                is_status_settled && is_lost && has_lost_label && writer.is_fenced(pod, entitlement, out)
            };
            if is_due && !writer.is_pending(&pod.uid) && writer.deletions() < DELETIONS {
                // A stop is as urgent as the status that shows the end: another cluster may start one stop budget later.
                writer.write(now, pod.object(), DesiredRole::DELETED, Priority::End, None, out);
            }
        }
    }
}

/// The current entitlement; `None` while it is unknown and the labels stay unchanged.
fn entitlement(turn: &Turn<'_>, keeper: &Keeper, undecided: bool) -> Option<Entitlement> {
    let (lease, view) = (turn.lease, keeper.view());
    let recorded = Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.attempt);
    let known = |attempt| keeper.link().is_some_and(|link| link.knows(attempt));
    let latest = latest_given_token(lease);
    let mut entitlement = Entitlement::of(view, recorded, recorded.is_some_and(known), undecided, latest)?;
    if let (Some((uid, _)), Some(heir)) = (&mut entitlement.holder, heir(turn))
        && *uid != heir.uid
        && view.and_then(holder_of).is_some_and(|named| named.pod == heir.name)
    {
        uid.clone_from(&heir.uid);
    }
    Some(entitlement)
}

fn holder_of_running_term(keeper: &Keeper) -> Option<String> {
    let holder = match keeper.standing()? {
        Standing::Acquiring(_, holder) => holder,
        standing => &standing.term()?.id.holder,
    };
    pod_uid(holder)
}

fn pod_uid(holder: &Holder) -> Option<String> {
    holder.0.parse().ok().map(|name: HolderName| name.pod_uid)
}

/// The desired role of each pod. Finished pods are written only if they carry a role or token.
fn desired_roles(
    turn: &Turn<'_>,
    entitlement: &Entitlement,
    activator: &Activator,
) -> Vec<(Arc<PodFacts>, DesiredRole)> {
    let Turn { identity, facts, .. } = turn;
    let label = names::role_label(&identity.name);
    // A started pod is deleted when it carries the token of the latest term, also after that term has ended.
    let held = entitlement.holder_token();
    let token = if activator.starts_pods() { entitlement.newest_token() } else { held };
    let holder = entitlement.holder.as_ref().map(|(uid, _)| uid);
    // A label without a token would be one of the template. Before the first term, the token is 0.
    let latest = entitlement.newest_token().unwrap_or(Token(0));
    let first = |pod: &PodFacts| (!is_written(pod.object(), &identity.name)).then_some(latest);
    let desired = |pod: &PodFacts, role| activator.desired(pod, role, token.or_else(|| first(pod)));
    let mut desired_roles = Vec::new();
    let mut add = |pod: &Arc<PodFacts>, candidate: bool| {
        // A pod that was started keeps its label until it has stopped: without it, the pod would not be found again, and the
        // next one would not wait for it.
        let desired = if Some(&pod.uid) == holder {
            desired(pod, PodRole::Active)
        } else if pod.finished && role_of(pod.object(), &label).is_none() {
            return;
        } else if (candidate || activator.may_run(pod)) && !turn.is_deleting() {
            desired(pod, PodRole::Standby)
        } else {
            DesiredRole::NONE
        };
        desired_roles.push((pod.clone(), desired));
    };
    // A pod that was started is moved also if its token is missing: no pod starts before it has stopped.
    let is_ours = |pod: &&Arc<PodFacts>| is_written(pod.object(), &identity.name) || activator.may_run(pod);
    let strays = facts.strays.iter().filter(is_ours);
    if let Some(electorate) = facts.electorate() {
        electorate.pods().for_each(|pod| add(pod, true));
        strays.for_each(|pod| add(pod, false));
    } else {
        // While the candidates are unknown, every pod with a role counts as a candidate.
        strays.for_each(|pod| add(pod, true));
    }
    if let PodKnowledge::Here(sighting) = &facts.holder
        && Some(&sighting.facts.uid) == holder
        && !desired_roles.iter().any(|(pod, _)| pod.uid == sighting.facts.uid)
    {
        desired_roles.push((sighting.facts.clone(), desired(&sighting.facts, PodRole::Active)));
    }
    desired_roles
}
