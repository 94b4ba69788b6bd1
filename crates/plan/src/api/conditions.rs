//! Condition types and their reasons, as fixed sets.
//!
//! Each reason determines the status of its condition. A contradictory pair, such as `Ready=True` with reason
//! `NoCandidate`, cannot be written.

/// The types of the conditions on a `RedisLease` and on a `RedisQuorum`, in the order in which status lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// On a lease: a pod of this or another cluster holds it. On a quorum: leases can be acquired on it.
    Ready,
    /// A pod of this cluster holds the lease. `kubectl wait --for=condition=Active` waits for this.
    Active,
    /// At least one eligible pod could take over from the holder immediately.
    CandidatesAvailable,
    /// How many more nodes the quorum can lose before it loses its majority.
    QuorumHealthy,
}

words!(ConditionType: Ready, Active, CandidatesAvailable, QuorumHealthy);

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The operator does not know yet whether the condition is met.
    Unknown,
}

words!(ConditionStatus: True, False, Unknown);

/// A condition reason: it determines the condition's type and status.
pub trait ConditionReason: Copy {
    /// The type of the condition that this set of reasons belongs to.
    const TYPE: ConditionType;

    /// The status that the condition has with this reason.
    fn status(self) -> ConditionStatus;

    /// The value of `status.conditions[].reason`.
    fn as_str(self) -> &'static str;

    /// The doc comment of the reason, for docs/conditions.md.
    fn description(self) -> &'static str;
}

macro_rules! reasons {
    ($(#[$set:meta])* $name:ident of $condition:ident {
        $($(#[doc = $doc:literal])+ $reason:ident => $status:ident,)+
    }) => {
        $(#[$set])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $doc])+ $reason,)+
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

            fn description(self) -> &'static str {
                match self {
                    $(Self::$reason => concat!($($doc),+),)+
                }
            }
        }
    };
}

reasons! {
    /// Reasons of `Ready` on a lease. A passive cluster is `Ready=True` too, so that GitOps tools report it as healthy.
    LeaseReady of Ready {
        /// A pod of this cluster holds the lease.
        HeldHere => True,
        /// A pod of another cluster holds the lease, as the last attempt has shown, or the last read of the keys. While no attempt can
        /// begin, the operator reads them once in each `leaseDuration`.
        HeldByPeerCluster => True,
        /// No pod is eligible.
        NoCandidate => False,
        /// Fewer than a majority of the quorum's nodes vote, or the quorum was replaced and cannot be used yet.
        QuorumUnavailable => False,
        /// `spec.suspend` is true. If something runs on because it cannot be stopped, the message says so.
        Suspended => False,
        /// An object that the spec names does not exist or cannot be used.
        InvalidReference => False,
        /// The spec has values that do not work, and that admission cannot check. Or the status has a fencing token that no Redis
        /// node gave.
        InvalidSpec => False,
        /// The operator runs without the flag that the activation of the spec needs.
        ActivationNotAllowed => False,
        /// The workload does not name this lease, or its annotations say something else than the spec, or a stop would delete its
        /// volumes: the operator does not start or stop it.
        NotPermitted => False,
        /// The operator has no right to read, start or stop the workload that the spec names, or the API server refuses a start or a
        /// stop: the holder is not started, its term goes on although something asks for its end, or what held the lease last runs on.
        Forbidden => False,
        /// Another lease of this cluster holds one of the keys, or a program that uses `redislease run` or the library.
        KeyHeldByOtherLease => False,
        /// No pod holds the lease. The operator elects a pod as soon as the keys are free.
        Unheld => False,
        /// The operator does not know the state of the lease: it has just started, or it cannot read the workload that the spec
        /// names.
        Starting => Unknown,
    }
}

reasons! {
    /// Reasons of `Active` on a lease.
    LeaseActive of Active {
        /// A pod of this cluster holds the lease.
        HeldHere => True,
        /// A pod of another cluster holds the lease.
        HeldByPeerCluster => False,
        /// No pod of this cluster holds the lease.
        Unheld => False,
        /// The operator ended the term. The holder must stop; no other pod can acquire the lease yet.
        Stopping => False,
        /// The term was lost: no majority of the nodes renewed it in time, or too many nodes no longer have its keys.
        LeaseLost => False,
        /// The operator has not confirmed on the quorum yet that the term in status still exists.
        Starting => Unknown,
    }
}

reasons! {
    /// Reasons of `CandidatesAvailable` on a lease.
    LeaseCandidates of CandidatesAvailable {
        /// At least one pod other than the holder is eligible.
        StandbyAvailable => True,
        /// With granularity Cluster: the workload exists and can hold the lease. Whether another cluster can is not known here.
        WorkloadAvailable => True,
        /// The holder is the only eligible pod.
        OnlyHolder => False,
        /// No pod is eligible, or the reference to the workload cannot be used.
        NoCandidate => False,
    }
}

reasons! {
    /// Reasons of `QuorumHealthy` on a quorum and on a lease.
    QuorumHealth of QuorumHealthy {
        /// All nodes vote. Only on a quorum.
        AllReachable => True,
        /// A majority of the nodes votes. Only on a lease, which does not report single nodes.
        MajorityReachable => True,
        /// At least one node does not vote. At least one more node can fail before the majority is lost.
        Degraded => False,
        /// Exactly a majority of the nodes votes. If one more node fails, the majority is lost.
        AtRisk => False,
        /// Fewer than a majority of the nodes vote.
        Lost => False,
        /// The marker key on a node names another quorum configuration.
        ConfigMismatch => False,
        /// Another cluster on this quorum uses the cluster name of this cluster.
        ClusterNameConflict => False,
        /// The operator cannot use the RedisQuorum, as its condition Ready says, and is connected to no node.
        NotConnected => Unknown,
    }
}

reasons! {
    /// Reasons of `Ready` on a quorum.
    QuorumReady of Ready {
        /// A majority of the nodes votes.
        QuorumAvailable => True,
        /// Fewer than a majority of the nodes vote, or the RedisQuorum was replaced and leases are still ended on the old nodes.
        QuorumUnavailable => False,
        /// A Secret that the spec names does not exist, or its password or certificates cannot be used.
        InvalidReference => False,
        /// The spec has values that do not work, and that admission cannot check.
        InvalidSpec => False,
        /// The operator has started and has not tried to reach every node yet.
        Starting => Unknown,
    }
}
