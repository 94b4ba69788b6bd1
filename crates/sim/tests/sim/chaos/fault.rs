//! The kinds of faults, and the phases of a lease in which they take place.

use redislease_core::driver;
use redislease_plan::engine;
use redislease_plan::plan::LeadershipEffect;

listed! {
    /// One kind of fault. The swarm draws which of them a run has, and how often each takes place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Fault {
        /// A process crashes between two effects and starts again with nothing but the API server's state.
        Crash,
        /// A process stops gracefully, and another starts in its place.
        Rollout,
        /// A process pauses while its clock goes on.
        Freeze,
        /// As freeze; a clock that does not count suspend would stop too.
        Suspend,
        /// A process pauses and its clock with it, as those of a virtual machine that is paused or migrated.
        LoseTime,
        /// A Redis server restarts with all its data.
        RestartFull,
        /// A Redis server restarts from an older snapshot.
        RestartOlder,
        /// A Redis server restarts empty.
        RestartEmpty,
        /// A Redis server is emptied while its connections live, or only its counter is deleted.
        Flush,
        /// A replica takes a Redis server's place.
        Promote,
        /// Every Redis server loses its data at about the same time.
        LoseAll,
        /// A Redis server pauses, still accepts connections, and executes its backlog when it continues.
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
        /// The API server accepts requests and does not answer.
        ApiHangs,
        /// One process does not reach its API server.
        ApiCut,
        /// The answer of the API server to a write is lost.
        ApiLoss,
        /// A watch cannot continue from its position, and lists again.
        WatchExpired,
        /// A list shows an older state than the one that was known.
        StaleList,
        /// An admission webhook refuses every write.
        Webhook,
        /// A request to a Redis server, or its answer, is lost.
        Loss,
        /// A request to a Redis server runs a second time, later.
        Repeat,
        /// A request to a Redis server, or its answer, takes longer than it may.
        Delay,
        /// A pod is deleted and stops in its own time.
        DeletePod,
        /// A pod is deleted by force; its process still runs.
        KillPod,
        /// A pod's Kubernetes node is switched off. An administrator marks it later, and the pod object is removed.
        NodeOff,
        /// A pod is not Ready for a while.
        Unready,
        /// A pod loses the label that makes it a candidate.
        Relabel,
        /// A lease is suspended for a while.
        SuspendLease,
        /// A user requests a handover.
        Handover,
        /// A lease gets other durations.
        ChangeSpec,
        /// A lease is deleted and created again.
        Recreate,
        /// The quorum's secret is missing for a while.
        NoSecret,
        /// The scripts of a Redis server are deleted while its connections live.
        FlushScripts,
        /// A connection to a Redis server is closed while calls on it have no answer.
        Reset,
        ;
        // These are drawn in other ways.
        /// A mutating webhook removes the label with the role from each write.
        StripsLabel,
        /// A mutating webhook allows one replica at most.
        Clamps,
        /// An admission policy refuses the operator's deletions of pods.
        KeepsPods,
        /// An admission policy refuses other replicas of a workload, or stores those that it had.
        KeepsReplicas,
        /// An admission policy refuses each status of a lease.
        RefusesStatuses,
        /// The quorum does not allow the namespaces of the leases for a while.
        NotAllowed,
        /// The quorum gets a command timeout that is too long for every lease, for a while.
        LongTimeout,
        /// Somebody undoes the writes to the objects of a lease, again and again.
        Fight,
        /// The owner of a workload takes its consent back for a while.
        NoConsent,
        /// A lease names the workload of another lease for a while. The owner may give the consent to it.
        SharedWorkload,
        /// An admission webhook of one namespace hangs on each write.
        WebhookHangs,
        /// etcd of a cluster is restored from a backup that was made some time before.
        RestoreEtcd,
        /// A workload is deleted and its pods run on, until a workload of its name is created.
        Orphan,
    }
}

impl Fault {
    /// Whether it affects single messages and is not injected at a time of its own.
    pub const fn is_of_messages(self) -> bool {
        matches!(self, Self::Loss | Self::Repeat | Self::Delay | Self::ApiLoss | Self::WatchExpired | Self::StaleList)
    }
}

listed! {
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
}

/// What happens to a process before an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeEffect {
    Continue,
    Crashed,
    Paused,
}

/// An effect of a machine of a process, before which a fault can come.
pub enum Polled {
    /// The unit, and the number of the lease.
    Lease(u32, u64, driver::Effect),
    /// The unit.
    Engine(u32, engine::Effect),
    Leader(LeadershipEffect),
}

/// Where a fault is injected: before an effect.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub process: usize,
    pub uid: u32,
    pub node: Option<usize>,
}
