//! Planted bugs: known-bad variants of the protocol, chosen at run time. A unit test, the model checker or the simulator
//! must find each of them.

/// One broken rule of the state machines, of a Redis node's scripts, or of the process that drives the machines. The
/// comment of each says what is broken and what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The term begins after round 1 with the greatest grant number: two terms get one token.
    OneRound,
    /// Round 2 goes to every node that granted at any time: a late grant confirms an old token.
    ConfirmOutsideFirstRound,
    /// Validity counts from the reply: with a slow network the belief outlives the keys.
    DeadlineFromReply,
    /// There is no margin for clocks that run apart: the belief outlives the keys.
    NoDriftMargin,
    /// The least key life that round 2 reported does not shorten validity: the belief outlives the keys of a node whose
    /// clock stepped forward.
    ConfirmLifeIgnored,
    /// New durations apply to the round that is under way: its requests carried the old TTL, so the belief outlives the
    /// keys.
    ConfigureInFlight,
    /// The local deadline releases the keys: the belief of another process outlives them.
    ReleaseOnLocalDeadline,
    /// The local deadline is not watched: the belief outlives the keys.
    NoLocalDeadline,
    /// A deadline that is noticed late seals the term: a process that was paused ends what the others keep.
    SealOnLateWake,
    /// A loss is shown after the requests that follow from it: readers of the view believe on while these are sent.
    ShownLast,
    /// A join is confirmed at once: the term continues across a gap in which another held.
    JoinConfirmedAtOnce,
    /// A join is confirmed after a round that began before its grant: the same.
    JoinConfirmedByEarlierRound,
    /// A seal counts when fewer than N-q+1 nodes are sealed: the term is extended after it.
    SealOnTooFew,
    /// A seal counts votes whose keys have ended since: the same.
    SealVotesExpired,
    /// The key life in a seal's answer counts from the reply instead of from the request: the same.
    SealLifeFromReply,
    /// A node without the keys counts as sealed: it can be joined again, and the term is extended.
    AbsentCountedAsSealed,
    /// A seal is sent once: after one lost request the term is never known to be sealed.
    SealNotRepeated,
    /// A failed try is repeated under the same attempt id: an old grant carries a new term.
    ReusedAttempt,
    /// A status write without an answer is treated as not written, and the attempt released: who reads the status
    /// adopts a term without keys.
    UnknownWriteReleased,
    /// `Forget` releases a term whose publication was sent: the same.
    ForgetReleasesPublishing,
    /// The token of the status is not a floor: a quorum that was seeded again counts from below.
    NoStatusFloor,
    /// An extension counts nodes that hold the attempt in any stage: the term continues across a gap.
    AdoptByAttemptOnly,
    /// An abstention (late, or not admitted) counts as a no: a term that nobody refused is given up.
    AbstentionIsNo,
    /// A node that lost its memory votes at once: it grants what others still believe in.
    NoQuarantine,
    /// The wait before admission is one millisecond short: the same.
    WaitOneShort,
    /// The wait goes on although the ticket changed: what the node lost after the first ticket is not waited for.
    TicketNotCompared,
    /// The fence is read before the wait instead of after it: the node counts from below.
    SeedBeforeWait,
    /// The fences of nodes that are not admitted count as a majority's: two nodes that lost their memory seed a third.
    SeedFromUnadmitted,
    /// A step of a node's clock goes unnoticed: its keys end early.
    ClockStepIgnored,
    /// Node: confirm checks the first key only.
    ConfirmFirstKeyOnly,
    /// Node: confirm does not compare the grant number.
    NoGrantNumber,
    /// Node: one counter per first key instead of one per quorum.
    CounterPerLease,
    /// Node: extend sets the term's value where the keys are free.
    ExtendSets,
    /// Node: extend shortens a key that lives longer (`PEXPIRE` without `GT`).
    ExtendShortens,
    /// Node: a seal shortens the life of the keys.
    SealShortens,
    /// Node: extend continues a sealed term.
    ExtendUnseals,
    /// Node: a release deletes the keys of any attempt.
    ReleaseIgnoresAttempt,
    /// Driver: the holder's word that it stopped is accepted before the seal is effective: another process extends the
    /// term, and the holder starts again.
    WordBeforeSeal,
    /// Driver: the fingerprint leaves out the longest lease: a process with a shorter one admits too early.
    LongestLeaseNotInFingerprint,
}

impl Mutant {
    /// All planted bugs.
    pub const ALL: [Self; 39] = [
        Self::OneRound,
        Self::ConfirmOutsideFirstRound,
        Self::DeadlineFromReply,
        Self::NoDriftMargin,
        Self::ConfirmLifeIgnored,
        Self::ConfigureInFlight,
        Self::ReleaseOnLocalDeadline,
        Self::NoLocalDeadline,
        Self::SealOnLateWake,
        Self::ShownLast,
        Self::JoinConfirmedAtOnce,
        Self::JoinConfirmedByEarlierRound,
        Self::SealOnTooFew,
        Self::SealVotesExpired,
        Self::SealLifeFromReply,
        Self::AbsentCountedAsSealed,
        Self::SealNotRepeated,
        Self::ReusedAttempt,
        Self::UnknownWriteReleased,
        Self::ForgetReleasesPublishing,
        Self::NoStatusFloor,
        Self::AdoptByAttemptOnly,
        Self::AbstentionIsNo,
        Self::NoQuarantine,
        Self::WaitOneShort,
        Self::TicketNotCompared,
        Self::SeedBeforeWait,
        Self::SeedFromUnadmitted,
        Self::ClockStepIgnored,
        Self::ConfirmFirstKeyOnly,
        Self::NoGrantNumber,
        Self::CounterPerLease,
        Self::ExtendSets,
        Self::ExtendShortens,
        Self::SealShortens,
        Self::ExtendUnseals,
        Self::ReleaseIgnoresAttempt,
        Self::WordBeforeSeal,
        Self::LongestLeaseNotInFingerprint,
    ];
}
