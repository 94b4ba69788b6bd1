//! Condition types and their reasons as fixed sets. A reason fixes the status of its condition, so that a pair which means nothing,
//! such as `Ready=True` with `NoCandidate`, cannot be written.

/// The types of the conditions on a `RedisLease` and a `RedisQuorum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// Nothing is wrong: on a lease, somebody holds it, here or in another cluster; on a quorum, leases can be taken on it.
    Ready,
    /// A pod of this cluster holds the lease: what `kubectl wait --for=condition=Active` waits for.
    Active,
    /// Somebody could take over from the holder at once.
    CandidatesAvailable,
    /// How far the quorum is from losing its majority.
    QuorumHealthy,
}

impl ConditionType {
    /// All types, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Active, Self::CandidatesAvailable, Self::QuorumHealthy];

    /// The type as it stands in `status.conditions[].type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Active => "Active",
            Self::CandidatesAvailable => "CandidatesAvailable",
            Self::QuorumHealthy => "QuorumHealthy",
        }
    }
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Nobody has found out yet: neither yes nor no.
    Unknown,
}

impl ConditionStatus {
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// The status as it stands in `status.conditions[].status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A reason says which condition it belongs to and what it makes of it.
pub trait ConditionReason: Copy {
    /// The condition this set of reasons belongs to.
    const TYPE: ConditionType;

    /// The status the condition has for this reason.
    fn status(self) -> ConditionStatus;

    /// The reason as it stands in `status.conditions[].reason`.
    fn as_str(self) -> &'static str;
}

macro_rules! reasons {
    ($(#[$set:meta])* $name:ident of $condition:ident {
        $($(#[$doc:meta])* $reason:ident => $status:ident,)+
    }) => {
        $(#[$set])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $reason,)+
        }

        impl $name {
            /// Every reason of the set.
            pub const ALL: &[Self] = &[$(Self::$reason),+];
        }

        impl ConditionReason for $name {
            const TYPE: ConditionType = ConditionType::$condition;

            fn status(self) -> ConditionStatus {
                match self {
                    $(Self::$reason => ConditionStatus::$status,)+
                }
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }
        }
    };
}

reasons! {
    /// Why a lease is ready or not. A healthy passive cluster is ready too, so that tools that wait for it stay green.
    LeaseReady of Ready {
        /// A pod of this cluster holds the lease.
        HeldHere => True,
        /// A pod of another cluster holds the lease.
        HeldByPeerCluster => True,
        /// No pod may be elected.
        NoCandidate => False,
        /// Too few nodes of the quorum give votes.
        QuorumUnavailable => False,
        /// The spec says `suspend: true`.
        Suspended => False,
        /// An object the spec names does not exist or cannot be used.
        InvalidReference => False,
        /// The spec asks for something that cannot be done and that admission could not see.
        InvalidSpec => False,
        /// Another lease of this cluster holds one of the keys.
        KeyHeldByOtherLease => False,
        /// Nobody holds the lease, and nothing stands in the way of the next election.
        Unheld => False,
        /// This process has not found out yet.
        Starting => Unknown,
    }
}

reasons! {
    /// Why a lease is active in this cluster or not.
    LeaseActive of Active {
        /// A pod of this cluster holds the lease.
        HeldHere => True,
        /// A pod of another cluster holds the lease.
        HeldByPeerCluster => False,
        /// Nobody holds the lease.
        Unheld => False,
        /// The term was ended by decision: the holder is stopping, and nobody else may start yet.
        Stopping => False,
        /// The term was lost with the quorum.
        LeaseLost => False,
        /// This process has not yet confirmed the term that status names.
        Starting => Unknown,
    }
}

reasons! {
    /// Whether somebody could take over.
    LeaseCandidates of CandidatesAvailable {
        /// At least one pod beside the holder may be elected.
        StandbyAvailable => True,
        /// The holder is the only pod that may be elected.
        OnlyHolder => False,
        /// No pod may be elected.
        NoCandidate => False,
    }
}

reasons! {
    /// How far the quorum is from losing its majority.
    QuorumHealth of QuorumHealthy {
        /// Every node gives votes. Shown on a quorum.
        AllReachable => True,
        /// A majority gives votes. Shown on a lease, where a node that comes and goes is no news.
        MajorityReachable => True,
        /// A node gives no votes; another may fail.
        Degraded => False,
        /// A majority gives votes, and the next failure ends it.
        AtRisk => False,
        /// Fewer than a majority give votes.
        Lost => False,
        /// A node's marker was written for another configuration.
        ConfigMismatch => False,
        /// Another cluster on this quorum uses the same cluster name.
        ClusterNameConflict => False,
    }
}

reasons! {
    /// Why leases can be taken on a quorum or not.
    QuorumReady of Ready {
        /// A majority gives votes.
        QuorumAvailable => True,
        /// Fewer than a majority give votes.
        QuorumUnavailable => False,
        /// The secret the spec names does not exist or has no password.
        InvalidReference => False,
        /// The spec asks for something that cannot be done and that admission could not see.
        InvalidSpec => False,
        /// This process has not found out yet.
        Starting => Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionStatus::{False, True, Unknown};

    fn shown<R: ConditionReason>(all: &[R]) -> Vec<(&'static str, ConditionStatus)> {
        all.iter().map(|r| (r.as_str(), r.status())).collect()
    }

    /// One row of the table in the README.
    fn row<R: ConditionReason>(on: &str, all: &[R]) -> String {
        let with = |status: ConditionStatus| {
            let reasons = shown(all).into_iter().filter(|(_, of)| *of == status).map(|(reason, _)| reason);
            reasons.collect::<Vec<_>>().join(", ")
        };
        let row = format!("| {on} | {} | {} | {} | {} |", R::TYPE.as_str(), with(True), with(False), with(Unknown));
        row.replace("|  |", "| |")
    }

    #[test]
    fn the_readme_lists_the_conditions() {
        let rows = [
            row("RedisLease", LeaseReady::ALL),
            row("RedisLease", LeaseActive::ALL),
            row("RedisLease", LeaseCandidates::ALL),
            row("both", QuorumHealth::ALL),
            row("RedisQuorum", QuorumReady::ALL),
        ];
        let readme = include_str!("../../README.md");
        let listed: Vec<_> = readme.lines().filter(|line| rows.iter().any(|row| row == line)).collect();
        assert!(listed == rows, "the table in README.md should be\n{}", rows.join("\n"));
    }

    #[test]
    fn a_reason_fixes_its_condition_and_status() {
        assert_eq!(LeaseReady::TYPE.as_str(), "Ready");
        assert_eq!(
            shown(LeaseActive::ALL),
            [
                ("HeldHere", True),
                ("HeldByPeerCluster", False),
                ("Unheld", False),
                ("Stopping", False),
                ("LeaseLost", False),
                ("Starting", Unknown),
            ]
        );
        assert_eq!(
            shown(LeaseCandidates::ALL),
            [("StandbyAvailable", True), ("OnlyHolder", False), ("NoCandidate", False)]
        );
        let ready: Vec<_> = shown(LeaseReady::ALL).into_iter().filter(|(_, s)| *s == True).collect();
        assert_eq!(ready, [("HeldHere", True), ("HeldByPeerCluster", True)]);
    }
}
