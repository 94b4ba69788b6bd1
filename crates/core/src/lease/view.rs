//! What a lease shows to the rest of the process.

use crate::lease::{Lease, TermId};
use crate::op::{Attempt, Holder, Stored};
use crate::time::Time;

/// Why a term ended, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Somebody said so.
    Decided,
    /// Too many nodes do not hold the term any more.
    Misses,
    /// No majority extended it in time.
    Deadline,
    /// An adopted term was never confirmed.
    NeverConfirmed,
    /// The status names a later term, or nothing that could hold this one.
    Superseded,
}

/// A term that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermView {
    /// Which.
    pub id: TermId,
    /// When the holder must not be believed in any more; `None` until an adopted term is confirmed.
    pub valid_until: Option<Time>,
    /// When this process gives up.
    pub stop_at: Option<Time>,
    /// Rounds that failed since the last success.
    pub failed_rounds: u32,
}

/// A term that was given up and whose keys may still stand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndingView {
    /// Which.
    pub id: TermId,
    /// Why.
    pub reason: EndReason,
    /// Whether the seal holds on enough nodes that nobody can extend it.
    pub sealed: bool,
    /// When the last of its keys has certainly ended.
    pub keys_until: Time,
}

/// Where the lease stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing is held and nothing is tried now.
    #[default]
    Idle,
    /// An attempt is under way.
    Acquiring(Attempt, Holder),
    /// A majority confirmed the term; the status does not certainly name it yet.
    Publishing(TermView),
    /// The term runs and everybody may know.
    Held(TermView),
    /// The status names the term; this process has not confirmed it yet.
    Adopting(TermView),
    /// As adopting, for longer than one renewal may take: nothing is known, so nothing may be said.
    Uncertain(TermView),
}

impl Standing {
    /// The running term, in whatever state.
    pub const fn term(&self) -> Option<&TermView> {
        match self {
            Self::Publishing(term) | Self::Held(term) | Self::Adopting(term) | Self::Uncertain(term) => Some(term),
            Self::Idle | Self::Acquiring(..) => None,
        }
    }
}

/// Everything a lease shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// Where it stands.
    pub standing: Standing,
    /// The term before, while its keys may still stand.
    pub ending: Option<EndingView>,
    /// From when on an attempt begins at once, if none is under way.
    pub retry_at: Option<Time>,
    /// Whose value refused the last try.
    pub refused_by: Option<Stored>,
}

pub(super) fn of(lease: &Lease) -> View {
    let standing = match (&lease.term, &lease.acquiring) {
        (Some(term), _) => term.standing(),
        (None, Some(acquiring)) => Standing::Acquiring(acquiring.want.attempt, acquiring.want.holder.clone()),
        (None, None) => Standing::Idle,
    };
    let idle = standing == Standing::Idle;
    View {
        standing,
        ending: lease.ending.as_ref().map(super::Ending::view),
        retry_at: idle.then(|| lease.attempt_allowed_at()),
        refused_by: lease.refused_by.clone(),
    }
}
