//! What can go wrong, and while what.

/// One kind of fault. The swarm draws which of them a run knows, and how often each comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A process dies between two effects and starts again with nothing but the API's status.
    Crash,
    /// A process stands still while its clock goes on.
    Freeze,
    /// As freeze, and a clock that does not count suspend would stand still too.
    Suspend,
    /// A server restarts and remembers everything.
    RestartFull,
    /// A server restarts from an older snapshot.
    RestartOlder,
    /// A server restarts empty.
    RestartEmpty,
    /// A server is emptied while its connections live.
    Flush,
    /// A replica takes a server's place.
    Promote,
    /// Every server loses its memory at about the same time.
    LoseAll,
    /// A server stops, still takes connections, and runs its backlog when it is continued.
    Stall,
    /// Requests of one process to one server vanish.
    CutTo,
    /// Answers of one server to one process vanish.
    CutFrom,
    /// One process reaches no server.
    Isolate,
    /// The wall clock of one server is set.
    Step,
    /// The API server refuses connections.
    ApiKilled,
    /// The API server takes requests and says nothing.
    ApiHangs,
    /// One process does not reach the API server.
    ApiCut,
    /// A request or an answer is lost.
    Loss,
    /// A request runs a second time, later.
    Repeat,
    /// A request or an answer takes longer than it may.
    Delay,
    /// The answer of the API server to a write is lost.
    ApiLoss,
    /// A pod is deleted and stops in its own time.
    DeletePod,
    /// A pod is deleted by force; its process runs on.
    KillPod,
    /// A lease is suspended for a while.
    SuspendLease,
    /// A resource is deleted and made again.
    Recreate,
}

impl Fault {
    pub const ALL: [Self; 25] = [
        Self::Crash,
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
        Self::ApiKilled,
        Self::ApiHangs,
        Self::ApiCut,
        Self::Loss,
        Self::Repeat,
        Self::Delay,
        Self::ApiLoss,
        Self::DeletePod,
        Self::KillPod,
        Self::SuspendLease,
        Self::Recreate,
    ];

    /// Whether it befalls single messages instead of striking by itself.
    pub const fn of_messages(self) -> bool {
        matches!(self, Self::Loss | Self::Repeat | Self::Delay | Self::ApiLoss)
    }
}

/// What a lease was doing when a fault came.
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
