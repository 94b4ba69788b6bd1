//! The conditions of a lease.

use crate::api::conditions::{LeaseActive, LeaseCandidates, LeaseReady, QuorumHealth};
use crate::api::lease_status::Holder;
use crate::api::{ConditionStatus, ConditionType, RedisLeaseStatus};
use crate::status::conditions::Conditions;
use crate::status::foreign_holder::ForeignHolder;
use crate::status::terms::{self, TermState};
use crate::status::{Inputs, Notice, NoticeReason, Obstacle};

/// What Ready says of a holder whose start the API server refuses.
pub const REFUSED_START: &str = "The API server refuses the write that starts it";

/// Maximum number of ineligible pods that a message names.
const NAMED: usize = 3;

/// Sets the conditions one after the other. Call `active` before `ready`, which depends on it.
pub(super) struct LeaseConditions<'a> {
    pub inputs: &'a Inputs<'a>,
    /// The new status; its terms are up to date.
    pub status: &'a RedisLeaseStatus,
    pub term: TermState<'a>,
    pub foreign_holder: &'a ForeignHolder,
    pub conditions: Conditions<'a>,
}

impl LeaseConditions<'_> {
    pub fn active(&mut self) {
        match self.term {
            TermState::Held(_) => self.conditions.set(LeaseActive::HeldHere, self.held()),
            TermState::Adopting if self.conditions.keep(ConditionType::Active) => {}
            TermState::Adopting | TermState::Unconfirmed => {
                self.conditions.set(LeaseActive::Starting, self.unconfirmed());
            }
            // The process that ended the term first knew the reason.
            TermState::Ending(_) if self.inputs.previous.says(ConditionType::Active, ConditionStatus::False) => {
                self.conditions.keep(ConditionType::Active);
            }
            TermState::Ending(end) => {
                let reason = if end.is_loss() { LeaseActive::LeaseLost } else { LeaseActive::Stopping };
                self.conditions.set(reason, terms::end_message(self.status, end, self.inputs) + " It must stop.");
            }
            TermState::Ended(_) | TermState::NoTerm => self.no_term_here(),
        }
    }

    fn no_term_here(&mut self) {
        match self.foreign_holder {
            ForeignHolder::PeerCluster(message) | ForeignHolder::SameClusterName(message) if !self.quorum_is_lost() => {
                self.conditions.set(LeaseActive::HeldByPeerCluster, message.clone());
            }
            ForeignHolder::Unchanged
                if self.conditions.had_reason(LeaseActive::HeldByPeerCluster) && !self.quorum_is_lost() =>
            {
                self.conditions.keep(ConditionType::Active);
            }
            _ => self.conditions.set(LeaseActive::Unheld, "No pod of this cluster holds the lease."),
        }
    }

    pub fn ready(&mut self) {
        if let Some(obstacle) = self.inputs.obstacle.filter(Obstacle::is_shown_while_held) {
            self.conditions.set(obstacle.reason, obstacle.message);
        } else if self.is_workload_unread() {
            self.conditions.keep(ConditionType::Ready);
        } else if self.conditions.has_reason(LeaseActive::HeldHere) {
            self.held_here();
        } else if self.conditions.has_reason(LeaseActive::Starting) {
            self.conditions.set(LeaseReady::Starting, self.unconfirmed());
        } else {
            self.not_held_here();
        }
    }

    /// Whether the last process that decided knew that the workload cannot be used, and this one does not know the workload yet.
    fn is_workload_unread(&self) -> bool {
        let mut was_unusable = [LeaseReady::NotPermitted, LeaseReady::InvalidReference].into_iter();
        self.inputs.electorate.is_none()
            && self.inputs.obstacle.is_none()
            && was_unusable.any(|reason| self.conditions.had_reason(reason))
    }

    fn held_here(&mut self) {
        let mut held = self.held();
        if let Some(unknown) = self.inputs.obstacle.filter(|obstacle| obstacle.reason == LeaseReady::Starting) {
            held = format!("{held} {}", unknown.message);
        }
        for more in [self.inputs.start, self.inputs.takeover_risk, self.inputs.stop_risk].into_iter().flatten() {
            held = format!("{held} {more}");
        }
        if let Some(why) = self.inputs.refused {
            let message = format!("{held} {REFUSED_START}: {why}.");
            return self.conditions.set(LeaseReady::Forbidden, message);
        }
        self.conditions.set(LeaseReady::HeldHere, held);
    }

    fn not_held_here(&mut self) {
        let pods_unknown = self.inputs.electorate.is_none();
        let had = |reason| self.conditions.had_reason(reason);
        let unchanged = (self.inputs.quorum.is_none() && had(LeaseReady::QuorumUnavailable))
            || (*self.foreign_holder == ForeignHolder::Unchanged
                && (had(LeaseReady::HeldByPeerCluster) || had(LeaseReady::KeyHeldByOtherLease)))
            || (pods_unknown && (had(LeaseReady::NoCandidate) || had(LeaseReady::Unheld)));
        if let Some(obstacle) = self.inputs.obstacle {
            self.conditions.set(obstacle.reason, obstacle.message);
        } else if let Some(runs_on) = self.inputs.runs_on {
            self.conditions.set(LeaseReady::Forbidden, format!("This cluster does not hold the lease. {runs_on}"));
        } else if self.quorum_is_lost() {
            let message = self.quorum_lost() + " No pod can acquire the lease.";
            self.conditions.set(LeaseReady::QuorumUnavailable, message);
        } else if unchanged {
            self.conditions.keep(ConditionType::Ready);
        } else {
            match self.foreign_holder {
                ForeignHolder::PeerCluster(message) | ForeignHolder::SameClusterName(message) => {
                    self.conditions.set(LeaseReady::HeldByPeerCluster, message.clone());
                }
                ForeignHolder::OtherLease(message) => {
                    self.conditions.set(LeaseReady::KeyHeldByOtherLease, message.clone());
                }
                ForeignHolder::Nobody | ForeignHolder::Unchanged => self.unheld(),
            }
        }
    }

    fn unheld(&mut self) {
        if self.inputs.electorate.is_some_and(|electorate| !electorate.has_eligible()) {
            self.conditions.set(LeaseReady::NoCandidate, self.no_candidate());
        } else if matches!(self.term, TermState::Ending(_)) {
            let message = "No pod can acquire the lease until the keys of its last term expire, \
                           or the last holder is proven to have stopped.";
            self.conditions.set(LeaseReady::Unheld, message);
        } else if self.inputs.view.is_none() || (self.inputs.electorate.is_none() && self.is_new()) {
            let message = "The operator does not know yet which pods can hold the lease.";
            self.conditions.set(LeaseReady::Starting, message);
        } else {
            self.conditions.set(LeaseReady::Unheld, "No pod holds the lease. The operator is electing one.");
        }
    }

    pub fn candidates(&mut self) {
        let Some(electorate) = self.inputs.electorate else {
            match self.inputs.no_candidates {
                Some(why) => self.conditions.set(LeaseCandidates::NoCandidate, why),
                None => drop(self.conditions.keep(ConditionType::CandidatesAvailable)),
            }
            return;
        };
        let holder = self.status.holder.as_ref();
        if electorate.lasting_workload().is_some() {
            let message = "The workload is the only candidate of this cluster.";
            self.conditions.set(LeaseCandidates::WorkloadAvailable, message);
            return;
        }
        let is_standby = |uid: &str| holder.is_none_or(|holder| holder.pod_uid != uid);
        if electorate.eligible.iter().any(|pod| is_standby(&pod.uid)) {
            let message = "At least one eligible pod is on standby.";
            self.conditions.set(LeaseCandidates::StandbyAvailable, message);
        } else if let (Some(holder), false) = (holder, self.eligible() == 0) {
            let message = format!("{} is the only eligible pod: no other pod can take over.", holder.pod);
            self.conditions.set(LeaseCandidates::OnlyHolder, message);
        } else {
            self.conditions.set(LeaseCandidates::NoCandidate, self.no_candidate());
        }
    }

    /// The number of eligible pods, the holder included.
    fn eligible(&self) -> i32 {
        self.status.candidates.as_ref().map_or(0, |candidates| candidates.eligible)
    }

    pub fn quorum(&mut self) {
        let term_runs = matches!(self.term, TermState::Held(_) | TermState::Adopting);
        let Some(quorum) = self.inputs.quorum else {
            if self.inputs.is_quorum_unused && !term_runs {
                let message = "The operator is not connected to the nodes of the quorum. The condition Ready says why.";
                self.conditions.set(QuorumHealth::NotConnected, message);
            } else {
                self.conditions.keep(ConditionType::QuorumHealthy);
            }
            return;
        };
        // An outage that ends before the term is lost must not cost each lease two writes.
        if self.quorum_is_lost() && !(term_runs && self.conditions.previous(ConditionType::QuorumHealthy).is_some()) {
            self.conditions.set(QuorumHealth::Lost, self.quorum_lost());
        } else if self.quorum_is_lost()
            || (*self.foreign_holder == ForeignHolder::Unchanged
                && self.conditions.had_reason(QuorumHealth::ClusterNameConflict))
        {
            self.conditions.keep(ConditionType::QuorumHealthy);
        } else if let ForeignHolder::SameClusterName(message) = self.foreign_holder {
            self.conditions.set(QuorumHealth::ClusterNameConflict, message.clone());
        } else if let Some(mismatch) = quorum.mismatch {
            self.conditions.set(QuorumHealth::ConfigMismatch, mismatch);
        } else {
            let message = format!("A majority of the nodes of RedisQuorum {} votes.", quorum.name);
            self.conditions.set(QuorumHealth::MajorityReachable, message);
        }
    }

    /// The events for conditions that have changed. While there is no candidate, another message is no event.
    pub fn notices(&self) -> Vec<Notice> {
        let reported = [
            (ConditionType::Ready, NoticeReason::NoCandidate),
            (ConditionType::Ready, NoticeReason::InvalidReference),
            (ConditionType::Ready, NoticeReason::InvalidSpec),
            (ConditionType::Ready, NoticeReason::ActivationNotAllowed),
            (ConditionType::Ready, NoticeReason::NotPermitted),
            (ConditionType::Ready, NoticeReason::KeyHeldByOtherLease),
            (ConditionType::QuorumHealthy, NoticeReason::ClusterNameConflict),
        ];
        let had_none = self.conditions.had_reason(LeaseReady::NoCandidate);
        let notices = reported.into_iter().filter_map(|(type_, reason)| self.conditions.notice(type_, reason));
        notices.filter(|notice| notice.reason != NoticeReason::NoCandidate || !had_none).collect()
    }

    /// Whether the operator has never known the state of this lease.
    fn is_new(&self) -> bool {
        self.conditions.previous(ConditionType::Ready).is_none() || self.conditions.had_reason(LeaseReady::Starting)
    }

    fn quorum_is_lost(&self) -> bool {
        self.inputs.quorum.is_some_and(|quorum| quorum.up < quorum.majority)
    }

    fn pod_and_token(&self) -> (&str, i64) {
        let pod = self.status.holder.as_ref().map_or("", |Holder { pod, .. }| pod);
        // Somebody may have written a greater one into the status.
        let running = if let TermState::Held(id) = self.term { Some(terms::token_of(id)) } else { None };
        (pod, running.unwrap_or_else(|| self.status.given_token()))
    }

    fn held(&self) -> String {
        let (pod, token) = self.pod_and_token();
        format!("{pod} holds the lease with fencing token {token}.")
    }

    fn unconfirmed(&self) -> String {
        let (pod, token) = self.pod_and_token();
        format!(
            "The operator has not confirmed yet, on a majority of the Redis nodes, \
             that {pod} still holds the lease with fencing token {token}."
        )
    }

    fn quorum_lost(&self) -> String {
        let name = self.inputs.quorum.map_or("", |quorum| quorum.name);
        format!("Fewer than a majority of the nodes of RedisQuorum {name} vote.")
    }

    fn no_candidate(&self) -> String {
        if self.inputs.electorate.is_some_and(|electorate| electorate.workload().is_some()) {
            return "The workload is being deleted.".into();
        }
        let ineligible = self.inputs.electorate.map(|electorate| electorate.ineligible.as_slice()).unwrap_or_default();
        if ineligible.is_empty() {
            return "No pod matches spec.candidates.".into();
        }
        let named: Vec<String> =
            ineligible.iter().take(NAMED).map(|(pod, reason)| format!("{} ({})", pod.name, reason.as_str())).collect();
        let more = if ineligible.len() > NAMED { " and others" } else { "" };
        format!("No pod is eligible: {}{more}.", named.join(", "))
    }
}
