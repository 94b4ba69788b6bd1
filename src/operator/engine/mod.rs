//! The engine: one task that owns the index and the machines of all leases.
//!
//! It takes inputs, marks the leases that they concern, and gives each marked lease one turn, which handles in this
//! order: answers, the newest view of the keeper, the facts, the effects. A turn never blocks. A panic in a turn affects
//! only its lease.
//!
//! | module | concept |
//! |---|---|
//! | [`input`] | the inputs of the engine, and its interface to the other modules |
//! | [`take`] | what each input changes |
//! | [`orphans`] | the roles of leases that do not exist |
//! | [`mistakes`] | mistakes in the annotations of pods and leases |
//! | [`timers`] | when each lease must have its next turn |
//! | [`shell`] | implements the interface in a process: keepers, writer, metrics |
//! | [`watcher`] | passes the reports of a keeper's machine to the shell and to the metrics |
//! | [`run`] | the task |

mod input;
mod mistakes;
mod orphans;
mod run;
mod shell;
mod take;
#[cfg(test)]
mod tests;
mod timers;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use redislease_core::backoff::{Backoff, Entropy, Strategy};
use redislease_core::time::{Millis, Time};
use redislease_lock::contain::{Panicked, contained};
use redislease_plan::election::Cluster;
use redislease_plan::index::{Entry, Index, LeaseId};
use redislease_plan::plan::{Authority, Effect, Event, Facts, Identity, PERMITS, PermitUses, Permits, Permitted};
use redislease_plan::status::{Notice, NoticeReason};

pub use input::{Input, Machine, Outside, Subject, Watched};
use mistakes::Mistakes;
pub use mistakes::PodName;
use redislease_plan::annotations::Problem;
pub use run::{channels, run};
pub use shell::{CONTROLLER, Shell};
use timers::Timers;

/// The pause after a panic in a turn: long enough to avoid a busy loop, short compared with a lease duration. The keeper
/// keeps renewing meanwhile.
const PANIC: Backoff =
    Backoff { strategy: Strategy::Exponential, min: Millis(1000), max: Millis(60_000), limit: None, jitter: 0 };

/// One lease.
#[derive(Debug)]
struct Lease<M> {
    /// Boxed: a map of large values leaves much of its memory unused.
    machine: Box<M>,
    /// Answers for the next turn.
    answers: Vec<Event>,
    /// The number of machines that this lease has had.
    incarnation: u32,
    /// Panics in a row.
    panics: u32,
    /// The mistakes in its annotations that this replica has reported.
    mistakes: Vec<Problem>,
    /// The end of the pause after a panic. Then the lease gets a new machine.
    broken_until: Option<Time>,
}

/// The result of a turn.
struct Turned {
    effects: Vec<Effect>,
    deadline: Option<Time>,
    awaits_answer: bool,
    permitted: Permitted,
    permits: PermitUses,
    finished: bool,
    hidden: bool,
}

/// The index and the machines.
#[derive(Debug)]
pub struct Engine<M, O> {
    cluster: Cluster,
    index: Index,
    leases: BTreeMap<LeaseId, Lease<M>>,
    timers: Timers,
    /// Leases that need a turn after the next answer of the API server.
    awaiting: BTreeSet<LeaseId>,
    permits: Permits<LeaseId>,
    /// Whether the labels of leases that do not exist were looked for.
    swept: bool,
    mistakes: Mistakes,
    outside: O,
}

impl<M: Machine, O: Outside> Engine<M, O> {
    /// Creates an engine without any facts.
    pub fn new(cluster: Cluster, index: Index, outside: O) -> Self {
        Self {
            cluster,
            index,
            leases: BTreeMap::new(),
            timers: Timers::default(),
            awaiting: BTreeSet::new(),
            permits: Permits::new(PERMITS),
            swept: false,
            mistakes: Mistakes::default(),
            outside,
        }
    }

