//! Which worlds are searched, and which planted bugs must be found in each.
//!
//! A world is always searched without a bug as well: a bug that is found where a correct machine fails too proves
//! nothing.
//!
//! Some planted bugs break nothing in any world here, and unit tests find them. All clocks run at one rate and none steps
//! (`NoDriftMargin`, `ConfirmLifeIgnored`, `ClockStepIgnored`). A node executes a request and answers it at one moment
//! (`SealLifeFromReply`). Effects are carried out at the moment of the input (`ShownLast`). A term that is ended or kept
//! needlessly breaks no rule of exclusion (`AbstentionIsNo`, `SealNotRepeated`, `SealOnLateWake`).

use redislease_core::check::Mutant;
use redislease_core::op::Token;

use crate::admission::AdmissionSetup;
use crate::jobs::Size;
use crate::world::Setup;

/// A world and the planted bugs that must be found in it.
pub struct Case<S> {
    pub size: Size,
    pub setup: S,
    pub bugs: &'static [Mutant],
    /// Bugs that must also be found as two holders at one time, without the rules for a single machine.
    pub overlaps: &'static [Mutant],
}

const fn case(size: Size, setup: Setup, bugs: &'static [Mutant]) -> Case<Setup> {
    Case { size, setup, bugs, overlaps: &[] }
}

/// Two attempts at one lease. Messages may be late or lost; nothing else goes wrong.
const CONTENDERS: Setup = Setup {
    name: "contenders",
    ttl: 2,
    new_ttl: 0,
    renew_interval: 1,
    command_timeout: 1,
    stop_budget: 0,
    keys: [&[0], &[0]],
    contend: true,
    in_turn: false,
    joins: 1,
    returns: 0,
    adopt: false,
    crashes: 0,
    end: None,
    death: false,
    forget: false,
    unconfirm: false,
    one_process: true,
    unanswered: true,
    lossy: true,
    broken: false,
    late_guard: true,
    vanish: false,
    tokens_only: false,
    fences: &[[0, 0, 0]],
    proposals: [None, None],
    history: 0,
    overlaps_only: false,
    mutant: None,
};
const BASIC: Setup = Setup { name: "basic", joins: 0, one_process: false, unanswered: false, ..CONTENDERS };
const SLOW: Setup = Setup { name: "rounds of two ticks", ttl: 3, renew_interval: 2, command_timeout: 2, ..BASIC };
const REPLICA: Setup = Setup { name: "a replica adopts", adopt: true, ..BASIC };
const OWNER_SEALS: Setup = Setup { name: "the owner seals", end: Some(0), one_process: true, ..BASIC };
const OTHER_SEALS: Setup = Setup { name: "another process seals", end: Some(1), ..BASIC };
const SEALED: Setup = Setup { name: "seal against extension", contend: false, end: Some(1), joins: 1, ..BASIC };
const VANISH: Setup = Setup { name: "vanishing keys", vanish: true, joins: 1, fences: &[[0, 0, 1]], ..BASIC };
const LEVEL: Setup = Setup { name: "vanishing keys, equal counters", fences: &[[0, 0, 0]], lossy: false, ..VANISH };
const KEYS: Setup = Setup {
    name: "overlapping key sets",
    keys: [&[0, 1], &[1, 2]],
    vanish: true,
    tokens_only: true,
    lossy: false,
    ..BASIC
};

/// Both attempts propose the first token.
const PROPOSALS: [Option<Token>; 2] = [Some(Token(1)), Some(Token(1))];

