//! What this process knows about the workload, and whether a withdrawal is due.

use redislease_core::lease::{Standing, View};
use redislease_core::op::Token;
use redislease_core::time::Time;

use crate::api::names::PodRole;
use crate::election::WorkloadFacts;
use crate::plan::desired_roles::DesiredRole;
use crate::plan::event::RoleOutcome;
use crate::plan::roles::Entitlement;

/// The state about the workload of one lease, from a gain of authority to its loss.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct WorkloadState {
    /// The UID of the workload, and since when it is known.
    known: Option<(String, Time)>,
    /// The greatest version that was seen: a lower one follows a restore of the API server.
    version: Option<u64>,
    belief: Belief,
    /// How many reasons for a withdrawal there were.
    reasons: u32,
    /// How many of these reasons a stored withdrawal covers. It was sent after the last of them.
    covered: Option<u32>,
    /// The reasons that the withdrawal under way covers.
    sent: Option<u32>,
}

/// What this process believes about the term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Belief {
    /// Nothing yet, or the term is unconfirmed.
    #[default]
    Unknown,
    /// The workload holds the term with this token.
    Held(Token),
    /// No term is held. The latest one had this token.
    Ended(Token),
}

impl WorkloadState {
    /// Takes what this process believes about the term. Each end of a belief is a reason for a withdrawal.
    pub fn follow(&mut self, entitlement: Option<&Entitlement>, view: Option<&View>) {
        let belief = match (entitlement, view.map(|view| &view.standing)) {
            // The latest token is that of the new term.
            (Some(_), Some(Standing::Acquiring(..) | Standing::Publishing(_))) => return,
            (None, _) | (Some(_), Some(Standing::Adopting(_) | Standing::Uncertain(_))) => Belief::Unknown,
            (Some(Entitlement { holder: Some((_, token)), .. }), _) => Belief::Held(*token),
            (Some(Entitlement { holder: None, latest }), _) => Belief::Ended(*latest),
        };
        let begins = matches!(belief, Belief::Held(_)) && !matches!(self.belief, Belief::Held(_));
        if belief != self.belief && !begins {
            self.reasons += 1;
        }
        self.belief = belief;
    }

    /// Takes the workload as it is. Returns whether it was not known before.
    pub fn see(&mut self, now: Time, workload: &WorkloadFacts) -> bool {
        let version = workload.resource_version.as_ref().and_then(|version| version.parse().ok());
        let is_known = self.known.as_ref().is_some_and(|(uid, _)| *uid == workload.uid);
        if is_known && version < self.version {
            self.reasons += 1;
        }
        self.version = version;
        if !is_known {
            self.known = Some((workload.uid.clone(), now));
            self.covered = None;
        }
        !is_known
    }

    /// This process does not decide any more: another one may start the workload.
    pub const fn authority_lost(&mut self) {
        (self.covered, self.sent) = (None, None);
    }

    /// Whether the workload was known before this time.
    pub fn is_known_before(&self, time: Time) -> bool {
        self.known.as_ref().is_some_and(|(_, since)| *since <= time)
    }

    /// Whether the workload must be withdrawn before it may be started.
    pub fn is_due(&self) -> bool {
        self.covered != Some(self.reasons)
    }

    /// A withdrawal is sent.
    pub const fn withdrawal_sent(&mut self) {
        self.sent = Some(self.reasons);
    }

    /// Takes the answer to a write.
    pub fn written(&mut self, desired: &DesiredRole, outcome: &RoleOutcome) {
        let sent = self.sent.take();
        if desired.role == Some(PodRole::Standby) && *outcome == RoleOutcome::Written && sent.is_some() {
            self.covered = sent;
        }
    }
}
