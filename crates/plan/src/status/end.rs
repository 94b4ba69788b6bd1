//! The reasons why a term ends.

use redislease_core::lease::EndReason;

use crate::election::EndCause;

/// Why a term ended: by a decision of the operator, or because it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermEnd {
    /// The operator decided to end it.
    Decided(EndCause),
    /// So many Redis nodes no longer have the term's keys that no majority can renew it.
    KeysMissing,
    /// No majority of the Redis nodes renewed it before the deadline.
    RenewDeadline,
    /// After the operator started, no majority of the Redis nodes confirmed that it still exists.
    NeverConfirmed,
    /// The status names a later term.
    Superseded,
    /// The operator's state of it broke one of its own rules.
    InternalError,
    /// It has ended, and this operator did not observe why.
    Unobserved,
}

impl TermEnd {
    /// All reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        let others =
            [Self::KeysMissing, Self::RenewDeadline, Self::NeverConfirmed, Self::Superseded, Self::InternalError];
        EndCause::ALL.into_iter().map(Self::Decided).chain(others).chain([Self::Unobserved])
    }

    /// The reason as one word, for status, events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decided(cause) => cause.as_str(),
            Self::KeysMissing => "KeysMissing",
            Self::RenewDeadline => "RenewDeadline",
            Self::NeverConfirmed => "NeverConfirmed",
            Self::Superseded => "Superseded",
            Self::InternalError => "InternalError",
            Self::Unobserved => "Unobserved",
        }
    }

    /// The reason as a clause that follows a colon in messages.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Decided(cause) => match cause {
                EndCause::HolderStopped => "the holder has stopped",
                EndCause::HolderVanished => {
                    "the holder's pod is gone, and nothing proves that its containers have stopped"
                }
                EndCause::StopOverdue => "the holder did not stop within its deletion grace period plus gracePeriod",
                EndCause::HolderUnhealthy => "the holder was not Ready, or did not run, for election.unhealthyAfter",
                EndCause::NoLongerCandidate => "the holder is no longer a candidate",
                EndCause::HandoverRequested => "a handover was requested",
                EndCause::Suspended => "spec.suspend was set to true",
                EndCause::Deleted => "the RedisLease is being deleted",
                EndCause::QuorumChanged => "the RedisQuorum was replaced by one with another configuration",
                EndCause::NamespaceNotAllowed => {
                    "the RedisQuorum does not allow the namespace of the RedisLease any more"
                }
                EndCause::EndedElsewhere => "another replica of the operator ended it",
                EndCause::NotPublished => {
                    "the API server did not confirm the status write for it within one leaseDuration"
                }
            },
            Self::KeysMissing => "too many Redis nodes no longer have its keys",
            Self::RenewDeadline => "no majority of the Redis nodes renewed it in time",
            Self::NeverConfirmed => {
                "no majority of the Redis nodes confirmed it after the operator started, or after another replica took over"
            }
            Self::Superseded => "the status names a later term",
            Self::InternalError => "the operator has a defect; its log has the message to report",
            Self::Unobserved => "this operator did not observe why it ended",
        }
    }

    /// Whether the term was lost, as opposed to ended by a decision.
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::Decided(_))
    }

    /// The inverse of [`TermEnd::as_str`].
    pub fn from_word(word: &str) -> Option<Self> {
        Self::all().find(|end| end.as_str() == word)
    }

    /// Combines the reason that the lock layer reports with the operator's `cause`, if the operator decided the end.
    pub(super) fn of(reason: EndReason, cause: Option<EndCause>) -> Self {
        match reason {
            EndReason::Decided => cause.map_or(Self::Unobserved, Self::Decided),
            EndReason::Misses => Self::KeysMissing,
            EndReason::Deadline => Self::RenewDeadline,
            EndReason::NeverConfirmed => Self::NeverConfirmed,
            EndReason::Superseded => Self::Superseded,
            EndReason::Defect => Self::InternalError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_for_one_reason() {
        for end in TermEnd::all() {
            assert_eq!(TermEnd::from_word(end.as_str()), Some(end));
        }
        assert_eq!(TermEnd::from_word("Acquired"), None);
        assert_eq!(TermEnd::all().count(), 18);
    }
}