/// The largest first, so that no thread is left alone with one.
pub const WORLDS: [Case<Setup>; 35] = [
    case(
        Size::Large,
        Setup { name: "proposals, a replica adopts and joins", proposals: PROPOSALS, joins: 1, ..REPLICA },
        &[],
    ),
    case(
        Size::Large,
        Setup { name: "proposals, vanishing keys, equal counters", proposals: PROPOSALS, ..LEVEL },
        &[Mutant::ProposalNotAbove, Mutant::ProposalNotCounted, Mutant::ExtendSets],
    ),
    case(
        Size::Large,
        Setup { name: "proposals and vanishing keys", proposals: PROPOSALS, ..VANISH },
        &[Mutant::ProposalTakenByTooFew],
    ),
    case(Size::Large, OTHER_SEALS, &[]),
    case(Size::Large, VANISH, &[Mutant::OneRound, Mutant::ConfirmOutsideFirstRound]),
    case(
        Size::Large,
        LEVEL,
        &[
            Mutant::JoinConfirmedAtOnce,
            Mutant::JoinConfirmedByEarlierRound,
            Mutant::AdoptByAttemptOnly,
            Mutant::NoGrantNumber,
            Mutant::ExtendSets,
        ],
    ),
    Case {
        overlaps: &[Mutant::ReleaseOnLocalDeadline],
        ..case(
            Size::Large,
            Setup { name: "a replica adopts, one process twice", one_process: true, ..REPLICA },
            &[Mutant::ReleaseOnLocalDeadline],
        )
    },
    case(
        Size::Large,
        Setup { name: "seal against extension, longer lease", ttl: 3, ..SEALED },
        &[Mutant::SealVotesExpired],
    ),
    case(
        Size::Large,
        Setup { name: "a process keeps an unconfirmed term and another adopts", unconfirm: true, ..REPLICA },
        &[],
    ),
    case(Size::Large, Setup { name: "a node votes again and keys vanish", returns: 1, ..LEVEL }, &[]),
    case(
        Size::Large,
        Setup {
            name: "a node votes again, rounds of two ticks",
            returns: 1,
            joins: 1,
            in_turn: true,
            lossy: false,
            ..SLOW
        },
        &[],
    ),
    case(Size::Large, Setup { name: "restart", crashes: 1, unanswered: true, ..BASIC }, &[]),
    Case {
        overlaps: &[Mutant::UnknownWriteReleased, Mutant::ForgetReleasesPublishing],
        ..case(
            Size::Large,
            Setup { name: "publication and a replica", adopt: true, unanswered: true, forget: true, ..BASIC },
            &[Mutant::UnknownWriteReleased, Mutant::ForgetReleasesPublishing],
        )
    },
    Case {
        overlaps: &[Mutant::DeadlineFromReply],
        ..case(
            Size::Large,
            Setup { name: "slow rounds in turn", renew_interval: 3, command_timeout: 3, in_turn: true, ..SLOW },
            &[Mutant::DeadlineFromReply],
        )
    },
    case(Size::Middle, KEYS, &[Mutant::ConfirmFirstKeyOnly, Mutant::CounterPerLease]),
    case(
        Size::Large,
        Setup { name: "broken connections", broken: true, one_process: true, unanswered: true, ..BASIC },
        &[],
    ),
    case(Size::Middle, REPLICA, &[]),
    case(Size::Middle, Setup { name: "proposals, a replica adopts", proposals: PROPOSALS, ..REPLICA }, &[]),
    case(
        Size::Large,
        Setup { name: "proposals, overlapping key sets", proposals: PROPOSALS, fences: &[[0, 0, 1]], ..KEYS },
        &[Mutant::ProposalTakenByTooFew, Mutant::ProposalNotAbove],
    ),
    case(
        Size::Middle,
        Setup { name: "proposals that differ", proposals: [Some(Token(2)), Some(Token(1))], ..CONTENDERS },
        &[],
    ),
    case(
        Size::Large,
        Setup { name: "another process seals, in turn", in_turn: true, lossy: false, ..OTHER_SEALS },
        &[Mutant::WordBeforeSeal],
    ),
    case(Size::Large, OWNER_SEALS, &[]),
    case(
        Size::Middle,
        SEALED,
        &[Mutant::SealOnTooFew, Mutant::AbsentCountedAsSealed, Mutant::ExtendUnseals, Mutant::SealShortens],
    ),
    case(
        Size::Large,
        Setup { name: "a process keeps an unconfirmed term and another seals", unconfirm: true, ..SEALED },
        &[],
    ),
    case(Size::Large, SLOW, &[]),
    case(Size::Middle, CONTENDERS, &[]),
    case(Size::Middle, Setup { name: "a node votes again", returns: 1, joins: 1, ..BASIC }, &[]),
    case(Size::Middle, Setup { name: "proof of death", death: true, ..BASIC }, &[]),
    case(Size::Middle, Setup { name: "no deadline in the scripts", late_guard: false, ..BASIC }, &[]),
    case(Size::Quick, Setup { name: "counters that were lost", history: 5, ..BASIC }, &[Mutant::NoStatusFloor]),
    Case {
        overlaps: &[Mutant::NoLocalDeadline],
        ..case(Size::Quick, BASIC, &[Mutant::NoLocalDeadline, Mutant::ReleaseIgnoresAttempt])
    },
    case(
        Size::Quick,
        Setup { name: "attempts in turn", in_turn: true, lossy: false, ..BASIC },
        &[Mutant::ReusedAttempt],
    ),
    case(
        Size::Quick,
        Setup { name: "proposals in turn", proposals: PROPOSALS, in_turn: true, lossy: false, ..BASIC },
        &[Mutant::ProposalNotAbove, Mutant::ProposalNotCounted],
    ),
    case(
        Size::Quick,
        Setup { name: "a shorter duration", ttl: 3, new_ttl: 2, contend: false, ..BASIC },
        &[Mutant::ExtendShortens],
    ),
    case(
        Size::Quick,
        Setup { name: "a longer duration", ttl: 2, new_ttl: 3, contend: false, ..BASIC },
        &[Mutant::ConfigureInFlight],
    ),
];

