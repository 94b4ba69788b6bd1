//! One cluster's API server: leases and pods with resource versions, the rules that admission enforces, and outages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use redislease_plan::api::{RedisLease, RedisQuorumStatus, names};
use redislease_plan::election::{PodFacts, WorkloadFacts};
use redislease_plan::index::Asked;
use redislease_plan::plan::calls::Request;
use redislease_plan::plan::{PodChange, RoleWrite, StatusWrite};

use crate::api::objects::{self, Keys, LeaseSpec, Named};
use crate::redis::clock::Micros;

/// How many changes a watch can be behind before it must list again.
const LOG: usize = 200;
/// How many past states a stale list can show.
const PAST: usize = 40;

/// Whether the API server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Up,
    /// It refuses connections.
    Refusing,
    /// It takes requests and does not answer.
    Hanging,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Written,
    /// The resource version is another one.
    Conflict,
    /// No object of this UID.
    Gone,
    /// A rule of the schema, or an admission webhook.
    Refused,
}

/// A call in flight.
#[derive(Clone, Debug)]
pub struct ApiCall {
    pub process: usize,
    pub boot: u32,
    pub id: u64,
    pub asked: Asked,
    pub request: Arc<Request>,
    /// A webhook has held it up.
    pub was_held: bool,
}

/// What etcd contained.
#[derive(Clone)]
pub struct Backup {
    pub state: State,
    pub workloads: BTreeMap<u32, Arc<WorkloadFacts>>,
    /// What the leases of the state ask for.
    pub specs: Vec<LeaseSpec>,
}

/// The kind of object that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Leases,
    Pods,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Leases, Self::Pods];
}

/// One watch of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    pub open: bool,
    pub listed: bool,
    /// The version of the newest change that was sent.
    pub sent: u64,
    /// When the last event arrives: events keep their order.
    pub last: Micros,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Step {
    ListBegins,
    /// A stale list lacks changes.
    Listed {
        state: Arc<State>,
        is_stale: bool,
    },
    Changed(Change),
}

/// What a mutating webhook does to a write of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// It removes the label with the role.
    StripsLabel,
    /// It allows one replica at most.
    Clamps,
}

/// What an admission policy does to the writes of the operator that stop something, and to their dry runs, or to its statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It refuses to delete pods.
    RefusesDeletions,
    /// It refuses other replicas of a workload.
    RefusesReplicas,
    /// It stores the replicas that the workload had.
    RestoresReplicas,
    /// It refuses each status of a lease.
    RefusesStatuses,
}

/// Everything a client can list, at one version.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub version: u64,
    /// By place; a place is a name.
    pub leases: Vec<Option<Arc<RedisLease>>>,
    pub pods: BTreeMap<u32, Arc<PodFacts>>,
    /// The status of the `RedisQuorum`, and its version.
    pub quorum: (u64, RedisQuorumStatus),
}

/// One event of a watch. It shows an object as it is, or as it was when it was deleted.
#[derive(Clone, Debug)]
pub enum Change {
    Lease { version: u64, lease: Arc<RedisLease>, deleted: bool },
    Pod { version: u64, facts: Arc<PodFacts>, deleted: bool },
    Quorum { version: u64, status: Box<RedisQuorumStatus> },
}

impl Change {
    pub const fn version(&self) -> u64 {
        match self {
            Self::Lease { version, .. } | Self::Pod { version, .. } | Self::Quorum { version, .. } => *version,
        }
    }

    /// The watch that shows it.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Lease { .. } | Self::Quorum { .. } => Kind::Leases,
            Self::Pod { .. } => Kind::Pods,
        }
    }
}

/// How often the API server was written to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writes {
    /// Status writes that changed something.
    pub status: u64,
    /// Role writes that changed something.
    pub role: u64,
    /// Changes of the leader.
    pub leader: u64,
    /// Writes that were answered with a conflict or a refusal.
    pub failed: u64,
    /// Reads and probes, without lists and watches.
    pub reads: u64,
}

