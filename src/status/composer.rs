//! The conditions of a lease.

use crate::api::conditions::{LeaseActive, LeaseCandidates, LeaseReady, QuorumHealth};
use crate::api::lease_status::Holder;
use crate::api::{ConditionStatus, ConditionType, RedisLeaseStatus};
use crate::status::conditions::Conditions;
use crate::status::ledger::Fate;
use crate::status::rival::Rival;
use crate::status::{Inputs, Notice, NoticeReason, TermEnd};

/// How many of the pods that may not be elected a sentence names.
const NAMED: usize = 3;

/// Sets one condition after the other: Active first, since Ready follows from it.
pub(super) struct Composer<'a> {
    pub inputs: &'a Inputs<'a>,
    /// The status with the terms already up to date.
    pub status: &'a RedisLeaseStatus,
    pub fate: Fate<'a>,
    pub rival: &'a Rival,
    pub conditions: Conditions<'a>,
}

impl Composer<'_> {
    pub fn active(&mut self) {
        match self.fate {
            Fate::Held(_) => self.conditions.set(LeaseActive::HeldHere, self.held()),
            Fate::Adopting if self.conditions.keep(ConditionType::Active) => {}
            Fate::Adopting | Fate::Uncertain => self.conditions.set(LeaseActive::Starting, self.unconfirmed()),
            // The first to give the term up knew why.
            Fate::Ending(_) if self.was_given_up() => {
                self.conditions.keep(ConditionType::Active);
            }
            Fate::Ending(end) => self.conditions.set(given_up(end), self.ending(end)),
            Fate::Over(_) | Fate::Vacant => self.nobody_here(),
        }
    }

    fn nobody_here(&mut self) {
        match self.rival {
            Rival::Peer(who) | Rival::Namesake(who) if !self.quorum_is_lost() => {
                self.conditions.set(LeaseActive::HeldByPeerCluster, who.clone());
            }
            Rival::AsBefore if self.conditions.was(LeaseActive::HeldByPeerCluster) && !self.quorum_is_lost() => {
                self.conditions.keep(ConditionType::Active);
            }
            _ => self.conditions.set(LeaseActive::Unheld, "No pod of this cluster holds the lease."),
        }
    }

    pub fn ready(&mut self) {
        if let Some(obstacle) = self.inputs.obstacle.filter(|obstacle| obstacle.reason != LeaseReady::QuorumUnavailable)
        {
            self.conditions.set(obstacle.reason, obstacle.message);
        } else if self.conditions.is(LeaseActive::HeldHere) {
            self.conditions.set(LeaseReady::HeldHere, self.held());
        } else if self.conditions.is(LeaseActive::Starting) {
            self.conditions.set(LeaseReady::Starting, self.unconfirmed());
        } else {
            self.not_held_here();
        }
    }

    fn not_held_here(&mut self) {
        let unlisted = self.inputs.electorate.is_none();
        let was = |reason| self.conditions.was(reason);
        let stays = (self.inputs.quorum.is_none() && was(LeaseReady::QuorumUnavailable))
            || (*self.rival == Rival::AsBefore
                && (was(LeaseReady::HeldByPeerCluster) || was(LeaseReady::KeyHeldByOtherLease)))
            || (unlisted && (was(LeaseReady::NoCandidate) || was(LeaseReady::Unheld)));
        if let Some(obstacle) = self.inputs.obstacle {
            self.conditions.set(obstacle.reason, obstacle.message);
        } else if self.quorum_is_lost() {
            self.conditions.set(LeaseReady::QuorumUnavailable, self.lost() + " No term can begin.");
        } else if stays {
            self.conditions.keep(ConditionType::Ready);
        } else {
            match self.rival {
                Rival::Peer(who) | Rival::Namesake(who) => {
                    self.conditions.set(LeaseReady::HeldByPeerCluster, who.clone());
                }
                Rival::OtherLease(who) => self.conditions.set(LeaseReady::KeyHeldByOtherLease, who.clone()),
                Rival::Nobody | Rival::AsBefore => self.unheld(),
            }
        }
    }

    fn unheld(&mut self) {
        let none = self.inputs.electorate.is_some_and(|electorate| electorate.eligible.is_empty());
        if none {
            self.conditions.set(LeaseReady::NoCandidate, self.no_candidate());
        } else if matches!(self.fate, Fate::Ending(_)) {
            let message = "Nobody may hold the lease until the keys of its last term have ended.";
            self.conditions.set(LeaseReady::Unheld, message);
        } else if self.inputs.view.is_none() || (self.inputs.electorate.is_none() && self.is_new()) {
            self.conditions.set(LeaseReady::Starting, "The operator has not found out yet who may hold the lease.");
        } else {
            self.conditions.set(LeaseReady::Unheld, "Nobody holds the lease; the next election is due.");
        }
    }

    pub fn candidates(&mut self) {
        let Some(electorate) = self.inputs.electorate else {
            self.conditions.keep(ConditionType::CandidatesAvailable);
            return;
        };
        let holder = self.status.holder.as_ref();
        let beside = |uid: &str| holder.is_none_or(|holder| holder.pod_uid != uid);
        if electorate.eligible.iter().any(|pod| beside(&pod.uid)) {
            self.conditions.set(LeaseCandidates::StandbyAvailable, "Another pod could take over at once.");
        } else if let (Some(holder), false) = (holder, electorate.eligible.is_empty()) {
            let message = format!("{} is the only pod that may be elected: nobody could take over.", holder.pod);
            self.conditions.set(LeaseCandidates::OnlyHolder, message);
        } else {
            self.conditions.set(LeaseCandidates::NoCandidate, self.no_candidate());
        }
    }

    pub fn quorum(&mut self) {
        let Some(quorum) = self.inputs.quorum else {
            self.conditions.keep(ConditionType::QuorumHealthy);
            return;
        };
        // An outage that is over before a term is lost costs no lease a write.
        let running = matches!(self.fate, Fate::Held(_) | Fate::Adopting);
        if self.quorum_is_lost() && !(running && self.conditions.previous(ConditionType::QuorumHealthy).is_some()) {
            self.conditions.set(QuorumHealth::Lost, self.lost());
        } else if self.quorum_is_lost()
            || (*self.rival == Rival::AsBefore && self.conditions.was(QuorumHealth::ClusterNameConflict))
        {
            self.conditions.keep(ConditionType::QuorumHealthy);
        } else if let Rival::Namesake(who) = self.rival {
            self.conditions.set(QuorumHealth::ClusterNameConflict, who.clone());
        } else if let Some(mismatch) = quorum.mismatch {
            self.conditions.set(QuorumHealth::ConfigMismatch, mismatch);
        } else {
            let message = format!("A majority of the nodes of quorum {} gives votes.", quorum.name);
            self.conditions.set(QuorumHealth::MajorityReachable, message);
        }
    }

    /// The events that come with a new reason.
    pub fn notices(&self) -> Vec<Notice> {
        let told = [
            (ConditionType::Ready, NoticeReason::NoCandidate, false),
            (ConditionType::Ready, NoticeReason::InvalidReference, true),
            (ConditionType::Ready, NoticeReason::InvalidSpec, true),
            (ConditionType::Ready, NoticeReason::KeyHeldByOtherLease, true),
            (ConditionType::QuorumHealthy, NoticeReason::ClusterNameConflict, true),
        ];
        let notice = |(type_, reason, each_message): (ConditionType, NoticeReason, bool)| {
            let news = self.conditions.news(type_).filter(|news| news.reason == reason.as_str())?;
            let is_news = news.another_reason || (each_message && news.another_message);
            is_news.then(|| Notice { reason, note: news.message.into(), on_pods: Vec::new() })
        };
        told.into_iter().filter_map(notice).collect()
    }

    /// Nothing was ever found out about this lease.
    fn is_new(&self) -> bool {
        self.conditions.previous(ConditionType::Ready).is_none() || self.conditions.was(LeaseReady::Starting)
    }

    fn was_given_up(&self) -> bool {
        let before = self.conditions.previous(ConditionType::Active);
        before.is_some_and(|active| active.status == ConditionStatus::False.as_str())
    }

    fn quorum_is_lost(&self) -> bool {
        self.inputs.quorum.is_some_and(|quorum| quorum.up < quorum.majority)
    }

    fn term(&self) -> (&str, i64) {
        let pod = self.status.holder.as_ref().map_or("", |Holder { pod, .. }| pod);
        (pod, self.status.fencing_token.unwrap_or_default())
    }

    fn held(&self) -> String {
        let (pod, token) = self.term();
        format!("{pod} holds the lease with token {token}.")
    }

    fn unconfirmed(&self) -> String {
        let (pod, token) = self.term();
        format!("The operator has not yet confirmed that {pod} still holds the lease with token {token}.")
    }

    fn ending(&self, end: TermEnd) -> String {
        let (pod, token) = self.term();
        let what = if end.is_loss() { "was lost" } else { "was ended" };
        format!("The term of {pod} with token {token} {what}: {}.", end.because())
    }

    fn lost(&self) -> String {
        let name = self.inputs.quorum.map_or("", |quorum| quorum.name);
        format!("Fewer than a majority of the nodes of quorum {name} give votes.")
    }

    fn no_candidate(&self) -> String {
        let ineligible = self.inputs.electorate.map(|electorate| electorate.ineligible.as_slice()).unwrap_or_default();
        if ineligible.is_empty() {
            return "No pod matches the candidates in the spec.".into();
        }
        let named: Vec<String> =
            ineligible.iter().take(NAMED).map(|(pod, reason)| format!("{} ({})", pod.name, reason.as_str())).collect();
        let more = if ineligible.len() > NAMED { " and others" } else { "" };
        format!("No pod may be elected: {}{more}.", named.join(", "))
    }
}

const fn given_up(end: TermEnd) -> LeaseActive {
    if end.is_loss() { LeaseActive::LeaseLost } else { LeaseActive::Stopping }
}
