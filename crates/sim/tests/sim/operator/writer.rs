//! The operator's calls to the API server, in the order of the queue that the operator ships.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redislease::api::names::PodRole;
use redislease::index::{Asked, WorkloadKey};
use redislease::plan::calls::{Level, Next, Queue, Retry, Submission, Verdict};
use redislease::plan::{Read, RoleWrite, StatusWrite};
use redislease_core::backoff::Entropy;
use redislease_core::time::Time;

use crate::api::calls::{Ask, Reply};
use crate::api::{objects, server};
use crate::check::coverage::Sight;
use crate::operator::engine::lease_of;
use crate::operator::process::Process;
use crate::redis::clock::Micros;
use crate::world::{Event, World};

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
    /// The second call of a role write, which found the pod changed or gone.
    ReadPod {
        uid: u32,
        write: Box<RoleWrite>,
    },
    Read {
        place: usize,
        uid: u32,
        read: Read,
    },
    ReadWorkload(WorkloadKey),
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
}

/// What a job is about, as in the operator: at most one job of each key is queued.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Status(u32),
    Role { lease: u32, pod: u32 },
    ReadLease(u32),
    ReadPod(u32),
    ReadStartable(u32),
    ReadNode(u32),
    ReadWorkload(WorkloadKey),
    ReadQuorum,
    ReadTokens(usize),
    Claim,
}

impl Job {
    pub fn key(&self) -> Key {
        match self {
            Self::Status { uid, .. } => Key::Status(*uid),
            Self::Role { uid, write, .. } | Self::ReadPod { uid, write } => {
                Key::Role { lease: *uid, pod: objects::number(&write.uid) }
            }
            Self::Read { uid, read: Read::Lease, .. } => Key::ReadLease(*uid),
            Self::Read { uid, read: Read::Holder { .. }, .. } => Key::ReadPod(*uid),
            Self::Read { uid, read: Read::Startable, .. } => Key::ReadStartable(*uid),
            Self::Read { uid, read: Read::Node { .. }, .. } => Key::ReadNode(*uid),
            Self::ReadWorkload(key) => Key::ReadWorkload(key.clone()),
            Self::ReadQuorum => Key::ReadQuorum,
            Self::ReadTokens { node, .. } => Key::ReadTokens(*node),
            Self::Claim { .. } => Key::Claim,
        }
    }

    fn level(&self) -> Level {
        match self {
            Self::Status { write, .. } => write.priority.into(),
            Self::Role { write, .. } | Self::ReadPod { write, .. } => write.priority.into(),
            Self::ReadWorkload(_) | Self::Read { read: Read::Startable, .. } => Level::Active,
            Self::Read { read: Read::Lease, .. } => Level::Publication,
            Self::Read { .. } | Self::ReadQuorum | Self::ReadTokens { .. } => Level::End,
            Self::Claim { .. } => Level::Standby,
        }
    }

    const fn not_after(&self) -> Option<Time> {
        match self {
            Self::Status { write, .. } => write.not_after,
            Self::Role { write, .. } => write.not_after,
            _ => None,
        }
    }

    /// Writes of one pod are sent one after the other.
    fn lane(&self) -> Option<Arc<str>> {
        match self {
            Self::Role { write, .. } => Some(write.uid.as_str().into()),
            _ => None,
        }
    }

    fn ask(&self) -> Ask {
        match self {
            Self::Status { place, uid, write } => {
                Ask::Status { place: *place, uid: lease_of(*uid), write: write.clone() }
            }
            Self::Role { place, write, .. } => Ask::Role { place: *place, write: write.clone() },
            Self::ReadPod { write, .. } => Ask::Pod(objects::number(&write.uid)),
            Self::Read { place, read: Read::Lease, .. } => Ask::Lease(*place),
            Self::Read { read: Read::Holder { uid, .. }, .. } => Ask::Pod(objects::number(uid)),
            Self::Read { place, read: Read::Startable, .. } => Ask::Startable(*place),
            Self::Read { read: Read::Node { uid, .. }, .. } => Ask::Node(objects::number(uid)),
            Self::ReadWorkload((_, workload)) => Ask::Workload(objects::number(&workload.name) as usize),
            Self::ReadQuorum => Ask::Quorum,
            Self::ReadTokens { .. } => Ask::Tokens,
            Self::Claim { version, instance } => Ask::Claim { version: *version, instance: instance.clone() },
        }
    }

