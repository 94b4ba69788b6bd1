//! What the checks remember.

use std::collections::{BTreeMap, BTreeSet};

use redislease_core::lease::Round;
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};

use crate::api::objects::{Keys, Named};
use crate::chaos::fault::{Fault, Phase, Polled};
use crate::check::checker::{Checker, Window};
use crate::check::coverage::Sight;
use crate::check::pending::Writes;
use crate::event::Inside;
use crate::redis::clock::{Micros, SECOND};

/// The requests that servers have executed.
#[derive(Default)]
pub struct Ran {
    pub requests: BTreeSet<u64>,
    /// By process, its start, node, connection and lease: the last acquire or confirm.
    pub votes: BTreeMap<(usize, u32, usize, u32, u64), u64>,
}

/// What differs from the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// I4: the status names a term that no process treats as held.
    Status(Attempt),
    /// I4: a process that decides treats a term as held, and the status does not call it active.
    Unshown(Attempt),
    Labels,
    /// The token of what is active.
    Token,
    /// Which pods run.
    Gate,
    /// Which workloads run.
    Workload,
    /// Whether another cluster holds the lease.
    Peer,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status(_) => "I4",
            Self::Unshown(_) => "I4, unshown",
            Self::Labels => "labels",
            Self::Token => "token",
            Self::Gate => "gate",
            Self::Workload => "workload",
            Self::Peer => "peer",
        }
    }
}

/// The differences by cluster and lease, and since when each one exists.
#[derive(Default)]
pub struct Lasting(pub BTreeMap<(usize, usize), BTreeMap<Kind, Micros>>);

/// The holder whose end is checked.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub of: (usize, usize),
    pub attempt: Attempt,
    pub pod: u32,
}

#[derive(Default)]
pub struct Recovery {
    /// Until when an operator may wait for the answer to a write that it sent before the faults ended: until then, it does not write
    /// to that object again. If it has only few places for calls, it may not write at all.
    pub waits_until: Micros,
    pub subject: Option<Subject>,
    pub proof: Option<Micros>,
    pub lasting: Lasting,
    /// The cluster whose API server does not come back.
    pub without_api: Option<usize>,
}

impl Recovery {
    /// A process acted on the proof that this pod stopped.
    pub fn proof_seen(&mut self, now: Micros, pod: u32) {
        if self.subject.is_some_and(|subject| subject.pod == pod) {
            self.proof.get_or_insert(now);
        }
    }
}

/// R2: the most writes of one lease to one object within [`WITHIN`].
pub const WRITES: u64 = 120;

pub const WITHIN: Micros = 60 * SECOND;

/// A lease of a cluster: the cluster and the place.
pub type Of = (usize, usize);

/// A workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Workload {
    /// Its replicas were changed this often: an earlier change has no effect any more.
    pub changes: u32,
    /// The place of the lease for which an operator started it, or whose term was published for it while it ran, if nobody else has
    /// changed the replicas since.
    pub lease: Option<usize>,
    /// The number of the UID of the workload that was deleted last while its processes ran.
    pub deleted: Option<u32>,
    /// Since when its processes run.
    pub runs_since: Option<Micros>,
}

/// A term of another holder that refused an attempt.
pub struct Refused {
    pub by: Attempt,
    pub at: Micros,
    pub until: Micros,
}

/// Since when a workload has named a lease, and until when it did.
#[derive(Clone, Copy)]
pub struct Consent {
    pub since: Micros,
    pub until: Option<Micros>,
}

/// The answers that allow to stop a workload: see `check::refusals`.
#[derive(Default)]
pub struct Refusals {
    /// The last answer, by process, its start, the lease, and the node.
    pub answers: BTreeMap<(usize, u32, u32, Node), Refused>,
    /// By process and object: since when enough answers had allowed its last stop, when it was decided.
    pub known_since: BTreeMap<(usize, u32), Option<Micros>>,
    /// The marks of the workloads that were stopped because of such answers, or were found stopped.
    pub stopped: BTreeSet<String>,
    /// By cluster and place of the workload, and the lease that it names or named.
    pub consents: BTreeMap<(Of, usize), Consent>,
}