    fn add(&mut self, id: LeaseId) {
        if let Some(identity) = self.identity(id) {
            let machine = Box::new(M::new(identity));
            let lease = Lease {
                machine,
                answers: Vec::new(),
                incarnation: 0,
                panics: 0,
                mistakes: Vec::new(),
                broken_until: None,
            };
            self.leases.insert(id, lease);
        }
    }

    fn identity(&self, id: LeaseId) -> Option<Identity> {
        let entry = self.index.lease(id)?;
        Some(Identity {
            cluster: self.cluster.clone(),
            namespace: entry.namespace.to_string(),
            name: entry.name.clone(),
            uid: entry.uid.clone(),
        })
    }

    /// The machine of a lease has a new view.
    pub fn shown(&mut self, id: LeaseId) {
        self.index.mark(id);
    }

    /// Gives turns until no lease is due or `until` is reached. Returns whether no lease is due.
    pub fn work(&mut self, until: Instant) -> bool {
        let now = self.outside.now();
        while let Some(id) = self.timers.expired(now) {
            self.index.mark(id);
        }
        while let Some(key) = self.index.next_workload(now) {
            self.outside.read_workload(key);
        }
        loop {
            self.offer_permits();
            let Some(id) = self.index.next_due() else { break };
            self.turn(id);
            if Instant::now() >= until {
                break;
            }
        }
        // The last turn may have freed a permit.
        self.offer_permits();
        self.outside.attempts_wait(self.permits.waiting_attempts());
        self.index.due() == 0
    }

    /// Gives a turn to each lease that waited for a permit and can have one now.
    fn offer_permits(&mut self) {
        while let Some(id) = self.permits.offer() {
            self.index.mark(id);
        }
    }

    /// The time at which [`Engine::work`] must run again without a new input.
    pub fn next_deadline(&self) -> Option<Time> {
        [self.timers.first(), self.index.next_deadline()].into_iter().flatten().min()
    }

    fn turn(&mut self, id: LeaseId) {
        let now = self.outside.now();
        let identity = self.identity(id);
        let (Some(lease), Some(identity)) = (self.leases.get_mut(&id), identity) else { return };
        if let Some(until) = lease.broken_until {
            if now < until {
                return self.timers.set(id, Some(until));
            }
            lease.broken_until = None;
            lease.incarnation += 1;
            lease.answers.clear();
            *lease.machine = M::new(identity);
        }
        let began = Instant::now();
        let turned = contained(|| self.decide_and_carry_out(now, id));
        self.outside.turned(began.elapsed(), turned.is_err());
        let Err(panicked) = turned else {
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.panics = 0;
            }
            return;
        };
        self.permits.forget(&id);
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.panics = lease.panics.saturating_add(1);
        let until = now + PANIC.jittered(lease.panics, Entropy::default());
        lease.broken_until = Some(until);
        let is_first = lease.panics == 1;
        self.timers.set(id, Some(until));
        let Some(entry) = self.index.lease(id) else { return };
        let lease = format!("{}/{}", entry.namespace, entry.name);
        let pause_ms = until.since(now).0;
        tracing::error!(%lease, panic = %panicked, pause_ms, "The reconciliation of a lease panicked. A term that this process already renews is renewed further; the operator retries after a pause.");
        let report = is_first.then(|| Effect::Report(panic_notice(&panicked)));
        let effects = std::iter::once(Effect::WithdrawStatus).chain(report);
        if let Err(panicked) = contained(|| self.carry_out(id, effects)) {
            tracing::error!(panic = %panicked, "The report of a panic panicked. The operator retries the lease after the pause.");
        }
    }

    fn decide_and_carry_out(&mut self, now: Time, id: LeaseId) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if let Some(turned) = decide(now, id, lease, &mut self.index, &self.permits, &mut self.outside) {
            self.finish_turn(id, turned);
            self.check_annotations_of_lease(id);
        }
    }

    fn finish_turn(&mut self, id: LeaseId, turned: Turned) {
        let Turned { effects, deadline, awaits_answer, permitted, permits, finished, hidden } = turned;
        if hidden {
            self.outside.hide(id);
        }
        self.carry_out(id, effects);
        if finished {
            self.outside.forget(id);
            self.permits.forget(&id);
            self.timers.set(id, None);
            self.awaiting.remove(&id);
            self.index.remove(id);
            // Last: a lease whose removal panics has another turn, which removes it.
            self.leases.remove(&id);
            return;
        }
        if let Some(entry) = self.index.lease(id) {
            self.permits.record(&id, &entry.quorum, &entry.namespace, permitted, permits);
        }
        self.timers.set(id, deadline);
        if awaits_answer {
            self.awaiting.insert(id);
            self.outside.await_answer();
        } else {
            self.awaiting.remove(&id);
        }
    }

    fn carry_out(&mut self, id: LeaseId, effects: impl IntoIterator<Item = Effect>) {
        let (Some(entry), Some(lease)) = (self.index.lease(id), self.leases.get(&id)) else { return };
        let subject = subject(id, entry, lease.incarnation);
        for effect in effects {
            self.outside.carry_out(subject, effect);
        }
    }
}

