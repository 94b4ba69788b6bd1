//! RedisLease as a library: keeper and nodes, without Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redislease_lock::clock;
use redislease_lock::keeper::{Command, Keeper, LeaseHandle, Observer, Setup};
use redislease_lock::nodes::{Config, NodeConfig, NodeState, Nodes, Request as NodeRequest};
use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config as LeaseConfig, OnDeadline, Publication, Renewal, Standing, TermId, View};
use redislease_core::marker::Membership;
use redislease_core::op::{Attempt, Holder, Op, Stages};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::protocol::{Gaps, HOLD, Request, STEP_ASIDE, Times, figures, say, unsupported};

/// The driver admits the servers under this configuration.
pub fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "bench".into() }
}

const LONGEST: Millis = Millis(60_000);
const TIMEOUT: Millis = Millis(500);

/// Where the workers of the cycles run.
#[derive(Clone, Copy)]
pub enum Place {
    /// On the thread of the nodes ([`Nodes::spawn`]).
    Nodes,
    /// On the threads of the program's runtime (`tokio::spawn`).
    Runtime,
}

pub struct Ours {
    place: Place,
    /// The quorums in use, by the addresses of their nodes.
    processes: HashMap<Vec<String>, Arc<Process>>,
}

struct Process {
    nodes: Nodes,
    keeper: Keeper,
    size: usize,
}

impl Process {
    fn start(addresses: &[String]) -> Self {
        let nodes = addresses.iter().enumerate();
        let config = Config {
            quorum: "bench".into(),
            nodes: nodes
                .map(|(index, address)| NodeConfig { name: index.to_string(), address: address.clone() })
                .collect(),
            key_prefix: "redislease".into(),
            membership: membership(),
            longest_lease: LONGEST,
            command_timeout: TIMEOUT,
            credentials: None,
            tls: None,
            has_statuses: false,
        };
        let nodes = Nodes::start(&config, Arc::new(())).unwrap();
        Self { nodes, keeper: Keeper::start(Arc::new(())).unwrap(), size: addresses.len() }
    }

    /// Waits until a majority votes; all nodes, if they do within a second.
    async fn ready(&self) {
        let mut statuses = self.nodes.watch();
        let votes = |count: usize| move |nodes: &Vec<_>| count <= nodes.iter().filter(|node| is_up(node)).count();
        let all = tokio::time::timeout(Duration::from_secs(1), statuses.wait_for(votes(self.size))).await.is_ok();
        if !all {
            statuses.wait_for(votes(self.size / 2 + 1)).await.unwrap();
        }
    }

    fn config(&self, request: &Request) -> LeaseConfig {
        let interval = if request.interval_ms == 0 { request.ttl_ms / 3 } else { request.interval_ms };
        LeaseConfig {
            quorum: Quorum::of(u8::try_from(self.size).unwrap()).unwrap(),
            ttl: Millis(request.ttl_ms),
            renew_interval: Millis(interval),
            stop_budget: Millis(100),
            command_timeout: TIMEOUT,
            drift: Drift::STANDARD,
            // As the peers do by default: a random delay of the same length before each new attempt.
            backoff: Backoff { strategy: Strategy::None, min: Millis(100), max: Millis(100), limit: None, jitter: 100 },
            deadline: OnDeadline::Seal,
        }
    }

    fn open(&self, request: &Request, worker: usize, observer: impl Observer) -> Lock {
        self.open_on(request, &[worker], observer)
    }

    /// One lease with the keys of these workers.
    fn open_on(&self, request: &Request, workers: &[usize], observer: impl Observer) -> Lock {
        let (outcomes, views) = watch::channel((View::default(), 0));
        let polls = request.polls || request.what == "handover";
        let handle = self.keeper.open(Setup {
            nodes: Some(self.nodes.clone()),
            keys: workers.iter().map(|worker| self.nodes.keyspace().lock("bench", &request.key(*worker))).collect(),
            config: self.config(request),
            may_end: None,
            jump_wait: None,
            observer: Box::new(Outcomes { views: outcomes, attempted: AtomicBool::new(false), polls, next: observer }),
        });
        Lock { handle, views, polls }
    }
}

fn is_up(node: &redislease_lock::nodes::NodeStatus) -> bool {
    node.state == NodeState::Up
}