    /// What this answer means for the queue.
    fn judge(&self, reply: &Reply) -> Verdict {
        match (self, reply) {
            (_, Reply::Refused | Reply::Overdue) => Verdict::Unanswered,
            (Self::ReadPod { write, .. }, Reply::Pod(Some(pod))) if *pod.object().resource_version == write.version => {
                Verdict::Refused
            }
            (Self::ReadPod { .. }, Reply::Pod(Some(_))) | (_, Reply::Status(server::Verdict::Gone, _)) => {
                Verdict::Conflict
            }
            (_, Reply::Status(verdict, _) | Reply::Role(verdict, _) | Reply::Quorum(verdict, ..)) => match verdict {
                server::Verdict::Written | server::Verdict::Gone => Verdict::Done,
                server::Verdict::Conflict => Verdict::Conflict,
                server::Verdict::Refused => Verdict::Refused,
            },
            _ => Verdict::Done,
        }
    }
}

/// A job in flight.
#[derive(Clone, Debug)]
struct Sent {
    job: Job,
    retry: Option<Retry<Key>>,
    asked: Asked,
}

/// What follows from an answer.
pub enum Answered {
    /// The job has an outcome.
    Done(Job, Asked),
    /// The job is sent again or goes on with another call, or the call was a probe.
    Continues,
}

pub struct Writer {
    queue: Queue<Key, Job>,
    sent: BTreeMap<u64, Sent>,
    /// The probe in flight.
    probe: Option<u64>,
    tenant: Arc<str>,
    wake_at: Option<Micros>,
    /// The writes of leases without an outcome so far.
    pending: BTreeSet<Key>,
    /// Leases that wait for any answer of the API server.
    pub asking: BTreeSet<u32>,
    /// How many reads of a lease a newer one has replaced: its answer serves them all, as in the operator.
    pub joined: BTreeMap<u32, u32>,
}

impl Writer {
    pub fn new(concurrency: usize) -> Self {
        Self {
            queue: Queue::new(concurrency),
            sent: BTreeMap::new(),
            probe: None,
            tenant: objects::NAMESPACE.into(),
            wake_at: None,
            pending: BTreeSet::new(),
            asking: BTreeSet::new(),
            joined: BTreeMap::new(),
        }
    }

    /// Whether a write with this key has no outcome yet.
    pub fn has(&self, key: &Key) -> bool {
        self.pending.contains(key)
    }

    /// Whether the call with this number has no answer yet.
    pub fn waits_for(&self, id: u64) -> bool {
        self.probe == Some(id) || self.sent.contains_key(&id)
    }

    /// The role writes of one lease without an outcome.
    pub fn roles_of(&self, uid: u32) -> usize {
        self.pending.iter().filter(|key| matches!(key, Key::Role { lease, .. } if *lease == uid)).count()
    }

    /// Whether a pod's label `active` is being written.
    pub fn is_labelling_active(&self) -> bool {
        let active = |job: &Job| matches!(job, Job::Role { write, .. } if write.role == Some(PodRole::Active));
        self.sent.values().any(|sent| active(&sent.job))
    }

    /// The outcome of a write goes to its lease.
    pub fn has_outcome(&mut self, key: &Key) {
        self.pending.remove(key);
    }

    /// A write of this process gave a pod another version: the role writes for other leases that were decided on the version
    /// before are valid for the new one.
    pub fn wrote_pod(&mut self, pod: &str, before: Option<&String>, after: Option<&String>) {
        self.queue.change_lane(&pod.into(), |job| {
            if let Job::Role { write, .. } = job
                && write.version.as_ref() == before
            {
                write.version = after.cloned();
            }
        });
    }
}

impl World {
    pub fn submit(&mut self, process: usize, job: Job) {
        let now = Time(self.local(process));
        let writer = &mut self.processes[process].writer;
        if matches!(job, Job::Status { .. } | Job::Role { .. }) {
            writer.pending.insert(job.key());
        }
        let (lane, not_after) = (job.lane(), job.not_after());
        let submission = Submission::new(job.key(), writer.tenant.clone(), job.level(), job);
        if let Some(replaced) = writer.queue.submit(now, Submission { lane, not_after, ..submission }) {
            self.withdrawn(process, &replaced);
        }
        self.dispatch(process);
    }

