//! The lock, and the keeper of one process, reduced to what the reconciler can see of them.
//!
//! At most one term is alive. Its token is greater than every earlier one. A process may learn late that a term has ended. No
//! process holds a term when the next one begins: its own deadline has passed before the keys end.

use redislease_core::lease::{
    Config, EndReason, EndingView, OnDeadline, Publication, Refusal, Standing, TermId, TermView, View,
};
use redislease_core::op::{Attempt, Holder, Stage, Stored, Token};
use redislease_core::time::Time;
use redislease_plan::election::HolderName;
use redislease_plan::plan::Command;

use crate::objects::{LEASE, WORKLOAD_UID};
use crate::shared::{NAMESPACE, cluster, pod_uid};

/// A time that no run reaches.
const FAR: Time = Time(1_000_000_000_000);

/// The state of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// No keys exist.
    Free,
    /// The last term can be extended.
    Alive,
    /// No process can extend the last term, and its keys still exist.
    Sealed,
}

/// The lock on the Redis nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The token and attempt of the last term.
    pub last: u8,
    /// The cluster that took it.
    pub cluster: u8,
    /// Its keys.
    pub keys: Keys,
}

impl Lock {
    /// Whether this term can be extended.
    pub const fn keeps(self, term: u8) -> bool {
        self.last == term && matches!(self.keys, Keys::Alive)
    }

    /// A process has ended this term: with proof its keys are gone, otherwise they end by themselves.
    pub fn end(&mut self, term: u8, proof: bool) {
        if self.last == term && self.keys != Keys::Free {
            self.keys = if proof { Keys::Free } else { Keys::Sealed };
        }
    }
}

/// Where the machine stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stand {
    #[default]
    Idle,
    Acquiring,
    Publishing(u8),
    Held(u8),
    Adopting(u8),
    Uncertain(u8),
}

impl Stand {
    /// The running term.
    pub const fn term(self) -> Option<u8> {
        match self {
            Self::Idle | Self::Acquiring => None,
            Self::Publishing(term) | Self::Held(term) | Self::Adopting(term) | Self::Uncertain(term) => Some(term),
        }
    }

    /// Whether the process believes in the term: then its keys last.
    pub const fn believes(self) -> Option<u8> {
        match self {
            Self::Publishing(term) | Self::Held(term) => Some(term),
            _ => None,
        }
    }
}

/// What happens to a keeper without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// The attempt takes the lock with this token.
    Granted(u8),
    /// Another holder's term, with this token and cluster, refuses the attempt.
    Refused(u8, u8),
    /// No majority answers the attempt.
    Failed,
    /// The process cannot extend its term in time.
    Lost,
    /// The nodes say that its term is over.
    Missed,
    /// Its clock jumped, or it woke late.
    Doubted,
    /// A majority extends the term.
    Confirmed,
    /// The term stays unconfirmed for one renewal interval.
    Overdue,
    /// The term stays unconfirmed for one lease.
    NeverConfirmed,
    /// The keys of the term that it ended are gone, or the back-off after a refusal is over.
    MayTry,
}

/// The keeper of one process.
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the machine")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keeper {
    /// Whether a machine exists.
    pub is_open: bool,
    pub stand: Stand,
    /// What it does at a deadline.
    pub unconfirms: bool,
    /// The term that it has ended and whose keys may still exist, and why.
    pub ending: Option<(u8, EndReason)>,
    /// The token and cluster that refused the last attempt.
    pub refused: Option<(u8, u8)>,
    /// When the last attempt began.
    pub asked_at: u64,
    /// Whether an attempt may begin.
    pub may_try: bool,
    /// Whether the status was seen to call the term unconfirmed.
    pub is_shown: bool,
    /// For whom the attempt or the term is.
    pub holder: Option<Holder>,
}

impl Keeper {
    /// Begins anew.
    pub fn open(&mut self, config: &Config) {
        let unconfirms = config.deadline == OnDeadline::Unconfirm;
        *self = Self { is_open: true, may_try: true, unconfirms, ..Self::default() };
    }

    /// Takes a command. Returns the term that it ends, and whether with proof.
    pub fn command(&mut self, now: Time, command: &Command) -> Option<(u8, bool)> {
        match command {
            Command::Configure(config) => self.unconfirms = config.deadline == OnDeadline::Unconfirm,
            Command::Want(holder) if self.stand == Stand::Idle && self.may_try => {
                self.stand = Stand::Acquiring;
                self.holder = Some(holder.clone());
                (self.refused, self.asked_at) = (None, now.0);
            }
            Command::Forget => {
                self.refused = None;
                if self.stand == Stand::Acquiring {
                    self.stand = Stand::Idle;
                }
            }
            Command::Adopt(term) | Command::AdoptOverrun(term) => self.adopt(term),
            Command::UnconfirmedShown(_) => self.is_shown |= matches!(self.stand, Stand::Uncertain(_)),
            Command::KeptElsewhere(_) => {
                if let Stand::Uncertain(term) = self.stand {
                    (self.stand, self.is_shown) = (Stand::Adopting(term), false);
                }
            }
            Command::End { term, proof } => return Some(self.end(term, *proof)),
            Command::Published { attempt, outcome } => return self.published(*attempt, *outcome),
            Command::TryNow => self.may_try |= self.stand == Stand::Idle && self.ending.is_none(),
            Command::Close => *self = Self::default(),
            _ => {}
        }
        None
    }

