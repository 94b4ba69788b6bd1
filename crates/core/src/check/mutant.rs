//! Planted bugs: known-bad variants of the protocol, chosen at run time, and which layer of checks finds each of them.

/// A layer of checks that finds planted bugs. A test of each layer runs all bugs that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The unit tests of this crate.
    UnitTest,
    /// The model checker, in at least one of its worlds.
    Model,
    /// The random search of the simulator.
    Simulator,
    /// The random search of the simulator, in worlds of programs instead of operators.
    Programs,
}

/// Defines the planted bugs. Behind the colon stand the layers that find the bug.
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident: $($layer:ident)|+,)+) => {
        /// One broken rule of the state machines, of a Redis node's scripts, or of the process that drives the machines.
        /// The comment of each says what is broken and what goes wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)+
        }

        impl Mutant {
            /// All planted bugs.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The layers that find the bug: at least one.
            pub const fn found_by(self) -> &'static [Layer] {
                match self {
                    $(Self::$name => &[$(Layer::$layer),+],)+
                }
            }

            /// All planted bugs that this layer finds.
            pub fn all_found_by(layer: Layer) -> impl Iterator<Item = Self> {
                Self::ALL.iter().copied().filter(move |mutant| mutant.found_by().contains(&layer))
            }
        }
    };
}