/// Servers that lose their memory twice, and two processes that admit them again.
const FLUSHES: AdmissionSetup = AdmissionSetup {
    name: "two flushes",
    ttl: 2,
    other_longest: 2,
    losses: 2,
    restart: false,
    new: false,
    tokens: false,
    admitters: 2,
    fences: [0, 0, 0],
    mutant: None,
};

const fn admission(size: Size, setup: AdmissionSetup, bugs: &'static [Mutant]) -> Case<AdmissionSetup> {
    Case { size, setup, bugs, overlaps: &[] }
}

pub const ADMISSIONS: [Case<AdmissionSetup>; 7] = [
    // Without a quarantine this is a quorum that is initialised at once.
    admission(
        Size::Middle,
        AdmissionSetup { name: "a new quorum and a flush", new: true, losses: 1, ..FLUSHES },
        &[Mutant::NoQuarantine],
    ),
    admission(Size::Large, AdmissionSetup { name: "two restarts", restart: true, ..FLUSHES }, &[]),
    admission(Size::Middle, FLUSHES, &[Mutant::TicketNotCompared]),
    admission(
        Size::Middle,
        AdmissionSetup { name: "different longest leases", other_longest: 1, ..FLUSHES },
        &[Mutant::LongestLeaseNotInFingerprint],
    ),
    admission(
        Size::Middle,
        AdmissionSetup { name: "counters after two flushes", tokens: true, admitters: 1, fences: [0, 0, 1], ..FLUSHES },
        &[Mutant::SeedBeforeWait, Mutant::SeedFromUnadmitted],
    ),
    admission(Size::Quick, AdmissionSetup { name: "every server is flushed", losses: 3, admitters: 1, ..FLUSHES }, &[]),
    admission(
        Size::Quick,
        AdmissionSetup { name: "one flush", losses: 1, ..FLUSHES },
        &[Mutant::NoQuarantine, Mutant::WaitOneShort],
    ),
];