pub struct ApiServer {
    pub mode: Mode,
    /// An admission webhook refuses every write.
    pub refuses_writes: bool,
    /// Until when an admission webhook of a namespace hangs on each write.
    pub hangs_until: BTreeMap<&'static str, Micros>,
    /// An admission webhook changes each write of a role.
    pub mutation: Option<Mutation>,
    /// An admission policy, and since when it is in force.
    pub policy: Option<(Policy, Micros)>,
    pub state: State,
    /// Workloads that are candidates themselves, by the number of their UID. No watch shows them.
    pub workloads: BTreeMap<u32, Arc<WorkloadFacts>>,
    /// Kubernetes nodes that an administrator has marked as out of service, by the number of their only pod.
    pub nodes_off: BTreeSet<u32>,
    pub log: VecDeque<Change>,
    past: VecDeque<Arc<State>>,
    /// Whether lists may show a past state.
    pub keeps_past: bool,
    pub writes: Writes,
    /// Requests that hang. Some of them are carried out when the server answers again.
    pub hanging: Vec<ApiCall>,
}

impl ApiServer {
    pub fn new(places: usize, keeps_past: bool) -> Self {
        let state = State { leases: vec![None; places], ..State::default() };
        Self {
            mode: Mode::Up,
            refuses_writes: false,
            hangs_until: BTreeMap::new(),
            mutation: None,
            policy: None,
            state,
            workloads: BTreeMap::new(),
            nodes_off: BTreeSet::new(),
            log: VecDeque::new(),
            past: VecDeque::new(),
            keeps_past,
            writes: Writes::default(),
            hanging: Vec::new(),
        }
    }

    /// The state now, or an older one: `back` counts changes.
    pub fn list(&self, back: usize) -> Arc<State> {
        match back.checked_sub(1).and_then(|at| self.past.get(at.min(self.past.len().saturating_sub(1)))) {
            Some(past) => past.clone(),
            None => Arc::new(self.state.clone()),
        }
    }

    /// Neither the log nor a list shows what was before.
    pub fn forget_past(&mut self) {
        self.log.clear();
        self.past.clear();
    }