/// What runs, and what is known about the terms that allow it.
#[derive(Default)]
pub struct Running {
    /// The pods that an operator started and whose processes run, and until when each of them counts.
    pub pods: BTreeMap<Of, BTreeMap<u32, Micros>>,
    /// The lease for which a pod was started: the number of its UID.
    pub started_for: BTreeMap<u32, u32>,
    /// By cluster and the place of the workload.
    pub workloads: BTreeMap<Of, Workload>,
    /// The terms of pods that a status has called active.
    pub named: BTreeSet<(Of, Token, u32)>,
    /// The greatest token that a status has shown.
    pub newest: BTreeMap<Of, Token>,
    /// The version at which a status ceased to name a term.
    pub named_until: BTreeMap<(Of, Token), u64>,
    /// The workloads for which a term was published, by the numbers of their UIDs.
    pub terms: BTreeSet<(usize, u32)>,
    pub refusals: Refusals,
    /// When the processes or the API server of a cluster were last disturbed.
    pub disturbed_at: BTreeMap<usize, Micros>,
    pub writes: BTreeMap<(usize, u32, u32, u32), Window>,
    /// By process, its start and the object: the dry runs of stops that API servers accepted, until the term ends.
    pub tested: BTreeSet<(usize, u32, u32)>,
    /// The pods whose term a process has ended last, and that term.
    pub ended: BTreeMap<u32, Attempt>,
}

impl Running {
    /// A status is written, or the lease is deleted: it may cease to name its term.
    pub fn status_changes(&mut self, of: Of, version: u64, before: Option<Named>, after: Option<Named>) {
        let term = |named: Option<Named>| named.filter(|named| named.active != Some(false)).map(|named| named.token);
        if let Some(token) = term(before).filter(|token| term(after) != Some(*token)) {
            self.named_until.insert((of, token), version);
        }
        if let Some(named) = after.filter(|_| term(after).is_some()) {
            self.terms.insert((of.0, named.pod));
        }
        if let Some(named) = after.filter(|named| named.active == Some(true)) {
            self.named.insert((of, named.token, named.pod));
        }
    }

    /// The lease is deleted: what it has started runs on, and counts no longer.
    pub fn lease_deleted(&mut self, of: Of) {
        self.pods.remove(&of);
        let of_cluster = self.workloads.iter_mut().filter(|((cluster, _), _)| *cluster == of.0);
        for (_, workload) in of_cluster.filter(|(_, workload)| workload.lease == Some(of.1)) {
            workload.lease = None;
        }
    }

    /// A workload was created. It adopts the pods of the one that was deleted, which a term may have allowed to run. Returns the lease
    /// for which they run.
    pub fn inherit(&mut self, of: Of, number: u32) -> Option<usize> {
        let workload = self.workloads.get_mut(&of)?;
        let (deleted, runs_for) = (workload.deleted.take()?, workload.lease);
        if self.terms.contains(&(of.0, deleted)) {
            self.terms.insert((of.0, number));
        }
        runs_for
    }

    /// The pod is asked to stop: it counts until its grace period has passed.
    pub fn pod_must_stop(&mut self, pod: u32, until: Micros) {
        for counted in self.pods.values_mut().filter_map(|pods| pods.get_mut(&pod)) {
            *counted = (*counted).min(until);
        }
    }

    /// The processes of the pod have ended, or it was deleted by force.
    pub fn pod_ended(&mut self, pod: u32) {
        for pods in self.pods.values_mut() {
            pods.remove(&pod);
        }
    }

    /// What is known by version says nothing any more. The restored statuses may lack the terms that were named last.
    pub fn versions_go_back(&mut self, cluster: usize, named: impl Iterator<Item = (usize, Token)>) {
        self.named_until.retain(|((of, _), _), _| *of != cluster);
        self.named_until.extend(named.map(|(place, token)| (((cluster, place), token), u64::MAX)));
    }

