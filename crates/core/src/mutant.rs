//! Known-bad variants of the protocol. Each breaks one rule; the model checker or the simulator must find it.

/// One broken rule of the state machines, or of the node's scripts. The comment of each says what the rule prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The term begins after round 1 with the greatest grant number: two terms get one token.
    OneRound,
    /// Round 2 goes to every node that granted at any time: a late grant confirms an old token.
    ConfirmOutsideFirstRound,
    /// The holder's time counts from the reply: a slow network makes it outlive the keys.
    DeadlineFromReply,
    /// No margin for clocks that run apart.
    NoDriftMargin,
    /// The local deadline releases the keys: a belief elsewhere outlives them.
    ReleaseOnLocalDeadline,
    /// The local deadline is not watched: belief outlives the keys.
    NoLocalDeadline,
    /// A loss is shown after the requests that follow from it: who is slow to send them believes on meanwhile.
    ShownLast,
    /// A join is confirmed at once: it bridges a gap in which another held.
    JoinConfirmedAtOnce,
    /// A join is confirmed after a round that began before its grant.
    JoinConfirmedByEarlierRound,
    /// A seal counts when fewer than N-q+1 nodes are sealed.
    SealOnTooFew,
    /// A seal counts votes whose keys have ended since.
    SealVotesExpired,
    /// Nothing found counts as sealed.
    AbsentCountedAsSealed,
    /// A failed try is repeated under the same attempt id.
    ReusedAttempt,
    /// A status write without an answer is treated as not written, and the attempt released.
    UnknownWriteReleased,
    /// The token of the status is not a floor: a re-seeded quorum counts from below.
    NoStatusFloor,
    /// An adopted term counts nodes that hold the attempt in any stage.
    AdoptByAttemptOnly,
    /// An abstention (late, not admitted) counts as a no.
    AbstentionIsNo,
    /// A node that forgot votes at once.
    NoQuarantine,
    /// The wait is one millisecond short.
    WaitOneShort,
    /// The wait goes on although the ticket changed.
    TicketNotCompared,
    /// The fence is read before the wait instead of after it.
    SeedBeforeWait,
    /// A clock step goes unnoticed.
    ClockStepIgnored,
    /// Node: confirm checks the first key only.
    ConfirmFirstKeyOnly,
    /// Node: confirm does not compare the grant number.
    NoGrantNumber,
    /// Node: one counter per first key instead of one per quorum.
    CounterPerLease,
    /// Node: extend sets the term's value where the keys are free.
    ExtendSets,
    /// Node: a seal cuts the life of the keys.
    SealShortens,
    /// Node: extend continues a sealed term.
    ExtendUnseals,
    /// Node: a release deletes whatever stands under the keys.
    ReleaseIgnoresAttempt,
}
