//! The lock layer that the library and the operator are built on, in tasks on the thread of its connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config as LeaseConfig, OnDeadline, Publication, Renewal, Standing, TermId, View};
use redislease_core::marker::Membership;
use redislease_core::op::Holder;
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};
use redislease_lock::clock;
use redislease_lock::keeper::{Command, Keeper, LeaseHandle, Observer, Setup};
use redislease_lock::nodes::{Config, NodeConfig, NodeState, Nodes};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::protocol::{Request, Times, figures, say, unsupported};

/// The driver admits the servers under this configuration.
pub fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "bench".into() }
}

const LONGEST: Millis = Millis(60_000);
const TIMEOUT: Millis = Millis(500);

#[derive(Default)]
pub struct Ours {
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
            connect_last: Vec::new(),
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

    fn open(&self, request: &Request, worker: usize, rounds: Rounds) -> Lock {
        let (views, seen) = watch::channel(View::default());
        let handle = self.keeper.open(Setup {
            nodes: Some(self.nodes.clone()),
            keys: Arc::new([self.nodes.keyspace().lock("bench", &request.key(worker))]),
            config: self.config(request),
            policy: None,
            jump_wait: None,
            observer: Box::new(Outcomes { views, rounds }),
        });
        Lock { handle, views: seen }
    }
}

fn is_up(node: &redislease_lock::nodes::NodeStatus) -> bool {
    node.state == NodeState::Up
}

/// Successful and failed rounds of renewal.
type Rounds = Arc<[AtomicUsize; 2]>;

/// Stores the views that a worker waits for, and counts the renewals.
struct Outcomes {
    views: watch::Sender<View>,
    rounds: Rounds,
}

impl Observer for Outcomes {
    fn renewed(&self, renewal: &Renewal, _: u64) {
        let which = usize::from(!matches!(renewal, Renewal::Success { .. }));
        self.rounds[which].fetch_add(1, Ordering::Relaxed);
    }

    fn changed(&self, view: &View) {
        if !matches!(view.standing, Standing::Acquiring(..) | Standing::Held(_)) {
            self.views.send_if_modified(|shown| {
                let waits = view.retry_at.is_some() && shown.retry_at != view.retry_at;
                let other = shown.standing != view.standing || waits;
                *shown = view.clone();
                other
            });
        }
    }
}

/// One lease, whose key nothing else wants.
struct Lock {
    handle: LeaseHandle,
    views: watch::Receiver<View>,
}

impl Lock {
    async fn acquire(&mut self) -> TermId {
        loop {
            self.handle.command(Command::Want(Holder("bench".into())));
            // A call without any effect is repeated. A short timeout would set a timer of the system each time.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.views.changed()).await;
            let view = self.views.borrow_and_update().clone();
            if let Standing::Publishing(term) = view.standing {
                self.handle.command(Command::Published { attempt: term.id.attempt, outcome: Publication::Written });
                return term.id;
            }
            if let Some(wait) = view.retry_at.map(|at| at.since(clock::now())) {
                tokio::time::sleep(wait.into()).await;
            }
        }
    }

    /// Returns when this process does not hold the lock any more. The releases are then on their way to the nodes.
    async fn release(&mut self, term: TermId) {
        self.handle.command(Command::End { term, proof: true });
        self.views.wait_for(|view| view.standing == Standing::Idle).await.unwrap();
    }
}

impl Ours {
    pub async fn answer(&mut self, request: Request) -> Value {
        let new = || Arc::new(Process::start(&request.nodes));
        let process = self.processes.entry(request.nodes.clone()).or_insert_with(new).clone();
        process.ready().await;
        match request.what.as_str() {
            "cycles" => cycles(&process, &request).await,
            "renew" => renew(&process, &request).await,
            _ => unsupported(),
        }
    }
}

async fn cycles(process: &Process, request: &Request) -> Value {
    // The rate at which many leases attempt for the first time is limited, so this happens before.
    let mut opening = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let mut lock = process.open(request, worker, Rounds::default());
        opening.spawn(async move {
            let term = lock.acquire().await;
            lock.release(term).await;
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
            let term = lock.acquire().await;
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
        process.nodes.spawn(task);
    }
    drop(done);
    let mut all = Vec::new();
    while let Some(times) = all_done.recv().await {
        all.push(times);
    }
    figures(all, start.elapsed())
}

async fn renew(process: &Process, request: &Request) -> Value {
    let began = Instant::now();
    let rounds = Rounds::default();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let mut lock = process.open(request, worker, rounds.clone());
        workers.spawn(async move {
            let term = lock.acquire().await;
            (lock, term)
        });
    }
    let locks = workers.join_all().await;
    say(&json!({"held": locks.len(), "seconds": began.elapsed().as_secs_f64()}));
    let before = rounds[0].load(Ordering::Relaxed);
    tokio::time::sleep(request.duration()).await;
    let renewals = rounds[0].load(Ordering::Relaxed) - before;
    let lost =
        locks.iter().filter(|(lock, _)| !matches!(lock.views.borrow().standing, Standing::Publishing(_))).count();
    say(&json!({"lost": lost, "renewals": renewals, "failed_rounds": rounds[1].load(Ordering::Relaxed)}));
    for (mut lock, term) in locks {
        lock.release(term).await;
    }
    json!({"done": true})
}