    pub fn disturbed(&mut self, cluster: usize, at: Micros) {
        let known = self.disturbed_at.entry(cluster).or_default();
        *known = at.max(*known);
    }

    /// R2: counts an attempt to write the role of an object.
    pub fn role_write(&mut self, check: &mut Checker, now: Micros, by: (usize, u32, u32), object: u32) {
        let window = self.writes.entry((by.0, by.1, by.2, object)).or_insert_with(|| Window::new(now));
        let percent = window.count(now, WITHIN, WRITES);
        check.busiest[3] = check.busiest[3].max(percent);
        if percent > 100 {
            let (process, _, lease) = by;
            check.fail(format!(
                "R2: process {process} wrote more than {WRITES} times a minute to object {object} for lease {lease}"
            ));
        }
    }
}

/// A lock that was released and must be kept.
pub struct Kept {
    pub keys: Keys,
    pub attempt: Attempt,
    pub until: Micros,
}

/// What happened in one run.
#[derive(Default)]
pub struct Programs {
    pub seen: BTreeMap<&'static str, u64>,
    pub kept: Vec<Kept>,
    /// The tasks that have not held the lock in the contest.
    pub contest: Option<Vec<(usize, u32)>>,
    pub released_at: Option<Micros>,
}

/// What the checks know about one machine.
#[derive(Default)]
pub struct Seen {
    /// Whether the checker knows until when the view is valid.
    pub is_reported: bool,
    /// Whether effects of an earlier input are still to be carried out.
    pub behind: bool,
    /// A term that has ended, until a view shows it.
    pub ended: Option<Attempt>,
    pub began: Option<Attempt>,
    pub confirming: bool,
    pub renewing: bool,
    pub releasing: u32,
    /// The rounds whose requests were sent.
    pub rounds: Vec<Round>,
    /// The longest time to live that a request asked for: the view may count from one that was sent before the spec was changed.
    pub longest_ttl: Millis,
    /// Renewals without a failure, since something disturbed them.
    pub steady: u32,
    /// The last term that was given up because nodes did not hold it.
    pub missed: Option<Attempt>,
    /// The holder of attempts that it repeats by itself: only a planted bug does so.
    pub desired: Option<Holder>,
}

/// What the checks know about one node in a process.
#[derive(Default)]
pub struct SeenNode {
    /// Where the counter with which it is being admitted came from.
    pub seeded_by: Option<Sight>,
    /// The fault that set its clock, until the next answer of the node.
    pub stepped: Option<Fault>,
    /// Since when it is unknown whether its clock or that of the process jumped.
    pub doubted_at: Option<Micros>,
}

/// The state by which the effects of one lease are checked.
#[derive(Default)]
pub struct Checks {
    /// Whether it has counted the loss of a term.
    pub lost: bool,
    /// The terms whose end was counted.
    pub counted: BTreeSet<Attempt>,
    pub last_counted: Option<Attempt>,
    /// The term that was ended last without a proof although something ran for it, and what is wrong with that if a request was the
    /// reason.
    pub ended_while_running: Option<(Attempt, Option<String>)>,
}

/// What the faults and the checks remember of one process since its start.
#[derive(Default)]
pub struct History {
    /// When its clock stood still, and for how long.
    pub losses: Vec<(Time, Micros)>,
    /// Whether a node was in doubt for one longest lease.
    pub waited_out_a_doubt: bool,
    /// While its clock stands still: what it shows, and since when.
    pub losing: Option<(u64, Micros)>,
    /// When it last continued after a pause.
    pub continued_at: Micros,
    /// The newest version of any object that it has observed.
    pub newest: u64,
    /// It was asked to stop gracefully.
    pub stops: bool,
    /// The events that arrived while it was paused.
    pub inbox: Vec<Inside>,
    /// The effect that was polled when it was paused. It is carried out when the process continues.
    pub held_back: Option<Polled>,
    /// Its writes without an outcome.
    pub writes: Writes,
    /// The fault that paused it, and the phases of its leases at that time.
    pub stopped_by: Option<(Fault, Vec<Phase>)>,
}
