//! Planted bugs. Each shows that a check can fail.
//!
//! `redislease_core::check::Mutant` lists which layer of checks finds which bug of the core. Random search covers the bugs
//! that it finds in seconds. Unit tests, the model checker and scenarios find those that need one exact interleaving.

use redislease_core::check::{Layer, Mutant};
use redislease_plan::plan::calls::Limits;

listed! {
    /// One known-bad variant: of the core, or of the operator around it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bug {
        /// Validity is measured on a clock that stands still in suspend.
        MonotonicClock,
        /// A reconnect keeps the run id of the previous connection: a restored marker is accepted.
        CachedRunId,
        /// A pod that is gone counts as a pod that stopped.
        GoneIsProof,
        /// A pod that is being deleted counts as a pod that stopped.
        DeletingIsProof,
        /// A status write is accepted with any resource version and any token.
        StatusWithoutVersion,
        /// Too few nodes still have their data, and neither the clocks nor the status raise the counter.
        SeedFromReadableFences,
        /// A process that lost a term never contends again.
        NeverContendsAgain,
        /// The end of a term is never written into the status.
        LossNotWritten,
        /// The same while the quorum is lost.
        LossNotWrittenWithoutQuorum,
        /// A term that was in doubt is never written as certain again.
        DoubtStays,
        /// A pod that is elected again keeps the token of its last term.
        TokenKept,
        /// The term of a deleted lease is still renewed.
        DeletionIgnored,
        /// A failed attempt is tried again at once.
        NoPace,
        /// The old rule: an attempt begins although the API server does not answer.
        ContendsWithoutAnswer,
        /// The old rule: a term that is not published is extended forever.
        UnpublishedForEver,
        /// The old rule: the keeper makes the next attempt by itself.
        KeeperWantsAgain,
        /// A list with an older state is taken for the newest one: the watch does not repeat the changes since then.
        StaleListTrusted,
        /// A turn of a lease requests the same effect again and again.
        EffectRepeated,
        /// The same in the election of a replica.
        LeaderEffectRepeated,
        /// The same in the admission of a Redis node.
        AdmissionEffectRepeated,
        /// The timer of a lease ends at once, long before its deadline, and is set again.
        TimerEndsAtOnce,
        /// The pod of a lost term is deleted before the status says that the term has ended.
        DeletedTooEarly,
        /// A pod that lost the lease is not deleted.
        LostPodRuns,
        /// A workload whose cluster lost the lease is not stopped.
        WorkloadRunsOn,
        /// A lease that acquired a term never gives its permit back.
        PermitKept,
        /// The same with the permit to write the end of a term.
        WritePermitKept,
        /// The read of the status before a start is answered from what the watch showed last.
        StartFromCachedStatus,
        /// The next pod does not wait for the grace period of a started one that is being deleted.
        NextStartsTooEarly,
        /// The watch of workloads shows only the first change.
        WorkloadIsStale,
        /// A workload that runs is stopped when it is first seen, without an answer to an attempt.
        StoppedWithoutAnswer,
        /// A write that was refused or undone is repeated without a pause.
        NoBackOff,
        /// The consent of a workload is taken for granted.
        ConsentIgnored,
        /// A listed lease that is older than the known one is ignored, also after a restore of etcd.
        RestoreIgnored,
        /// The end of a term is written with the level of counts, and counts with that of the end.
        LevelSwapped,
        /// A tenant whose calls and their repetitions are not answered leaves no place for the urgent calls of others.
        CallsHoldAllPlaces,
        /// The outcome of a call goes to the newest unit of its lease, whichever has made the call.
        AnswerToAnotherUnit,
        /// The API server is not asked whether a stop would be stored.
        StopNotTested,
        /// A refused dry run of a stop is taken for an accepted one.
        RefusedStopAccepted,
        /// The old rule: a pod whose term this process has ended is deleted only after the status says that it has ended.
        EndMustBeShown,
        /// The keys are never read while no attempt can begin.
        KeysNotRead,
        /// The old rule: a term ends when its workload is missing, although the pods may run on.
        EndsWithItsWorkload,
        /// The old rule: while the spec has never fitted the quorum, no workload is a candidate.
        UnfitTermRunsOn,
        ;
        // Random search finds those of the core that their table gives to it. The others need one exact interleaving, which a scenario sets up:
        // `late_writes`, `replicas` with a pause, `selected` with a controller, `webhook` with many calls at once.
        /// A broken rule of the core's machines or of the scripts.
        Core(Mutant),
        /// A role write is accepted with any resource version.
        RolesWithoutVersion,
        /// A process that was paused acts with the authority of before the pause, although its leader lock has ended.
        AuthorityDoesNotEnd,
        /// A tenant whose first calls are not answered leaves no place for the urgent calls of others.
        NoSparePlaces,
        /// No pod counts as released by its controller.
        ReleaseUnseen,
    }
}

impl Bug {
    /// The bugs that random search must find: of the core those that its table gives to the simulator.
    pub fn searched() -> impl Iterator<Item = Self> {
        Mutant::all_found_by(Layer::Simulator).map(Self::Core).chain(Self::ALL.iter().copied())
    }

    /// A part of the message of the check that must find the bug, if other checks could find it too.
    pub const fn must_say(self) -> Option<&'static str> {
        match self {
            Self::DeletedTooEarly => Some("gate: "),
            Self::WorkloadRunsOn | Self::WorkloadIsStale => Some("orkload"),
            Self::StartFromCachedStatus => Some("R4: "),
            Self::NextStartsTooEarly | Self::EndsWithItsWorkload | Self::UnfitTermRunsOn => Some("R1: "),
            Self::StoppedWithoutAnswer => Some("R3: "),
            Self::LossNotWrittenWithoutQuorum => Some("R5: the status"),
            Self::DoubtStays => Some("unshown: "),
            Self::TokenKept => Some("token: "),
            Self::NoBackOff => Some("R2: "),
            Self::ConsentIgnored => Some("consent: "),
            Self::LevelSwapped => Some("order: "),
            Self::CallsHoldAllPlaces => Some("R5: "),
            Self::StopNotTested => Some("R6: "),
            Self::RefusedStopAccepted => Some("is refused since"),
            Self::EndMustBeShown => Some("runs on after the keys"),
            Self::AnswerToAnotherUnit => Some("are under way"),
            Self::KeysNotRead => Some("peer: "),
            Self::EffectRepeated => Some("the engine has more than"),
            Self::LeaderEffectRepeated => Some("the election has more than"),
            Self::AdmissionEffectRepeated => Some("a wire has more than"),
            Self::TimerEndsAtOnce => Some("events at one instant"),
            Self::Core(Mutant::EffectRepeated) => Some("effects at one instant"),
            _ => None,
        }
    }

    /// How many calls are in flight with the bug.
    pub fn calls(self, calls: Limits) -> Limits {
        match self {
            Self::NoSparePlaces => Limits { spare: 0, ..calls },
            Self::CallsHoldAllPlaces => Limits { spare: 0, unsure: usize::MAX, unsure_of_tenant: usize::MAX, ..calls },
            _ => calls,
        }
    }

    pub const fn mutant(self) -> Option<Mutant> {
        match self {
            Self::Core(mutant) => Some(mutant),
            _ => None,
        }
    }
}