    fn adopt(&mut self, term: &TermId) {
        let token = number(term);
        let ends = self.ending.is_some_and(|(ending, _)| ending == token);
        if self.stand.term().is_none() && !ends {
            (self.stand, self.holder, self.is_shown) = (Stand::Adopting(token), Some(term.holder.clone()), false);
        }
    }

    fn published(&mut self, attempt: Attempt, outcome: Publication) -> Option<(u8, bool)> {
        let Stand::Publishing(term) = self.stand else { return None };
        if u128::from(term) != attempt.0 {
            return None;
        }
        match outcome {
            Publication::Written => self.stand = Stand::Held(term),
            Publication::Superseded => return Some(self.give_up(term, EndReason::Superseded)),
            Publication::Unknown => {}
        }
        None
    }

    fn end(&mut self, id: &TermId, proof: bool) -> (u8, bool) {
        let term = number(id);
        if self.stand.term().is_some_and(|running| running != term) {
            return (term, proof);
        }
        self.holder = Some(id.holder.clone());
        self.stand = Stand::Idle;
        (self.ending, self.may_try) = (Some((term, EndReason::Decided)).filter(|_| !proof), proof);
        (term, proof)
    }

    fn give_up(&mut self, term: u8, reason: EndReason) -> (u8, bool) {
        (self.stand, self.ending, self.may_try) = (Stand::Idle, Some((term, reason)), false);
        (term, false)
    }

    /// What happens to the keeper. Returns the term that it ends, and whether with proof.
    pub fn turn(&mut self, turn: Turn) -> Option<(u8, bool)> {
        match (turn, self.stand) {
            (Turn::Granted(token), Stand::Acquiring) => self.stand = Stand::Publishing(token),
            (Turn::Refused(token, cluster), Stand::Acquiring) => {
                (self.stand, self.refused, self.may_try) = (Stand::Idle, Some((token, cluster)), false);
            }
            (Turn::Failed, Stand::Acquiring) => (self.stand, self.may_try) = (Stand::Idle, false),
            (Turn::Lost, Stand::Held(term)) if self.unconfirms => self.stand = Stand::Adopting(term),
            (Turn::Lost, Stand::Held(term) | Stand::Publishing(term)) => {
                return Some(self.give_up(term, EndReason::Deadline));
            }
            (Turn::Missed, Stand::Held(term) | Stand::Adopting(term) | Stand::Uncertain(term)) => {
                return Some(self.give_up(term, EndReason::Misses));
            }
            (Turn::Doubted, Stand::Held(term)) => (self.stand, self.is_shown) = (Stand::Adopting(term), false),
            (Turn::Confirmed, Stand::Adopting(term) | Stand::Uncertain(term)) => self.stand = Stand::Held(term),
            (Turn::Overdue, Stand::Adopting(term)) => self.stand = Stand::Uncertain(term),
            (Turn::NeverConfirmed, Stand::Uncertain(term)) => {
                return Some(self.give_up(term, EndReason::NeverConfirmed));
            }
            (Turn::MayTry, Stand::Idle) => (self.ending, self.refused, self.may_try) = (None, None, true),
            _ => {}
        }
        None
    }

    fn id(&self, term: u8) -> TermId {
        let holder = self.holder.clone().unwrap_or(Holder("".into()));
        TermId { attempt: Attempt(u128::from(term)), token: Token(u64::from(term)), holder }
    }

    /// The view that the reconciler gets.
    pub fn view(&self) -> View {
        let term = |term, valid: bool| {
            let at = valid.then_some(FAR);
            TermView { id: self.id(term), valid_until: at, stop_at: at, failed_rounds: 0 }
        };
        let standing = match self.stand {
            Stand::Idle => Standing::Idle,
            Stand::Acquiring => Standing::Acquiring(Attempt(0), self.holder.clone().unwrap_or(Holder("".into()))),
            Stand::Publishing(token) => Standing::Publishing(term(token, true)),
            Stand::Held(token) => Standing::Held(term(token, true)),
            Stand::Adopting(token) => Standing::Adopting(term(token, false)),
            Stand::Uncertain(token) => Standing::Uncertain(term(token, false)),
        };
        let ending = self.ending.map(|(token, reason)| {
            let sealed = reason != EndReason::Misses;
            Box::new(EndingView { id: self.id(token), reason, sealed, keys_until: FAR })
        });
        let is_idle = self.stand == Stand::Idle;
        View {
            standing,
            ending,
            retry_at: is_idle.then_some(if self.may_try { Time(0) } else { FAR }),
            refused_by: self.refused.map(|(token, cluster)| Box::new(stored(token, cluster))),
            keys_read: self.refused.is_some(),
            refusal: self.refused.map(|_| Refusal { asked_at: Time(self.asked_at), until: FAR }),
        }
    }

    /// The end of the time for which the process may act on its term.
    pub fn stop_at(&self) -> Option<Time> {
        self.stand.believes().map(|_| FAR)
    }
}

/// The number of a term.
pub fn number(id: &TermId) -> u8 {
    u8::try_from(id.token.0).unwrap_or(u8::MAX)
}

/// The value of a term on the nodes.
fn stored(token: u8, of: u8) -> Stored {
    let holder = HolderName {
        cluster: cluster(usize::from(of)),
        namespace: NAMESPACE.into(),
        lease: LEASE.into(),
        pod: LEASE.into(),
        pod_uid: pod_uid(WORKLOAD_UID),
    };
    let metadata = holder.to_string();
    Stored { stage: Stage::Term, attempt: Attempt(u128::from(token)), number: u64::from(token), metadata }
}
