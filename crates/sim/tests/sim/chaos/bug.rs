//! Bugs planted on purpose: a checker that was never seen to fail is not trusted.
//!
//! Only those that random search finds in seconds stand here. What needs one exact interleaving (a join confirmed too
//! early, round 2 outside the first, a grant number not compared, a seal on too few) is the model checker's.

use crate::core_check::Mutant;

/// One known-bad variant: of the core, or of the operator around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A broken rule of the core's machines or of the scripts.
    Core(Mutant),
    /// Validity is measured on a clock that stands still in suspend.
    MonotonicClock,
    /// A reconnect keeps the run id of the connection before: a restored marker is accepted.
    CachedRunId,
    /// A pod that is gone counts as a pod that stopped.
    GoneIsProof,
    /// A pod that is being deleted counts as a pod that stopped.
    DeletingIsProof,
    /// A status write is taken whatever its resource version and its token are.
    StatusWithoutVersion,
    /// A role write is taken whatever its resource version is.
    RolesWithoutVersion,
    /// Too few remembering nodes, and neither the clocks nor the status raise the counter.
    SeedFromReadableFences,
    /// A process that lost a term never contends again.
    NeverContendsAgain,
    /// The end of a term is never written into the status.
    LossNotWritten,
    /// A deleted lease's term is renewed on.
    DeletionIgnored,
    /// A failed attempt is tried again at once.
    NoPace,
    /// The old rule: an attempt begins although the API server does not answer.
    ContendsWithoutAnswer,
    /// The old rule: a term that is not published is extended for ever.
    UnpublishedForEver,
    /// The old rule: the keeper makes the next attempt by itself.
    KeeperWantsAgain,
    /// A list that shows an older state makes newer pods gone and old ones come back.
    StaleListTrusted,
}

impl Bug {
    pub const ALL: [Self; 30] = [
        Self::Core(Mutant::OneRound),
        Self::Core(Mutant::NoDriftMargin),
        Self::Core(Mutant::ReleaseOnLocalDeadline),
        Self::Core(Mutant::NoLocalDeadline),
        Self::Core(Mutant::ShownLast),
        Self::Core(Mutant::UnknownWriteReleased),
        Self::Core(Mutant::AbstentionIsNo),
        Self::Core(Mutant::NoQuarantine),
        Self::Core(Mutant::TicketNotCompared),
        Self::Core(Mutant::ClockStepIgnored),
        Self::Core(Mutant::CounterPerLease),
        Self::Core(Mutant::ExtendSets),
        Self::Core(Mutant::SealShortens),
        Self::Core(Mutant::ReleaseIgnoresAttempt),
        Self::Core(Mutant::ExtendShortens),
        Self::Core(Mutant::SeedFromUnadmitted),
        Self::MonotonicClock,
        Self::CachedRunId,
        Self::GoneIsProof,
        Self::DeletingIsProof,
        Self::StatusWithoutVersion,
        Self::SeedFromReadableFences,
        Self::NeverContendsAgain,
        Self::LossNotWritten,
        Self::DeletionIgnored,
        Self::NoPace,
        Self::ContendsWithoutAnswer,
        Self::UnpublishedForEver,
        Self::KeeperWantsAgain,
        Self::StaleListTrusted,
    ];

    pub const fn mutant(self) -> Option<Mutant> {
        match self {
            Self::Core(mutant) => Some(mutant),
            _ => None,
        }
    }
}
