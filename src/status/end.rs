//! Why a term ended.

use redislease_core::lease::EndReason;

use crate::election::EndCause;

/// Why a term ended, decided or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermEnd {
    /// The operator ended it.
    Decided(EndCause),
    /// So many nodes did not have the term's value any more that it was lost.
    KeysMissing,
    /// No majority extended it in time.
    RenewDeadline,
    /// No majority confirmed it after this process had begun.
    NeverConfirmed,
    /// The status named a later term.
    Superseded,
    /// It ended while nobody watched.
    Unobserved,
}

impl TermEnd {
    /// Every end.
    pub const ALL: [Self; 15] = {
        let [a, b, c, d, e, f, g, h, i, j] = EndCause::ALL;
        [
            Self::Decided(a),
            Self::Decided(b),
            Self::Decided(c),
            Self::Decided(d),
            Self::Decided(e),
            Self::Decided(f),
            Self::Decided(g),
            Self::Decided(h),
            Self::Decided(i),
            Self::Decided(j),
            Self::KeysMissing,
            Self::RenewDeadline,
            Self::NeverConfirmed,
            Self::Superseded,
            Self::Unobserved,
        ]
    };

    /// [`TermEnd::as_str`] of every end: the label values of the metric that counts them.
    pub const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].as_str();
            at += 1;
        }
        words
    };

    /// The end as one word: what stands in status, events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decided(cause) => cause.as_str(),
            Self::KeysMissing => "KeysMissing",
            Self::RenewDeadline => "RenewDeadline",
            Self::NeverConfirmed => "NeverConfirmed",
            Self::Superseded => "Superseded",
            Self::Unobserved => "Unobserved",
        }
    }

    /// The end as a sentence's second half: "the term was ended because ...".
    pub(super) const fn because(self) -> &'static str {
        match self {
            Self::Decided(cause) => match cause {
                EndCause::HolderStopped => "the holder has stopped",
                EndCause::HolderVanished => "the holder is gone without a proof that it has stopped",
                EndCause::StopOverdue => "the holder did not stop in the time it was given",
                EndCause::HolderUnhealthy => "the holder was not Ready for too long",
                EndCause::NoLongerCandidate => "the holder is no candidate any more",
                EndCause::Suspended => "the lease is suspended",
                EndCause::Deleted => "the lease is deleted",
                EndCause::QuorumChanged => "the quorum behind the name is another one",
                EndCause::EndedElsewhere => "another operator has ended it",
                EndCause::NotPublished => "the API server did not take it in time",
            },
            Self::KeysMissing => "too many nodes of the quorum do not hold its keys any more",
            Self::RenewDeadline => "no majority of the quorum renewed it in time",
            Self::NeverConfirmed => "no majority of the quorum confirmed it after the operator had started",
            Self::Superseded => "the status names a later term",
            Self::Unobserved => "its keys ended while nobody watched",
        }
    }

    /// Whether the term was lost rather than ended by decision.
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::Decided(_))
    }

    /// The end that stands as `word` in a status.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.as_str() == word)
    }

    /// What the keeper says, with the cause if the operator decided it.
    pub(super) fn of(reason: EndReason, cause: Option<EndCause>) -> Self {
        match reason {
            EndReason::Decided => cause.map_or(Self::Unobserved, Self::Decided),
            EndReason::Misses => Self::KeysMissing,
            EndReason::Deadline => Self::RenewDeadline,
            EndReason::NeverConfirmed => Self::NeverConfirmed,
            EndReason::Superseded => Self::Superseded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_for_one_end() {
        for end in TermEnd::ALL {
            assert_eq!(TermEnd::from_word(end.as_str()), Some(end));
        }
        assert_eq!(TermEnd::from_word("Acquired"), None);
        assert_eq!(TermEnd::WORDS[0], "HolderStopped");
    }
}
