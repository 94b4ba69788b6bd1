//! Bugs planted on purpose: a checker that was never seen to fail is not trusted.
//!
//! Only those that random search finds in seconds stand here. What needs one exact interleaving (a join confirmed too
//! early, round 2 outside the first, a grant number not compared, a seal on too few) is the model checker's.

use redislease_core::check::Mutant;

/// One known-bad variant: of the core, or of what surrounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A broken rule of the state machines or of the scripts.
    Core(Mutant),
    /// Validity is measured on a clock that stands still in suspend.
    MonotonicClock,
    /// A reconnect keeps the run id of the connection before: a restored marker is accepted.
    CachedRunId,
    /// An unpublished attempt of somebody else is released because the status does not name it.
    ForeignUnpublishedReleased,
    /// A pod that is gone counts as a pod that stopped.
    GoneIsProof,
    /// A pod that is being deleted counts as a pod that stopped.
    DeletingIsProof,
    /// The publication carries no resourceVersion, and the token is not compared.
    BlindPublication,
    /// Too few remembering nodes, and neither the clocks nor the status lift the counter.
    SeedFromReadableFences,
    /// A process that lost a term never contends again.
    NeverContendsAgain,
    /// The loss of a term is never written into the status.
    LossNotWritten,
    /// A deleted resource's term is renewed on.
    DeletionIgnored,
    /// A failed round of anything is tried again at once.
    NoPace,
}

impl Bug {
    pub const ALL: [Self; 27] = [
        Self::Core(Mutant::OneRound),
        Self::Core(Mutant::DeadlineFromReply),
        Self::Core(Mutant::NoDriftMargin),
        Self::Core(Mutant::ReleaseOnLocalDeadline),
        Self::Core(Mutant::NoLocalDeadline),
        Self::Core(Mutant::ShownLast),
        Self::Core(Mutant::UnknownWriteReleased),
        Self::Core(Mutant::NoStatusFloor),
        Self::Core(Mutant::AbstentionIsNo),
        Self::Core(Mutant::NoQuarantine),
        Self::Core(Mutant::TicketNotCompared),
        Self::Core(Mutant::ClockStepIgnored),
        Self::Core(Mutant::CounterPerLease),
        Self::Core(Mutant::ExtendSets),
        Self::Core(Mutant::SealShortens),
        Self::Core(Mutant::ReleaseIgnoresAttempt),
        Self::MonotonicClock,
        Self::CachedRunId,
        Self::ForeignUnpublishedReleased,
        Self::GoneIsProof,
        Self::DeletingIsProof,
        Self::BlindPublication,
        Self::SeedFromReadableFences,
        Self::NeverContendsAgain,
        Self::LossNotWritten,
        Self::DeletionIgnored,
        Self::NoPace,
    ];

    pub const fn mutant(self) -> Option<Mutant> {
        match self {
            Self::Core(mutant) => Some(mutant),
            _ => None,
        }
    }
}