/// Stores the views with the number of attempts that have ended, and notifies the user of those that it waits for: the end of
/// an attempt, the end of a term, and the time of an attempt that has to wait for its turn.
struct Outcomes<O> {
    views: watch::Sender<(View, usize)>,
    attempted: AtomicBool,
    polls: bool,
    next: O,
}

impl<O: Observer> Observer for Outcomes<O> {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.next.renewed(renewal, ttl_ms);
    }

    fn changed(&self, view: &View) {
        match view.standing {
            Standing::Acquiring(..) => self.attempted.store(true, Ordering::Relaxed),
            Standing::Held(_) => {}
            _ => {
                let ended = self.attempted.swap(false, Ordering::Relaxed);
                self.views.send_if_modified(|(shown, attempts)| {
                    // A worker that polls does not wait for a turn: it asks again by itself.
                    let waits = !self.polls && view.retry_at.is_some() && shown.retry_at != view.retry_at;
                    let other = shown.standing != view.standing || waits;
                    *shown = view.clone();
                    *attempts += usize::from(ended);
                    ended || other
                });
            }
        }
    }
}

/// One lease of a user that takes it for itself.
struct Lock {
    handle: LeaseHandle,
    views: watch::Receiver<(View, usize)>,
    /// Whether it attempts again up to 100 ms after a refusal, as the peers do. Otherwise RedisLease waits until the keys
    /// of the holder would expire: the operator knows when a holder has stopped.
    polls: bool,
}

/// A random delay of up to 100 ms.
fn random_delay() -> Duration {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    Duration::from_micros(random % 100_000)
}

impl Lock {
    /// Attempts until one succeeds. The second value counts the attempts that failed.
    async fn acquire(&mut self) -> (TermId, usize) {
        let mut failed = 0;
        loop {
            // A view that arrived since the last one counts as a change.
            let before = self.views.borrow().1;
            self.handle.command(Command::Want(Holder("bench".into())));
            // A call without any effect is repeated. A short timeout would set a timer of the system each time.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.views.changed()).await;
            let (view, attempts) = self.views.borrow_and_update().clone();
            if let Standing::Publishing(term) = view.standing {
                self.handle.command(Command::Published { attempt: term.id.attempt, outcome: Publication::Written });
                return (term.id, failed);
            }
            failed += attempts - before;
            if self.polls && view.retry_at.is_some() {
                tokio::time::sleep(random_delay()).await;
                self.handle.command(Command::TryNow);
            } else if let Some(wait) = view.retry_at.map(|at| at.since(clock::now())) {
                tokio::time::sleep(wait.into()).await;
            }
        }
    }

    /// Returns when this process does not hold the lock any more. The releases are then on their way to the nodes.
    async fn release(&mut self, term: TermId) {
        self.handle.command(Command::End { term, proof: true });
        self.views.wait_for(|(view, _)| view.standing == Standing::Idle).await.unwrap();
    }
}

/// Counts renewals.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 2]>);

impl Observer for Counts {
    fn renewed(&self, renewal: &Renewal, _: u64) {
        let which = usize::from(!matches!(renewal, Renewal::Success { .. }));
        self.0[which].fetch_add(1, Ordering::Relaxed);
    }
    fn changed(&self, _: &View) {}
}

impl Ours {
    pub fn new(place: Place) -> Self {
        Self { place, processes: HashMap::new() }
    }

    pub async fn answer(&mut self, request: Request) -> Value {
        let new = || Arc::new(Process::start(&request.nodes));
        let is_new = !self.processes.contains_key(&request.nodes);
        let process = self.processes.entry(request.nodes.clone()).or_insert_with(new).clone();
        if is_new || !request.at_once {
            process.ready().await;
        }
        match request.what.as_str() {
            "cycles" => cycles(&process, &request, self.place).await,
            "handover" => handover(&process, &request).await,
            "renew" => renew(&process, &request).await,
            "lost" => lost(&process, &request).await,
            "hold" | "take" => {
                let mut lock = process.open(&request, 0, ());
                let (term, _) = lock.acquire().await;
                // Kept until the process ends.
                std::mem::forget(lock);
                json!({"held": true, "token": term.token.0})
            }
            "stale" => {
                let mut lock = process.open(&request, 0, ());
                let (term, _) = lock.acquire().await;
                say(&json!({"held": true, "token": term.token.0}));
                tokio::time::sleep(request.duration()).await;
                lock.release(term).await;
                json!({"done": true})
            }
            "foreign" => foreign(&process, &request).await,
            "several" => {
                let mut lock = process.open_on(&request, &[0, 1], ());
                lock.acquire().await;
                std::mem::forget(lock);
                json!({"held": true, "by": "a lease with several keys"})
            }
            _ => unsupported(),
        }
    }
}