    /// The changes after `version`; `None` when the log does not reach back so far.
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.log.front().map_or(self.state.version + 1, Change::version);
        (version + 1 >= first).then(|| self.log.iter().filter(move |change| change.version() > version))
    }

    pub fn next_version(&mut self) -> u64 {
        if self.keeps_past {
            self.past.truncate(PAST - 1);
            self.past.push_front(Arc::new(self.state.clone()));
        }
        self.state.version += 1;
        self.state.version
    }

    pub fn record(&mut self, change: Change) -> Change {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(change.clone());
        change
    }

    /// The term that the status of the lease names.
    pub fn named(&self, place: usize) -> Option<Named> {
        self.state.leases[place].as_deref().and_then(objects::named)
    }

    /// The term that the status of the lease calls active.
    pub fn active(&self, place: usize) -> Option<Named> {
        self.named(place).filter(|named| named.active == Some(true))
    }

    /// Stores the lease with the next version.
    pub fn put_lease(&mut self, place: usize, mut lease: RedisLease) -> Change {
        let version = self.next_version();
        lease.metadata.resource_version = Some(version.to_string());
        let lease = Arc::new(lease);
        self.state.leases[place] = Some(lease.clone());
        self.record(Change::Lease { version, lease, deleted: false })
    }

    /// Changes the spec, which also counts the generation. `None` when there is no lease.
    pub fn set_spec(&mut self, place: usize, keys: Keys, spec: &LeaseSpec) -> Option<Change> {
        let mut lease = RedisLease::clone(self.state.leases[place].as_deref()?);
        lease.spec = spec.object(place, keys);
        lease.metadata.generation = lease.metadata.generation.map(|generation| generation + 1);
        Some(self.put_lease(place, lease))
    }

    /// Writes the annotations that request a handover. `None` when there is no lease.
    pub fn request_handover(&mut self, place: usize, id: &str, to: &str) -> Option<Change> {
        let mut lease = RedisLease::clone(self.state.leases[place].as_deref()?);
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(names::HANDOVER_REQUESTED_ANNOTATION.into(), id.into());
        annotations.insert(names::HANDOVER_TO_ANNOTATION.into(), to.into());
        Some(self.put_lease(place, lease))
    }

    /// Marks the lease as being deleted: somebody's finalizer keeps it for a while.
    pub fn begin_deletion(&mut self, place: usize, now: Micros) -> Option<Change> {
        let mut lease = RedisLease::clone(self.state.leases[place].as_deref()?);
        lease.metadata.deletion_timestamp = Some(Time(objects::timestamp(now)));
        Some(self.put_lease(place, lease))
    }

    pub fn delete_lease(&mut self, place: usize) -> Option<Change> {
        let lease = self.state.leases[place].clone()?;
        let version = self.next_version();
        self.state.leases[place] = None;
        Some(self.record(Change::Lease { version, lease, deleted: true }))
    }

    /// Writes a status. `checked` is false for a server that compares nothing, which only a planted bug makes.
    pub fn write_status(
        &mut self,
        place: usize,
        uid: u32,
        write: &StatusWrite,
        checked: bool,
    ) -> (Verdict, Option<Change>) {
        let Some(found) = self.state.leases[place].as_deref().filter(|found| objects::uid_of(found) == uid) else {
            return (Verdict::Gone, None);
        };
        if checked && write.version.is_some() && write.version != found.metadata.resource_version {
            return (Verdict::Conflict, None);
        }
        let before = found.status.as_ref().and_then(|status| status.fencing_token);
        let is_refused = self.refuses_writes || self.has_policy(Policy::RefusesStatuses);
        if checked && (is_refused || write.status.fencing_token < before) {
            return (Verdict::Refused, None);
        }
        if found.status.as_ref() == Some(&*write.status) {
            return (Verdict::Written, None);
        }
        let mut lease = found.clone();
        lease.status = Some(write.status.as_ref().clone());
        self.writes.status += 1;
        (Verdict::Written, Some(self.put_lease(place, lease)))
    }

    /// Writes the role of one pod for the lease of this place.
    pub fn write_role(&mut self, place: usize, write: &RoleWrite, checked: bool) -> (Verdict, Option<Change>) {
        let pod = objects::number(&write.uid);
        let Some(found) = self.state.pods.get(&pod).filter(|found| found.name == write.pod) else {
            return (Verdict::Gone, None);
        };
        if checked && write.version.is_some() && write.version != found.resource_version {
            return (Verdict::Conflict, None);
        }
        let deletes = write.change == PodChange::Delete;
        if self.refuses_writes || (deletes && self.has_policy(Policy::RefusesDeletions)) {
            return (Verdict::Refused, None);
        }
        if write.dry_run || deletes {
            return (Verdict::Written, None);
        }
        let strips = self.mutation == Some(Mutation::StripsLabel);
        let change = self.change_pod(pod, |pod| {
            objects::store_role(place, write, strips, &mut pod.labels, &mut pod.annotations);
            if write.change == PodChange::Start {
                pod.gates = Box::default();
            }
        });
        self.writes.role += u64::from(change.is_some());
        (Verdict::Written, change)
    }

    pub fn has_policy(&self, policy: Policy) -> bool {
        self.policy.is_some_and(|(in_force, _)| in_force == policy)
    }

    /// Writes the status of the `RedisQuorum`.
    pub fn write_quorum(&mut self, of: u64, status: RedisQuorumStatus) -> (Verdict, Option<Change>) {
        if self.state.quorum.0 != of {
            return (Verdict::Conflict, None);
        }
        if self.refuses_writes {
            return (Verdict::Refused, None);
        }
        let version = self.next_version();
        self.writes.leader += u64::from(objects::leader_of(&self.state.quorum.1) != objects::leader_of(&status));
        self.state.quorum = (version, status.clone());
        (Verdict::Written, Some(self.record(Change::Quorum { version, status: Box::new(status) })))
    }

    pub fn create_pod(&mut self, pod: u32, mut facts: PodFacts) -> Change {
        let version = self.next_version();
        facts.resource_version = Some(version.to_string());
        let facts = Arc::new(facts);
        self.state.pods.insert(pod, facts.clone());
        self.record(Change::Pod { version, facts, deleted: false })
    }

    /// Changes a pod. `None` when it does not exist, or is as it was.
    pub fn change_pod(&mut self, pod: u32, change: impl FnOnce(&mut PodFacts)) -> Option<Change> {
        let before = self.state.pods.get(&pod)?;
        let mut facts = PodFacts::clone(before);
        change(&mut facts);
        if facts == **before {
            return None;
        }
        Some(self.create_pod(pod, facts))
    }

    /// Deletes the object. The event shows it as it was last.
    pub fn delete_pod(&mut self, pod: u32) -> Option<Change> {
        let facts = self.state.pods.get(&pod)?.clone();
        let version = self.next_version();
        self.state.pods.remove(&pod);
        Some(self.record(Change::Pod { version, facts, deleted: true }))
    }

    /// Pods that carry the label `active` of the lease of this place.
    pub fn active_pods(&self, place: usize) -> impl Iterator<Item = u32> {
        let active = move |(_, pod): &(&u32, &Arc<PodFacts>)| objects::is_active(pod, place);
        self.state.pods.iter().filter(active).map(|(&pod, _)| pod)
    }
}
