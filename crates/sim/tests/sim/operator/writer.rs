//! The operator's calls to the API server: one queue with priorities, a limit of calls in flight, and a gate that closes
//! when a call is not answered.

use std::collections::{BTreeMap, BTreeSet};

use redislease::api::names::PodRole;
use redislease::plan::{Priority, Read, RoleWrite, ServiceRequest, SliceWrite, StatusWrite};
use redislease_core::time::Time;

use crate::api::calls::Ask;
use crate::api::objects::{self, SliceKey};
use crate::redis::clock::{MILLI, Micros};
use crate::world::{Event, World};

/// The first pause after a refusal or a missing answer, in milliseconds; it doubles.
const PAUSE: u64 = 100;
/// The longest pause.
const LONGEST_PAUSE: u64 = 2000;

/// One call.
#[derive(Clone, Debug)]
pub enum Job {
    Status {
        place: usize,
        uid: u32,
        write: Box<StatusWrite>,
    },
    Role {
        place: usize,
        uid: u32,
        write: Box<RoleWrite>,
    },
    /// `uid` is that of the lease; `None` if the lease was not found.
    Slice {
        place: usize,
        uid: Option<u32>,
        write: Box<SliceWrite>,
    },
    /// The Service of a lease and the pod that is to be its endpoint.
    Service {
        place: usize,
        uid: u32,
        request: ServiceRequest,
    },
    /// The pod of a role write that found it changed or gone.
    ReadPod {
        uid: u32,
        write: Box<RoleWrite>,
    },
    Read {
        place: usize,
        uid: u32,
        read: Read,
    },
    /// The leader that the `RedisQuorum` names.
    ReadQuorum,
    /// The highest token of all statuses, to seed the counter of this node. `request` is [`Peer::tokens_asked`].
    ///
    /// [`Peer::tokens_asked`]: crate::operator::admission::Peer::tokens_asked
    ReadTokens {
        node: usize,
        request: u64,
    },
    /// Writes this replica as leader.
    Claim {
        version: u64,
        instance: String,
    },
    Probe,
}

/// The subject of a job. Each has its own backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Status(u32),
    Role(u32, u32),
    Slice(Option<u32>, SliceKey),
    Other,
}

impl Job {
    pub fn key(&self) -> Key {
        match self {
            Self::Status { uid, .. } => Key::Status(*uid),
            Self::Role { uid, write, .. } | Self::ReadPod { uid, write } => {
                Key::Role(*uid, objects::number(&write.uid))
            }
            Self::Slice { uid, write, .. } => Key::Slice(*uid, objects::written_slice(write)),
            Self::Service { .. }
            | Self::Read { .. }
            | Self::ReadQuorum
            | Self::ReadTokens { .. }
            | Self::Claim { .. }
            | Self::Probe => Key::Other,
        }
    }

    fn priority(&self) -> Priority {
        match self {
            Self::Status { write, .. } => write.priority,
            Self::Role { write, .. } => write.priority,
            Self::Slice { write, .. } => write.priority,
            Self::Service { .. } => Priority::Active,
            _ => Priority::Publication,
        }
    }

    const fn not_after(&self) -> Option<Time> {
        match self {
            Self::Status { write, .. } => write.not_after,
            Self::Role { write, .. } => write.not_after,
            Self::Slice { write, .. } => write.not_after,
            _ => None,
        }
    }

    /// The pod that it writes. Writes of one pod are sent one after the other.
    fn pod(&self) -> Option<u32> {
        match self {
            Self::Role { write, .. } | Self::ReadPod { write, .. } => Some(objects::number(&write.uid)),
            _ => None,
        }
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Status { place, uid, write } => Ask::Status { place: *place, uid: *uid, write: write.clone() },
            Self::Role { place, write, .. } => Ask::Role { place: *place, write: write.clone() },
            Self::Slice { place, uid, write } => Ask::Slice { place: *place, uid: *uid, write: write.clone() },
            Self::Service { place, uid, request } => Ask::Service {
                place: *place,
                uid: *uid,
                service: objects::number(&request.service) as usize,
                pod: objects::number(&request.pod_uid),
            },
            Self::ReadPod { write, .. } => Ask::Pod(objects::number(&write.uid)),
            Self::Read { place, read: Read::Lease, .. } => Ask::Lease(*place),
            Self::Read { read: Read::Holder { uid, .. } | Read::Node { uid, .. }, .. } => match self {
                Self::Read { read: Read::Node { .. }, .. } => Ask::Node(objects::number(uid)),
                _ => Ask::Pod(objects::number(uid)),
            },
            Self::ReadQuorum => Ask::Quorum,
            Self::ReadTokens { .. } => Ask::Tokens,
            Self::Claim { version, instance } => Ask::Claim { version: *version, instance: instance.clone() },
            Self::Probe => Ask::Probe,
        }
    }
}