async fn cycles(process: &Process, request: &Request, place: Place) -> Value {
    // RedisLease limits the rate at which many leases attempt for the first time, so this happens before.
    let mut opening = tokio::task::JoinSet::new();
    let prepares = !request.at_once;
    for worker in 0..request.workers {
        let mut lock = process.open(request, worker, ());
        opening.spawn(async move {
            if prepares {
                let (term, _) = lock.acquire().await;
                lock.release(term).await;
            }
            lock
        });
    }
    let locks = opening.join_all().await;
    let start = Instant::now();
    let until = start + request.duration();
    let work = |mut lock: Lock| async move {
        let mut times = Times::default();
        while Instant::now() < until {
            let began = Instant::now();
            let (term, failed) = lock.acquire().await;
            times.errors += failed;
            times.acquire.push(began.elapsed());
            let began = Instant::now();
            lock.release(term).await;
            times.release.push(began.elapsed());
        }
        times
    };
    let (done, mut all_done) = tokio::sync::mpsc::unbounded_channel();
    for lock in locks {
        let (work, done) = (work(lock), done.clone());
        let task = async move { done.send(work.await).unwrap() };
        match place {
            Place::Nodes => process.nodes.spawn(task),
            Place::Runtime => drop(tokio::spawn(task)),
        }
    }
    drop(done);
    let mut all = Vec::new();
    while let Some(times) = all_done.recv().await {
        all.push(times);
    }
    figures(all, start.elapsed())
}

/// Sends releases of an attempt that never acquired. A lease itself sends none: it ends only its own terms.
async fn foreign(process: &Process, request: &Request) -> Value {
    let keys: Arc<[String]> = Arc::new([process.nodes.keyspace().lock("bench", &request.key(0))]);
    let (answers, mut votes) = tokio::sync::mpsc::unbounded_channel();
    for node in process.nodes.quorum().nodes() {
        let op = Op::Release { attempt: Attempt(1), stages: Stages::All };
        let release = NodeRequest { keys: keys.clone(), op, give_up_at: clock::now() + TIMEOUT };
        let answers = answers.clone();
        process.nodes.send(node, release, move |vote| drop(answers.send(vote)));
    }
    drop(answers);
    while votes.recv().await.is_some() {}
    json!({"done": true})
}

async fn handover(process: &Process, request: &Request) -> Value {
    let gaps = Arc::new(Gaps::new());
    let until = Instant::now() + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..request.workers {
        let (mut lock, gaps) = (process.open(request, 0, ()), gaps.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                let (term, _) = lock.acquire().await;
                gaps.acquired();
                tokio::time::sleep(HOLD).await;
                gaps.releasing();
                lock.release(term).await;
                tokio::time::sleep(STEP_ASIDE).await;
            }
        });
    }
    workers.join_all().await;
    gaps.figures()
}

async fn renew(process: &Process, request: &Request) -> Value {
    let began = Instant::now();
    let counts = Counts::default();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let mut lock = process.open(request, worker, counts.clone());
        workers.spawn(async move {
            let (term, _) = lock.acquire().await;
            (lock, term)
        });
    }
    let locks = workers.join_all().await;
    say(&json!({"held": locks.len(), "seconds": began.elapsed().as_secs_f64()}));
    let before = counts.0[0].load(Ordering::Relaxed);
    tokio::time::sleep(request.duration()).await;
    let renewals = counts.0[0].load(Ordering::Relaxed) - before;
    let lost =
        locks.iter().filter(|(lock, _)| !matches!(lock.views.borrow().0.standing, Standing::Publishing(_))).count();
    say(&json!({"lost": lost, "renewals": renewals, "failed_rounds": counts.0[1].load(Ordering::Relaxed)}));
    for (mut lock, term) in locks {
        lock.release(term).await;
    }
    json!({"done": true})
}

async fn lost(process: &Process, request: &Request) -> Value {
    let mut lock = process.open(request, 0, ());
    lock.acquire().await;
    say(&json!({"held": true}));
    let ended = lock.views.wait_for(|(view, _)| !matches!(view.standing, Standing::Publishing(_)));
    let noticed = tokio::time::timeout(request.duration(), ended).await.is_ok();
    json!({"noticed": noticed, "by": "the view", "done": true})
}
