//! What this process knows about the workload, and whether a withdrawal is due.

use redislease_core::lease::{Standing, View};
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;

use crate::api::names::PodRole;
use crate::election::WorkloadFacts;
use crate::plan::desired_role::DesiredRole;
use crate::plan::entitlement::Entitlement;
use crate::plan::event::RoleOutcome;
use crate::plan::recorded::Recorded;

/// The state about the workload of one lease, from a gain of authority to its loss.
#[derive(Clone, Debug, Default)]
pub struct WorkloadState {
    /// The UID of the workload, and since when it is known.
    known: Option<(String, Time)>,
    /// The greatest version that was seen: a lower one follows a restore of the API server.
    version: Option<u64>,
    /// Whether this process has seen that the lease has written this workload. Others may remove the mark that says so.
    is_ours: bool,
    /// The UID of the workload that the status named since this process may decide: a term of it was published, whatever its mark says.
    named: Option<Box<str>>,
    /// The term in the status when the lease last ceased to use the workload, which runs on: it names it no more.
    left: Option<Attempt>,
    belief: Belief,
    /// Whether a withdrawal was stored that was sent after the last reason for one.
    is_withdrawn: bool,
    /// The withdrawal under way: whether it was sent after the last reason.
    sent: Option<IsLatest>,
}

/// Whether there was no other reason for a withdrawal since one was sent.
type IsLatest = bool;

/// What this process believes about the term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Belief {
    /// Nothing yet, or the term is unconfirmed.
    #[default]
    Unknown,
    /// The workload holds the term with this token.
    Held(Token),
    /// No term is held. The latest one had this token, and perhaps the status still names a term.
    Ended { latest: Token, is_named: bool },
}

impl WorkloadState {
    /// Takes what this process believes about the term. Each end of a belief is a reason for a withdrawal. So is the end of the term
    /// in the status: until then, another process that decides by accident may read the term there, and start the workload in the
    /// version that the first withdrawal has made.
    pub fn follow(
        &mut self,
        entitlement: Option<&Entitlement>,
        view: Option<&View>,
        recorded: Option<Recorded<'_>>,
        heir: Option<&WorkloadFacts>,
    ) {
        let is_named = recorded.is_some_and(|recorded| recorded.active);
        let belief = match (entitlement, view.map(|view| &view.standing)) {
            // The latest token is that of the new term, which starts the workload soon if the status names it already.
            (Some(_), Some(Standing::Acquiring(..) | Standing::Publishing(_))) => return,
            (None, _) | (Some(_), Some(Standing::Adopting(_) | Standing::Uncertain(_))) => Belief::Unknown,
            (Some(Entitlement { holder: Some((_, token)), .. }), _) => Belief::Held(*token),
            (Some(Entitlement { holder: None, latest }), _) => Belief::Ended { latest: *latest, is_named },
        };
        // Also a term that has ended: the process that has ended it may not have stopped the workload.
        if let Some(recorded) = recorded.filter(|recorded| self.left != Some(recorded.attempt)) {
            let heir = heir.filter(|heir| heir.name == recorded.pod());
            let uid = heir.map_or(recorded.pod_uid(), |heir| &heir.uid);
            if self.named.as_deref() != Some(uid) {
                self.named = Some(uid.into());
            }
        }
        let begins = matches!(belief, Belief::Held(_)) && !matches!(self.belief, Belief::Held(_));
        if belief != self.belief && !begins {
            self.must_be_withdrawn();
        }
        self.belief = belief;
    }

    /// The lease does not use the workload, which runs on. `recorded` is the term in the status.
    pub fn leave(&mut self, recorded: Option<Recorded<'_>>) {
        *self = Self { left: recorded.map(|recorded| recorded.attempt), ..Self::default() };
    }

    /// There is a reason for another withdrawal.
    fn must_be_withdrawn(&mut self) {
        self.is_withdrawn = false;
        self.sent = self.sent.map(|_| false);
    }

    /// Takes the workload as it is, whether its mark says that the lease has written it, and the term in the status. Returns whether
    /// it was not known before.
    pub fn see(
        &mut self,
        now: Time,
        workload: &WorkloadFacts,
        is_marked: bool,
        recorded: Option<Recorded<'_>>,
    ) -> bool {
        if self.named.as_deref().is_some_and(|named| named != workload.uid) {
            // That one runs on, also if the lease uses it again.
            (self.named, self.left) = (None, recorded.map(|recorded| recorded.attempt));
        }
        let version = workload.resource_version.as_ref().and_then(|version| version.parse().ok());
        let is_known = self.known.as_ref().is_some_and(|(uid, _)| *uid == workload.uid);
        if !is_known || version < self.version {
            self.must_be_withdrawn();
        }
        self.version = version;
        if !is_known {
            self.known = Some((workload.uid.clone(), now));
            self.is_ours = false;
        }
        self.is_ours |= is_marked;
        !is_known
    }

    /// Whether this process has seen that the lease has written this workload, or that the status named it.
    pub fn was_ours(&self, workload: &WorkloadFacts) -> bool {
        let was_marked = self.is_ours && self.known.as_ref().is_some_and(|(uid, _)| *uid == workload.uid);
        was_marked || self.named.as_deref() == Some(&*workload.uid)
    }

    /// This process does not decide any more: another one may start the workload, or take its marks away.
    pub fn authority_lost(&mut self) {
        (self.is_ours, self.named) = (false, None);
        self.must_be_withdrawn();
    }

    /// Whether the workload was known before this time.
    pub fn is_known_before(&self, time: Time) -> bool {
        self.known.as_ref().is_some_and(|(_, since)| *since <= time)
    }

    /// Whether the workload must be withdrawn before it may be started.
    pub fn is_due(&self) -> bool {
        !self.is_withdrawn
    }

    /// A withdrawal is sent.
    pub const fn withdrawal_sent(&mut self) {
        self.sent = Some(true);
    }

    /// Takes the answer to a write to the workload with this UID.
    pub fn written(&mut self, uid: &str, desired: &DesiredRole, outcome: &RoleOutcome) {
        if self.known.as_ref().is_none_or(|(known, _)| known != uid) {
            // It is a copy that carries the marks of this one.
            return;
        }
        let is_latest = self.sent.take() == Some(true);
        self.is_withdrawn |=
            is_latest && desired.role == Some(PodRole::Standby) && *outcome == RoleOutcome::Written(None);
    }
}
