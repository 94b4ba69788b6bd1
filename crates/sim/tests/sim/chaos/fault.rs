//! What can go wrong, and what a lease was doing then.

/// One kind of fault. The swarm draws which of them a run has, and how often each comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A process dies between two effects and starts again with nothing but the API server's state.
    Crash,
    /// A process stops in order, and another starts in its place.
    Rollout,
    /// A process stands still while its clock goes on.
    Freeze,
    /// As freeze; a clock that does not count suspend would stand still too.
    Suspend,
    /// A Redis server restarts and remembers everything.
    RestartFull,
    /// A Redis server restarts from an older snapshot.
    RestartOlder,
    /// A Redis server restarts empty.
    RestartEmpty,
    /// A Redis server is emptied while its connections live.
    Flush,
    /// A replica takes a Redis server's place.
    Promote,
    /// Every Redis server loses its memory at about the same time.
    LoseAll,
    /// A Redis server stops, still takes connections, and runs its backlog when it continues.
    Stall,
    /// Requests of one process to one Redis server vanish.
    CutTo,
    /// Answers of one Redis server to one process vanish.
    CutFrom,
    /// One process reaches no Redis server.
    Isolate,
    /// The wall clock of a Redis server is set, by seconds.
    Step,
    /// The wall clock of a Redis server is set, by at most 100 ms.
    SmallStep,
    /// The API server refuses connections.
    ApiRefuses,
    /// The API server takes requests and says nothing.
    ApiHangs,
    /// One process does not reach its API server.
    ApiCut,
    /// The answer of the API server to a write is lost.
    ApiLoss,
    /// A watch cannot continue where it was, and lists again.
    WatchExpired,
    /// A list shows an older state than what was known.
    StaleList,
    /// An admission webhook refuses every write, or Services can be neither read nor created, or both.
    Webhook,
    /// A request to a Redis server, or its answer, is lost.
    Loss,
    /// A request to a Redis server runs a second time, later.
    Repeat,
    /// A request to a Redis server, or its answer, takes longer than it may.
    Delay,
    /// A pod is deleted and stops in its own time.
    DeletePod,
    /// A pod is deleted by force; its process runs on.
    KillPod,
    /// A pod's Kubernetes node dies. An administrator says so later, and the pod object goes.
    NodeOff,
    /// A pod is not Ready for a while.
    Unready,
    /// A pod is not Ready for a while, and then has another sandbox with other addresses.
    NewSandbox,
    /// A Service gets a second address family, or loses it.
    ChangeFamilies,
    /// A user makes an EndpointSlice for a Service, and deletes it later.
    ForeignSlice,
    /// A user deletes a Service.
    DeleteService,
    /// A pod loses the label that makes it a candidate.
    Relabel,
    /// A lease is suspended for a while.
    SuspendLease,
    /// A lease gets other durations.
    ChangeSpec,
    /// A lease is deleted and created again.
    Recreate,
    /// The quorum's secret is missing for a while.
    NoSecret,
}

impl Fault {
    pub const ALL: [Self; 39] = [
        Self::Crash,
        Self::Rollout,
        Self::Freeze,
        Self::Suspend,
        Self::RestartFull,
        Self::RestartOlder,
        Self::RestartEmpty,
        Self::Flush,
        Self::Promote,
        Self::LoseAll,
        Self::Stall,
        Self::CutTo,
        Self::CutFrom,
        Self::Isolate,
        Self::Step,
        Self::SmallStep,
        Self::ApiRefuses,
        Self::ApiHangs,
        Self::ApiCut,
        Self::ApiLoss,
        Self::WatchExpired,
        Self::StaleList,
        Self::Webhook,
        Self::Loss,
        Self::Repeat,
        Self::Delay,
        Self::DeletePod,
        Self::KillPod,
        Self::NodeOff,
        Self::Unready,
        Self::NewSandbox,
        Self::ChangeFamilies,
        Self::ForeignSlice,
        Self::DeleteService,
        Self::Relabel,
        Self::SuspendLease,
        Self::ChangeSpec,
        Self::Recreate,
        Self::NoSecret,
    ];

    /// What users do to Services and their slices.
    pub const OF_SERVICES: [Self; 2] = [Self::ForeignSlice, Self::DeleteService];

    /// Whether it befalls single messages instead of striking by itself.
    pub const fn is_of_messages(self) -> bool {
        matches!(self, Self::Loss | Self::Repeat | Self::Delay | Self::ApiLoss | Self::WatchExpired | Self::StaleList)
    }
}

/// What a lease was doing when a fault took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Round1,
    Round2,
    Publication,
    Held,
    Renewing,
    Releasing,
}

impl Phase {
    pub const ALL: [Self; 6] =
        [Self::Round1, Self::Round2, Self::Publication, Self::Held, Self::Renewing, Self::Releasing];
}