/// The subject of effects.
fn subject(id: LeaseId, entry: &Entry, incarnation: u32) -> Subject<'_> {
    Subject {
        id,
        incarnation,
        namespace: &entry.namespace,
        name: &entry.name,
        uid: &entry.uid,
        quorum: &entry.quorum,
        object: entry.object.as_ref(),
    }
}

/// The event about a panic: the owner of the lease sees that it is not reconciled, and the operator's log has more.
fn panic_notice(panicked: &Panicked) -> Notice {
    let note = format!(
        "The operator has a defect that affects this lease: its reconciliation panicked and is repeated after a pause. A \
         term that this operator process already renews is renewed further. Report this message: {panicked}"
    );
    Notice { reason: NoticeReason::InternalError, note, on_pods: Vec::new() }
}

/// The deciding part of a turn. Returns `None` if the lease does not exist any more.
fn decide<M: Machine, O: Outside>(
    now: Time,
    id: LeaseId,
    lease: &mut Lease<M>,
    index: &mut Index,
    permits: &Permits<LeaseId>,
    outside: &mut O,
) -> Option<Turned> {
    let machine = &mut lease.machine;
    // The buffer is freed: most leases have no answers most of the time.
    for answer in std::mem::take(&mut lease.answers) {
        machine.handle(now, answer);
    }
    let news = outside.news(id);
    for view in news.before.map(|view| *view).into_iter().chain(news.view) {
        machine.handle(now, Event::View(view));
    }
    if news.ended {
        machine.handle(now, Event::KeeperEnded);
    }
    index.set_holder(id, machine.holder().as_ref().map(|(_, uid)| uid.as_str()));
    let entry = index.lease(id)?;
    let authority = outside.authority(&entry.quorum);
    let permitted = permits.permitted(&id, &entry.quorum, &entry.namespace);
    let snapshot = index.snapshot(id, now)?;
    let gone = snapshot.lease.is_none();
    // The leader of a quorum is unknown until the quorums were read.
    let authority = if snapshot.quorum.read { authority } else { Authority::Follow };
    machine.handle(
        now,
        Event::Facts(Box::new(Facts {
            lease: snapshot.lease,
            has_successor: snapshot.has_successor,
            spec: snapshot.spec,
            quorum: snapshot.quorum,
            candidates: snapshot.candidates,
            strays: snapshot.strays,
            stray_workloads: snapshot.stray_workloads,
            holder: snapshot.holder,
            pods_listed: snapshot.pods_listed,
            authority,
            stop_at: news.stop_at,
            api_answered_at: outside.api_answered_at(),
            permitted,
            allowed: outside.allowed(),
            wall: outside.wall(),
        })),
    );
    Some(Turned {
        effects: std::iter::from_fn(|| machine.poll_effect()).collect(),
        deadline: machine.next_deadline(),
        awaits_answer: machine.awaits_api_answer(),
        permitted,
        permits: machine.permit_uses(),
        finished: gone && machine.is_finished(),
        hidden: gone || authority == Authority::Follow,
    })
}
