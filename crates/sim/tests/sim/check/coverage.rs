//! What happened in a batch of runs: a batch in which something never happened proves nothing about it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redislease_plan::api::lease_status::HandoverState;
use redislease_plan::plan::calls::Outcome;
use redislease_plan::plan::{Authority, Command, RoleOutcome, StatusOutcome};

use crate::chaos::fault::{Fault, Phase};

listed! {
    /// Something that must happen sometimes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Sight {
        // The core.
        ReElection,
        JoinConfirmed,
        Superseded,
        AdoptionNeverConfirmed,
        SealEffective,
        EndDecided,
        LostByMisses,
        LostByDeadline,
        Refused,
        AttemptDropped,
        AttemptPaced,
        AttemptWaited,
        StatusWaited,
        ForgotDuringAttempt,
        ConfiguredDuringRound,
        MajorityReturned,
        Retired,
        // Commands of reconcilers.
        Opened,
        Wanted,
        Forgot,
        Adopted,
        AdoptedOverrun,
        UnconfirmedShown,
        KeptElsewhere,
        EndedWithoutProof,
        ReleasedOnProof,
        PublishedWritten,
        PublishedUnknown,
        PublishedSuperseded,
        TriedNow,
        KeysRead,
        Configured,
        FloorRaised,
        // Answers of the API server.
        StatusWritten,
        StatusConflict,
        StatusGone,
        StatusUnanswered,
        StatusRefused,
        StatusWithdrawn,
        RoleWritten,
        RoleConflict,
        RoleGone,
        RoleUnanswered,
        RoleRefused,
        RoleWithdrawn,
        PodStarted,
        LostPodDeleted,
        /// A dry run of a stop was accepted.
        StopTested,
        /// A policy refused the dry run of a stop, or stored something else.
        StopKept,
        /// A term ended by a request after the stop was tested.
        EndedAfterTest,
        /// The keys of a term ended that a process had ended or lost, and nothing excused what still showed it.
        StopJudged,
        /// Two that may not run at once could be judged.
        R1Judged,
        /// The stop of a workload could be judged.
        R5Judged,
        /// A pod was deleted, and the status did not show yet that its term was ended.
        StoppedBeforeStatus,
        WorkloadRuns,
        WorkloadStopped,
        /// The workload of a lease that was made for it was deleted, and its pods run on.
        PodsOrphaned,
        /// A workload was started for a term of an earlier one with its name.
        TermInherited,
        LeaseRead,
        HolderRead,
        StartableRead,
        NodeRead,
        NodeIsProof,
        WriteExpired,
        StalePublicationRefused,
        LossCounted,
        LossReported,
        EndCounted,
        Finished,
        HandoverRunning,
        HandoverCompleted,
        HandoverRefused,
        HandoverFailed,
        HandoverUnknown,
        // Replicas.
        Leads,
        LeadsNoMore,
        Ends,
        Follows,
        LeadershipReleased,
        // Redis nodes.
        ReAdmitted,
        SeededByOthers,
        SeededByClocks,
        /// All statuses were read again before the clocks seeded a counter.
        StatusesReadAgain,
        SeedingRefused,
        StepSeen,
        SmallStepSeen,
        SmallStepTolerated,
        OwnClockJumped,
        VoteDiscardedAfterStep,
        RequestsTogether,
        ExtensionsTogether,
        RequestsRefused,
        LateAtTheNode,
        NotAdmittedAtTheNode,
        GhostGrant,
        ProposalTaken,
        ProposalTooLow,
        /// Too few nodes have taken it, and round 2 chose a greater token.
        ProposalReplaced,
        // Worlds.
        OneNode,
        TwoNodes,
        ThreeNodes,
        FourNodes,
        FiveNodes,
        TwoSpecsOfOneKey,
        ApiAwayInRecovery,
    }
}

/// They happen in fewer than one of a hundred runs.
const RARE: [Sight; 6] = [
    Sight::Superseded,
    Sight::PublishedSuperseded,
    Sight::AdoptedOverrun,
    Sight::StopKept,
    Sight::SmallStepSeen,
    Sight::SmallStepTolerated,
];
/// It happens in one of some thousand runs, so a batch can miss it. A unit test of the reconciler has it.
const RAREST: Sight = Sight::HandoverUnknown;

impl Sight {
    pub const fn of_command(command: &Command) -> Self {
        use redislease_core::lease::Publication;
        match command {
            Command::Close | Command::Prove | Command::KeepKeysFor(_) | Command::Release { .. } => Self::Opened,
            Command::Want(_) => Self::Wanted,
            Command::Forget | Command::Retire => Self::Forgot,
            Command::Adopt(_) => Self::Adopted,
            Command::AdoptOverrun(_) => Self::AdoptedOverrun,
            Command::ReadKeys => Self::KeysRead,
            Command::UnconfirmedShown(_) => Self::UnconfirmedShown,
            Command::KeptElsewhere(_) => Self::KeptElsewhere,
            Command::End { proof: false, .. } => Self::EndedWithoutProof,
            Command::End { proof: true, .. } => Self::ReleasedOnProof,
            Command::Published { outcome: Publication::Written, .. } => Self::PublishedWritten,
            Command::Published { outcome: Publication::Unknown, .. } => Self::PublishedUnknown,
            Command::Published { outcome: Publication::Superseded, .. } => Self::PublishedSuperseded,
            Command::TryNow => Self::TriedNow,
            Command::Configure(_) => Self::Configured,
        }
    }