    /// Withdraws a write that was not sent yet.
    pub fn withdraw(&mut self, process: usize, key: &Key) {
        if let Some(job) = self.processes[process].writer.queue.withdraw(key) {
            self.withdrawn(process, &job);
        }
    }

    /// One answer is enough for all leases that request one.
    pub fn ask_for_an_answer(&mut self, process: usize, uid: u32) {
        let writer = &mut self.processes[process].writer;
        writer.asking.insert(uid);
        writer.queue.want_probe();
        self.dispatch(process);
    }

    /// Sends the jobs that may be sent.
    pub fn dispatch(&mut self, process: usize) {
        let now = Time(self.local(process));
        while let Some(next) = self.processes[process].writer.queue.next(now) {
            match next {
                Next::Expired(job) => {
                    self.coverage.saw(Sight::WriteExpired);
                    self.withdrawn(process, &job);
                }
                Next::Probe => {
                    let id = self.new_id(process);
                    self.processes[process].writer.probe = Some(id);
                    self.send_call(process, id, Ask::Probe);
                }
                Next::Call(key, job) => {
                    let retry = self.processes[process].writer.queue.retry(&key);
                    self.send_job(process, job, retry);
                }
            }
        }
        self.dispatch_later(process);
    }

    fn send_job(&mut self, process: usize, job: Job, retry: Option<Retry<Key>>) {
        let (id, ask) = (self.new_id(process), job.ask());
        if let Job::Role { uid, write, .. } = &job {
            let by = (process, self.processes[process].boot, *uid);
            self.running.role_write(&mut self.check, self.now, by, objects::number(&write.uid));
        }
        let asked = self.processes[process].index.pod_lists().ask();
        self.processes[process].writer.sent.insert(id, Sent { job, retry, asked });
        self.send_call(process, id, ask);
    }

    fn dispatch_later(&mut self, process: usize) {
        let Process { writer, clock, boot, .. } = &mut self.processes[process];
        let Some(deadline) = writer.queue.next_deadline() else { return };
        let at = clock.when(deadline.0).max(self.now);
        if writer.wake_at.is_none_or(|earlier| at < earlier || earlier < self.now) {
            writer.wake_at = Some(at);
            let boot = *boot;
            self.at(at, Event::Dispatch { process, boot });
        }
    }

    pub fn dispatch_timer(&mut self, process: usize) {
        let writer = &mut self.processes[process].writer;
        if writer.wake_at.is_some_and(|at| at <= self.now) {
            writer.wake_at = None;
            self.dispatch(process);
        }
    }

    /// Records the answer to a call; `None` if the call was answered before.
    pub fn call_done(&mut self, process: usize, id: u64, reply: &Reply) -> Option<Answered> {
        let (now, entropy) = (Time(self.local(process)), Entropy(self.rng.word()));
        let writer = &mut self.processes[process].writer;
        if writer.probe == Some(id) {
            writer.probe = None;
            writer.queue.probe_done(now, !reply.is_missing(), entropy);
            return Some(Answered::Continues);
        }
        let Sent { job, retry, asked } = writer.sent.remove(&id)?;
        // A role write that finds another pod reads the pod within the same job.
        if let (Job::Role { uid, write, .. }, Reply::Role(server::Verdict::Conflict | server::Verdict::Gone, _)) =
            (&job, reply)
        {
            let job = Job::ReadPod { uid: *uid, write: write.clone() };
            self.send_job(process, job, retry);
            return Some(Answered::Continues);
        }
        let (key, verdict) = (job.key(), job.judge(reply));
        writer.queue.done(now, &key, verdict, entropy);
        let is_read = matches!(job, Job::Read { .. } | Job::ReadWorkload(_) | Job::ReadQuorum | Job::ReadTokens { .. });
        if let (Verdict::Unanswered, true, Some(retry)) = (verdict, is_read, retry) {
            // A newer read of the same object is queued already.
            if let Some(replaced) = writer.queue.put_back(now, key, retry, job) {
                self.withdrawn(process, &replaced);
            }
            return Some(Answered::Continues);
        }
        Some(Answered::Done(job, asked))
    }
}