/// Refusals of one key since its last success.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    failures: u32,
    conflicted: bool,
    until: Micros,
    priority: Option<Priority>,
}

/// Whether calls are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// A call was not answered: one probe is repeated until there is an answer.
    Closed {
        pause: u64,
        probe: Option<u64>,
    },
}

#[derive(Clone, Debug)]
pub struct Writer {
    queue: BTreeMap<(Priority, u64), Job>,
    under_way: BTreeMap<u64, Job>,
    gate: Gate,
    holds: BTreeMap<Key, Hold>,
    /// The version of a pod before and after our last write of it.
    moved: BTreeMap<u32, (Option<String>, Option<String>)>,
    /// Leases that wait for any answer of the API server.
    pub asking: BTreeSet<u32>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            queue: BTreeMap::new(),
            under_way: BTreeMap::new(),
            gate: Gate::Open,
            holds: BTreeMap::new(),
            moved: BTreeMap::new(),
            asking: BTreeSet::new(),
        }
    }
}

impl Writer {
    /// Whether a job with this key waits or is under way.
    pub fn has(&self, key: Key) -> bool {
        self.queue.values().chain(self.under_way.values()).any(|job| job.key() == key)
    }

    /// Role writes of one lease that wait or are under way.
    pub fn roles_of(&self, lease: u32) -> usize {
        let of = |job: &&Job| matches!(job, Job::Role { uid, .. } | Job::ReadPod { uid, .. } if *uid == lease);
        self.queue.values().chain(self.under_way.values()).filter(of).count()
    }

    /// Whether a pod's label `active` is being written.
    pub fn is_labelling_active(&self) -> bool {
        let active = |job: &Job| matches!(job, Job::Role { write, .. } if write.role == Some(PodRole::Active));
        self.under_way.values().any(active)
    }

    /// Whether an endpoint is being written.
    pub fn is_writing_endpoint(&self) -> bool {
        self.is_writing_slice(|write| write.change.endpoint().is_some())
    }

    /// Whether a write of a slice that is like this one is being sent.
    pub fn is_writing_slice(&self, wanted: impl Fn(&SliceWrite) -> bool) -> bool {
        self.under_way.values().any(|job| matches!(job, Job::Slice { write, .. } if wanted(write)))
    }

    /// The write with this key, if it was not sent yet.
    pub fn withdraw(&mut self, key: Key) -> Option<Job> {
        self.withdraw_where(|job| job.key() == key && !matches!(job, Job::ReadPod { .. }))
    }

    /// A job like this, if it was not sent yet.
    pub fn withdraw_where(&mut self, unsent: impl Fn(&Job) -> bool) -> Option<Job> {
        let found = self.queue.iter().find(|(_, job)| unsent(job)).map(|(&at, _)| at)?;
        self.queue.remove(&found)
    }

    /// Removes a job whose deadline has passed from the queue.
    pub fn expired(&mut self, at: (Priority, u64)) -> Option<Job> {
        self.queue.remove(&at)
    }

    /// Removes the call, which was answered or timed out.
    pub fn take(&mut self, id: u64) -> Option<Job> {
        self.under_way.remove(&id)
    }

    /// A write of this process gave a pod another version.
    pub fn wrote_pod(&mut self, pod: u32, before: Option<String>, after: Option<String>) {
        self.moved.insert(pod, (before, after));
    }

    pub fn succeeded(&mut self, key: Key) {
        self.holds.remove(&key);
    }

    /// The next job of this key waits, unless this was its first conflict.
    pub fn failed(&mut self, now: Micros, key: Key, priority: Priority, conflict: bool) {
        let hold = self.holds.entry(key).or_default();
        hold.priority = Some(priority);
        if conflict && !std::mem::replace(&mut hold.conflicted, true) {
            return;
        }
        let pause = (PAUSE << hold.failures.min(6)).min(LONGEST_PAUSE);
        hold.failures += 1;
        hold.until = now + pause * MILLI;
    }