    pub const fn of_status(outcome: &StatusOutcome) -> Self {
        match outcome {
            StatusOutcome::Written(_) => Self::StatusWritten,
            StatusOutcome::Conflict => Self::StatusConflict,
            StatusOutcome::Gone => Self::StatusGone,
            StatusOutcome::Unanswered(_) | StatusOutcome::AtFault(_) => Self::StatusUnanswered,
            StatusOutcome::Refused(_) => Self::StatusRefused,
            StatusOutcome::Withdrawn => Self::StatusWithdrawn,
        }
    }

    pub const fn of_handover(state: HandoverState) -> Self {
        match state {
            HandoverState::Running => Self::HandoverRunning,
            HandoverState::Completed => Self::HandoverCompleted,
            HandoverState::Refused => Self::HandoverRefused,
            HandoverState::Failed => Self::HandoverFailed,
            HandoverState::Unknown => Self::HandoverUnknown,
        }
    }

    pub const fn of_role(outcome: &RoleOutcome) -> Self {
        match outcome {
            RoleOutcome::Written(None) => Self::RoleWritten,
            RoleOutcome::Conflict => Self::RoleConflict,
            RoleOutcome::Gone => Self::RoleGone,
            RoleOutcome::Unanswered(_) | RoleOutcome::AtFault(_) => Self::RoleUnanswered,
            RoleOutcome::Refused(_) | RoleOutcome::Written(Some(_)) => Self::RoleRefused,
            RoleOutcome::Withdrawn => Self::RoleWithdrawn,
        }
    }

    pub const fn of_authority(authority: Authority) -> Self {
        match authority {
            Authority::Lead => Self::Leads,
            Authority::Renew => Self::LeadsNoMore,
            Authority::End => Self::Ends,
            Authority::Follow => Self::Follows,
        }
    }

    pub const fn of_nodes(nodes: u8) -> Self {
        match nodes {
            1 => Self::OneNode,
            2 => Self::TwoNodes,
            3 => Self::ThreeNodes,
            4 => Self::FourNodes,
            _ => Self::FiveNodes,
        }
    }
}

/// How often each fault took place during each phase of a lease, and how often each sight was seen.
#[derive(Default)]
pub struct Coverage {
    hits: BTreeMap<(Fault, Phase), u64>,
    sights: BTreeMap<Sight, u64>,
}

impl Coverage {
    /// A fault took place: its effect was observed.
    pub fn hit_all(&mut self, fault: Fault, phases: &[Phase]) {
        for &phase in phases {
            *self.hits.entry((fault, phase)).or_default() += 1;
        }
    }

    pub fn saw(&mut self, sight: Sight) {
        *self.sights.entry(sight).or_default() += 1;
    }

    /// A call of a lease has this outcome.
    pub fn saw_outcome(&mut self, outcome: &Outcome) {
        self.saw(match outcome {
            Outcome::LeaseStatus(outcome) => Sight::of_status(outcome),
            Outcome::Role(_, answer) => Sight::of_role(&answer.outcome),
            Outcome::Lease(_) => Sight::LeaseRead,
            Outcome::Holder(..) => Sight::HolderRead,
            Outcome::Startable(_) => Sight::StartableRead,
            Outcome::Node(_, Ok(true)) => Sight::NodeIsProof,
            _ => Sight::NodeRead,
        });
    }

    pub fn add(&mut self, other: &Self) {
        for (&key, count) in &other.hits {
            *self.hits.entry(key).or_default() += count;
        }
        for (&key, count) in &other.sights {
            *self.sights.entry(key).or_default() += count;
        }
    }

    /// What never happened: faults at all, or in each phase if the batch was `large`, and sights, the rarest only if it was.
    pub fn missing(&self, large: bool) -> Vec<String> {
        let cells = Fault::ALL.iter().flat_map(|&fault| Phase::ALL.iter().map(move |&phase| (fault, phase)));
        // Round 2 takes a few milliseconds: most faults hit round 1 about 30 times as often.
        let often = |fault| self.hits.get(&(fault, Phase::Round1)).is_some_and(|hits| *hits >= 200);
        let is_due = |&(fault, phase): &(Fault, Phase)| large && (phase != Phase::Round2 || often(fault));
        let cells = cells.filter(|cell| is_due(cell) && !self.hits.contains_key(cell)).map(|cell| format!("{cell:?}"));
        let took_place = |fault: &&Fault| self.hits.keys().any(|(hit, _)| hit == *fault);
        let faults = Fault::ALL.iter().filter(|fault| !took_place(fault)).map(|fault| format!("{fault:?}"));
        let expected = Sight::ALL.iter().filter(|sight| **sight != RAREST && (large || !RARE.contains(sight)));
        let sights = expected.filter(|sight| !self.sights.contains_key(sight));
        cells.chain(faults).chain(sights.map(|sight| format!("{sight:?}"))).collect()
    }

    pub fn table(&self) -> String {
        let mut text = String::from("fault          ");
        for phase in Phase::ALL {
            let _ = write!(text, "{:>12}", format!("{phase:?}"));
        }
        for &fault in Fault::ALL {
            let _ = write!(text, "\n{:<15}", format!("{fault:?}"));
            for &phase in Phase::ALL {
                let _ = write!(text, "{:>12}", self.hits.get(&(fault, phase)).copied().unwrap_or(0));
            }
        }
        for sight in Sight::ALL {
            let _ = write!(text, "\n{:<28}{:>9}", format!("{sight:?}"), self.sights.get(sight).copied().unwrap_or(0));
        }
        text
    }
}