mutants! {
    /// The term begins after round 1 with the greatest grant number: two terms get one token.
    OneRound: UnitTest | Model | Simulator,
    /// Round 2 goes to every node that granted at any time: a late grant confirms an old token.
    ConfirmOutsideFirstRound: UnitTest | Model,
    /// Validity counts from the reply: with a slow network the belief outlives the keys.
    DeadlineFromReply: UnitTest | Model,
    /// There is no margin for clocks that run apart: the belief outlives the keys.
    NoDriftMargin: UnitTest | Simulator,
    /// The least key life that round 2 reported does not shorten validity: the belief outlives the keys of a node whose
    /// clock stepped forward.
    ConfirmLifeIgnored: UnitTest,
    /// New durations apply to the round that is under way: its requests carried the old TTL, so the belief outlives the
    /// keys.
    ConfigureInFlight: UnitTest | Model,
    /// The local deadline releases the keys: the belief of another process outlives them.
    ReleaseOnLocalDeadline: UnitTest | Model | Simulator,
    /// The local deadline is not watched: the belief outlives the keys.
    NoLocalDeadline: UnitTest | Model | Simulator,
    /// A deadline that is noticed late seals the term: a process that was paused ends what the others keep.
    SealOnLateWake: UnitTest,
    /// A loss is shown after the requests that follow from it: readers of the view still take the term for held while
    /// these are sent.
    ShownLast: UnitTest | Simulator,
    /// A join is confirmed at once: the term continues across a gap in which another held.
    JoinConfirmedAtOnce: UnitTest | Model,
    /// A join is confirmed after a round that began before its grant: the term continues across a gap in which another
    /// held.
    JoinConfirmedByEarlierRound: UnitTest | Model,
    /// A seal counts when fewer than N-q+1 nodes are sealed: the term is extended after it.
    SealOnTooFew: UnitTest | Model,
    /// A seal counts votes whose keys have ended since: the term is extended after it.
    SealVotesExpired: UnitTest | Model,
    /// The key life in a seal's answer counts from the reply instead of from the request: the term is extended after the
    /// seal.
    SealLifeFromReply: UnitTest,
    /// A node without the keys counts as sealed: it can be joined again, and the term is extended.
    AbsentCountedAsSealed: UnitTest | Model,
    /// A seal is sent once: after one lost request the term is never known to be sealed.
    SealNotRepeated: UnitTest,
    /// A failed try is repeated under the same attempt id: an old grant carries a new term.
    ReusedAttempt: UnitTest | Model,
    /// A status write without an answer is treated as not written, and the attempt is released: a process that reads the
    /// status adopts a term without keys.
    UnknownWriteReleased: UnitTest | Model | Simulator,
    /// `Forget` releases a term whose publication was sent: a process that reads the status adopts a term without keys.
    ForgetReleasesPublishing: UnitTest | Model,
    /// The token of the status is not a floor: a quorum that was seeded again counts from below.
    NoStatusFloor: UnitTest | Model,
    /// An extension counts nodes that hold the attempt in any stage: the term continues across a gap.
    AdoptByAttemptOnly: Model,
    /// An abstention (late, or not admitted) counts as a no: a term that no node refused is ended.
    AbstentionIsNo: UnitTest | Simulator,
    /// A node that lost its memory votes at once: it grants a lease that another process still holds.
    NoQuarantine: UnitTest | Model | Simulator,
    /// The wait before admission is one millisecond short: a node grants a lease that another process still holds.
    WaitOneShort: UnitTest | Model,
    /// The wait goes on although the ticket changed: what the node lost after the first ticket is not waited for.
    TicketNotCompared: UnitTest | Model,
    /// The fence is read before the wait instead of after it: the node counts from below.
    SeedBeforeWait: UnitTest | Model,
    /// The fences of nodes that are not admitted count as a majority's: two nodes that lost their memory seed a third.
    SeedFromUnadmitted: UnitTest | Model | Simulator,
    /// The clocks seed although the statuses were not read after the wait: the node counts from below.
    SeedFromStaleStatuses: UnitTest,
    /// The machine gives the same effect again and again: the process that carries the effects out comes to no end.
    EffectRepeated: Simulator,
    /// A step of a node's clock goes unnoticed: its keys end early.
    ClockStepIgnored: UnitTest | Simulator,
    /// Each node whose offset jumps gets a wait ticket at once: a paused process takes the quorum away from all others.
    TicketOnEachJump: UnitTest | Simulator,
    /// Nodes get tickets although too few nodes can be compared: a paused process that was disconnected takes the quorum away.
    TicketWithoutMajority: UnitTest,
    /// An answer to a request from before the doubt is compared: it shows no jump, and another node gets a ticket.
    ReadingFromBeforeDoubt: UnitTest,
    /// A node that shows no jump, because it runs on the same host, contradicts the others: they get tickets.
    NodeWithoutJumpContradicts: UnitTest,
    /// Jumps are compared without the drift during the time that was lost: after a long pause they have no common value.
    JumpNotWidened: UnitTest,
    /// Nodes that step alike outvote one that steps by another value, while another does not step: none of them gets a ticket.
    LargestSubsetDecides: UnitTest,
    /// After a jump of the own clock the offsets of disconnected nodes are dropped: a step of such a node goes unnoticed.
    OffsetsForgotten: UnitTest,
    /// Votes on requests from before a jump of the own clock count: the belief outlives the keys.
    VotesFromBeforeJumpKept: UnitTest,
    /// A process whose clock jumped begins attempts at once: a node that stepped by the same amount grants keys that another
    /// process still holds.
    AttemptAfterClockJump: UnitTest,
    /// A process whose clock jumped goes on believing in its terms: the belief outlives the keys.
    BeliefOutlivesClockJump: UnitTest | Simulator,
    /// A term that becomes unconfirmed by a jump of the clock gets another lease: while a minority of the nodes answers, jumps postpone
    /// its end for ever, and the workload runs beside that of the next holder.
    JumpPostponesEnd: UnitTest,
    /// A term that was dropped after its keys had expired is adopted as a new one: it ends two leases too late.
    OverrunForgotten: UnitTest,
    /// The wait ticket of another process is replaced by an own one: its wait begins again.
    TicketOfOthersReplaced: UnitTest,
    /// A release or a seal goes out after the attempt that follows it: the attempt is refused by the keys of the one before.
    EndAfterVote: UnitTest | Simulator,
    /// A renewal that began late moves all that follow: after an outage the leases renew together for ever.
    PhaseNotRestored: UnitTest | Simulator,
    /// An answer goes to whichever lease has the slot now: the vote for an earlier lease counts for a later one.
    AnotherIncarnation: UnitTest,
    /// A cancelled request is not told to its lease: a lock that nobody has is renewed for ever.
    CancelForgotten: Programs,
    /// A request that is cancelled when it has already won keeps the lock: nobody has it, and it is renewed for ever.
    WonAfterCancelKept: Programs,
    /// A lock that was released is left to its TTL: the next one waits for that.
    ReleaseLeftToTtl: Programs,
    /// Dropping a lock that was lost deletes its keys: work that was spawned runs beside that of the next one.
    LostLockDeleted: Programs,
    /// A lease that is closed deletes its keys although the program has the lock: its work runs beside that of the next one.
    HeldLockDeleted: Programs,
    /// A term that the program never takes is renewed for ever.
    UntakenTermKept: Programs,
    /// A release does not regard the time for which the lock must be held at least: a task runs twice.
    ReleasedTooEarly: Programs,
    /// A lock is valid until its loss is reported: a program that was paused believes that it holds it.
    ExpiryUnchecked: Programs,
    /// A lock that was lost becomes valid again: the program has already stopped its work.
    LostLockContinues: Programs,
    /// The longest time for which the lock may be held is not watched: the lock does not end.
    MaxHoldIgnored: Programs,
    /// A request that was refused makes no other attempt: it gets no lock although it is free.
    NeverTriesAgain: Programs,
    /// A request goes on after the time that it may wait.
    WaitsForEver: Programs,
    /// A term begins with the proposed token although too few nodes have taken it: the others gave greater numbers, and two terms
    /// have one token.
    ProposalTakenByTooFew: UnitTest | Model,
    /// Node: takes a proposal that is equal to its counter: two terms have one token.
    ProposalNotAbove: Model,
    /// Node: takes a proposal and does not raise its counter: a later token is not greater.
    ProposalNotCounted: Model,
    /// Node: confirm checks the first key only.
    ConfirmFirstKeyOnly: Model,
    /// Node: confirm does not compare the grant number.
    NoGrantNumber: Model,
    /// Node: one counter per first key instead of one per quorum.
    CounterPerLease: Model | Simulator,
    /// Node: a node without its counter counts from 1 again: a later token is smaller.
    CounterLossIgnored: Simulator,
    /// Node: extend sets the term's value where the keys are free.
    ExtendSets: Model | Simulator,
    /// Node: extend shortens a key that lives longer (`PEXPIRE` without `GT`).
    ExtendShortens: UnitTest | Model | Simulator,
    /// Node: a seal shortens the life of the keys.
    SealShortens: Model | Simulator,
    /// Node: extend continues a sealed term.
    ExtendUnseals: Model,
    /// Node: a release deletes the keys of any attempt.
    ReleaseIgnoresAttempt: Model | Simulator,
    /// Wire: a call that was executed while the scripts were loaded is sent again: it is executed twice.
    SentAgainAlthoughRun: UnitTest | Simulator,
    /// Wire: the last lease of a batch is not sent, and its extension counts: the belief outlives the keys.
    LastLeaseDropped: UnitTest | Simulator,
    /// Wire: gathered ends are sent behind gathered votes: an attempt is refused by the keys of the one before.
    EndsBehindVotes: UnitTest | Simulator,
    /// Driver: a holder's report that it has stopped is accepted before the seal is effective: another process extends
    /// the term, and the holder starts again.
    WordBeforeSeal: Model,
    /// Driver: the fingerprint leaves out the longest lease: a process with a shorter one admits too early.
    LongestLeaseNotInFingerprint: Model,
}
