//! Kubernetes Events: the set of reasons, and one event to send.

/// The type of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Importance {
    /// Normal operation.
    Normal,
    /// Someone may have to act.
    Warning,
}

words!(Importance: Normal, Warning);

macro_rules! notices {
    ($($(#[doc = $doc:literal])+ $reason:ident => $importance:ident,)+) => {
        /// The reason of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NoticeReason {
            $($(#[doc = $doc])+ $reason,)+
        }

        words!(NoticeReason: $($reason),+);

        impl NoticeReason {
            /// The doc comment of the reason, for docs/conditions.md.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$reason => concat!($($doc),+),)+
                }
            }

            /// The type of an event with this reason.
            pub const fn importance(self) -> Importance {
                match self {
                    $(Self::$reason => Importance::$importance,)+
                }
            }
        }
    };
}

notices! {
    /// A term began.
    Acquired => Normal,
    /// The operator ended a term without proof that the holder has stopped. The holder must stop.
    Stopping => Normal,
    /// As `Stopping`, because the holder was not Ready, or did not run, for `unhealthyAfter`.
    HolderUnhealthy => Warning,
    /// As `Stopping`, because a handover was requested.
    HandoverRequested => Normal,
    /// The pod or cluster of a requested handover holds the lease, perhaps since before the request.
    HandoverCompleted => Normal,
    /// A requested handover did not move the lease as requested, or its result is not known. The message says why.
    HandoverFailed => Warning,
    /// The operator ended a term because the holder's pod does not exist any more.
    HolderVanished => Warning,
    /// The operator ended a term, and its keys are free now.
    Released => Normal,
    /// A term was lost.
    LeaseLost => Warning,
    /// The last two renewals failed. The lease is still held. It is lost when no renewal has succeeded for `leaseDuration` minus 1 %
    /// and 52 ms, minus `gracePeriod`, minus 1 s (18.6 s with the defaults).
    RenewFailing => Warning,
    /// No pod holds the lease, and no pod is eligible.
    NoCandidate => Warning,
    /// An object that the spec names does not exist or cannot be used.
    InvalidReference => Warning,
    /// The spec has values that do not work, or the status has a fencing token that no Redis node gave.
    InvalidSpec => Warning,
    /// The operator runs without the flag that the activation of the spec needs.
    ActivationNotAllowed => Warning,
    /// The workload does not name this lease, or its annotations say something else than the spec, or a stop would delete its volumes.
    NotPermitted => Warning,
    /// Another lease of this cluster holds a key, or a program that uses `redislease run` or the library.
    KeyHeldByOtherLease => Warning,
    /// Another cluster on the quorum has the same cluster name.
    ClusterNameConflict => Warning,
    /// Fewer nodes vote than before, but still a majority.
    QuorumDegraded => Warning,
    /// Fewer than a majority of the nodes vote.
    QuorumLost => Warning,
    /// More nodes vote than before.
    QuorumRestored => Normal,
    /// A node is new or has restarted. It does not vote until the quorum's longest lease has passed.
    NodeQuarantined => Warning,
    /// A node cannot be used as it is configured.
    NodeMisconfigured => Warning,
    /// The operator has a defect that affects this lease, and tries again. The message says which part failed.
    InternalError => Warning,
    /// The operator deleted a pod that it had started and that does not hold the lease any more, as `activation.schedulingGate` says.
    PodDeleted => Normal,
    /// The API server refused, or did not answer while it answered other calls, to start the elected pod, to delete a pod that lost
    /// the lease, or to scale, suspend or resume a workload. The message says why.
    ActivationRefused => Warning,
    /// The API server refused to write the label and the token of a pod, or three times the status of the lease, or did not answer
    /// while it answered other calls. Or it stored other values: the message then names the field, both values, and the manager of the
    /// field according to `managedFields`.
    WriteRefused => Warning,
    /// Others changed what the operator had written to a pod or a workload, and the operator writes it again. One event a minute tells
    /// of it.
    ChangedByOthers => Warning,
    /// A workload, a pod or a RedisLease has an annotation under `redislease.io/` that does not exist, or that has no effect on it.
    UnknownAnnotation => Warning,
    /// A workload or a pod has an annotation under `redislease.io/` with an invalid value.
    InvalidAnnotation => Warning,
    /// A workload requests a lease whose name is used by another lease.
    LeaseNameTaken => Warning,
    /// The API server refused to write the lease that a workload requests.
    LeaseNotWritten => Warning,
}

/// One event. It is sent after the status was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Notice {
    pub reason: NoticeReason,
    pub note: String,
    /// Name and UID of the pods, in the lease's namespace, that get the same event.
    pub on_pods: Vec<(String, String)>,
}