    /// Earliest time to send a job, by the refusals of its key.
    fn held_until(&self, job: &Job) -> Micros {
        let writes = matches!(job, Job::Status { .. } | Job::Role { .. } | Job::Slice { .. });
        let hold = self.holds.get(&job.key()).filter(|_| writes);
        hold.filter(|hold| hold.priority.is_none_or(|refused| job.priority() >= refused)).map_or(0, |hold| hold.until)
    }

    /// Whether the pod of a job is being written.
    fn is_blocked(&self, job: &Job) -> bool {
        job.pod().is_some_and(|pod| self.under_way.values().any(|other| other.pod() == Some(pod)))
    }
}

impl World {
    pub fn submit(&mut self, process: usize, job: Job) {
        let boot = self.processes[process].boot;
        let at = (job.priority(), self.new_id(process));
        if let Some(not_after) = job.not_after() {
            let expires = self.processes[process].clock.when(not_after.0).max(self.now);
            self.at(expires, Event::WriteExpires { process, boot, at });
        }
        self.processes[process].writer.queue.insert(at, job);
        self.dispatch(process);
    }

    /// One answer is enough for all leases that request one.
    pub fn ask_for_an_answer(&mut self, process: usize, uid: u32) {
        let writer = &mut self.processes[process].writer;
        writer.asking.insert(uid);
        let probes = |job: &Job| matches!(job, Job::Probe);
        if writer.gate == Gate::Open && !writer.queue.values().chain(writer.under_way.values()).any(probes) {
            self.submit(process, Job::Probe);
        }
    }

    /// Sends the jobs that may be sent.
    pub fn dispatch(&mut self, process: usize) {
        let local = Time(self.local(process));
        loop {
            let writer = &self.processes[process].writer;
            if writer.gate != Gate::Open || writer.under_way.len() >= self.swarm.calls_at_once {
                return;
            }
            let sendable =
                |(_, job): &(&(Priority, u64), &Job)| writer.held_until(job) <= self.now && !writer.is_blocked(job);
            let Some((&at, _)) = writer.queue.iter().find(sendable) else { break };
            let Some(mut job) = self.processes[process].writer.queue.remove(&at) else { return };
            if job.not_after().is_some_and(|not_after| local >= not_after) {
                self.withdrawn(process, &job);
                continue;
            }
            if let Job::Role { write, .. } = &mut job {
                let moved = self.processes[process].writer.moved.get(&objects::number(&write.uid));
                if let Some((_, after)) = moved.filter(|(before, _)| *before == write.version) {
                    write.version.clone_from(after);
                }
            }
            let id = self.new_id(process);
            let ask = job.ask();
            self.processes[process].writer.under_way.insert(id, job);
            self.send_call(process, id, ask);
        }
        self.dispatch_later(process);
    }

    /// Jobs that wait for the end of a pause are checked then.
    fn dispatch_later(&mut self, process: usize) {
        let writer = &self.processes[process].writer;
        let waits = writer.queue.values().map(|job| writer.held_until(job)).filter(|&until| until > self.now);
        if let Some(until) = waits.min() {
            let boot = self.processes[process].boot;
            self.at(until, Event::Dispatch { process, boot });
        }
    }

    /// A call was not answered: nothing is sent until a probe is.
    pub fn close_gate(&mut self, process: usize) {
        if self.processes[process].writer.gate == Gate::Open {
            self.processes[process].writer.gate = Gate::Closed { pause: PAUSE, probe: None };
            self.probe_later(process, PAUSE);
        }
    }

    fn probe_later(&mut self, process: usize, pause: u64) {
        let boot = self.processes[process].boot;
        let delay = self.rng.between(pause / 2, pause) * MILLI;
        self.after(delay, Event::GateProbe { process, boot });
    }

    pub fn gate_probe(&mut self, process: usize) {
        if let Gate::Closed { pause, probe: None } = self.processes[process].writer.gate {
            let id = self.new_id(process);
            self.processes[process].writer.gate = Gate::Closed { pause, probe: Some(id) };
            self.send_call(process, id, Ask::Probe);
        }
    }

    /// Whether the reply is for the gate's own probe.
    pub fn gate_reply(&mut self, process: usize, id: u64, answered: bool) -> bool {
        let Gate::Closed { pause, probe: Some(waits) } = self.processes[process].writer.gate else { return false };
        if waits != id {
            return false;
        }
        if answered {
            self.processes[process].writer.gate = Gate::Open;
            self.dispatch(process);
        } else {
            let pause = (2 * pause).min(LONGEST_PAUSE);
            self.processes[process].writer.gate = Gate::Closed { pause, probe: None };
            self.probe_later(process, pause);
        }
        true
    }
}
