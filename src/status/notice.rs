//! Events: what happened, once, on the lease and on the pods it happened to.

/// How an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Importance {
    /// As it should be.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

impl Importance {
    /// The type of the event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

macro_rules! notices {
    ($($(#[$doc:meta])* $reason:ident => $importance:ident,)+) => {
        /// The reasons of all events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NoticeReason {
            $($(#[$doc])* $reason,)+
        }

        impl NoticeReason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The reason as it stands in the event.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }

            /// How the event is shown.
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
    /// A term was ended without proof that its holder has stopped: it is waited for.
    Stopping => Normal,
    /// The same, because the holder was not Ready for too long.
    HolderUnhealthy => Warning,
    /// The keys of a term that was ended by decision are free.
    Released => Normal,
    /// A term was lost.
    LeaseLost => Warning,
    /// Renewals fail, and the term is still held.
    RenewFailing => Warning,
    /// Nobody holds the lease, and no pod may be elected.
    NoCandidate => Warning,
    /// An object the spec names does not exist or cannot be used.
    InvalidReference => Warning,
    /// The spec asks for something that cannot be done.
    InvalidSpec => Warning,
    /// Another lease, or something that is no lease, holds a key.
    KeyHeldByOtherLease => Warning,
    /// Another cluster uses the same cluster name.
    ClusterNameConflict => Warning,
    /// A node more than before gives no votes; a majority does.
    QuorumDegraded => Warning,
    /// Fewer than a majority give votes.
    QuorumLost => Warning,
    /// A node more than before gives votes.
    QuorumRestored => Normal,
    /// A node may have forgotten a lease, and gives no votes for a while.
    NodeQuarantined => Warning,
    /// A node must not be asked as it is.
    NodeMisconfigured => Warning,
}

/// One event, to be sent after the status was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub reason: NoticeReason,
    /// What happened, in words.
    pub note: String,
    /// The pods it happened to, name and UID, in the lease's namespace: each gets the event too.
    pub on_pods: Vec<(String, String)>,
}
