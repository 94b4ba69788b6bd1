//! RedisLease as programs use it: the crate `redislease-locker` with its defaults, in ordinary tokio tasks.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redislease_locker::{Guard, Locker, NodeState, Observer, Request as LockRequest};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::protocol::{Gaps, HOLD, Request, STEP_ASIDE, Times, figures, say, unsupported};

const LONGEST: Duration = Duration::from_secs(60);
/// Longer than any measurement.
const WAIT: Duration = Duration::from_secs(3600);

/// Successful and failed rounds of renewal.
#[derive(Clone, Default)]
struct Rounds(Arc<[AtomicUsize; 2]>);

impl Observer for Rounds {
    fn renewed(&self, _key: &str, took: Option<Duration>) {
        self.0[usize::from(took.is_none())].fetch_add(1, Ordering::Relaxed);
    }
}

impl Rounds {
    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|which| self.0[which].load(Ordering::Relaxed))
    }
}

#[derive(Default)]
pub struct Library {
    /// Whether the workers of the cycles drop their guards, which releases the locks without waiting.
    pub drops: bool,
    /// By the addresses of their servers.
    lockers: HashMap<Vec<String>, Locker>,
    rounds: Rounds,
    /// Kept until the process ends.
    kept: Vec<Guard>,
}

impl Library {
    pub async fn answer(&mut self, request: Request) -> Value {
        if !self.lockers.contains_key(&request.nodes) {
            let locker = start(&request.nodes, self.rounds.clone());
            ready(&locker).await;
            self.lockers.insert(request.nodes.clone(), locker);
        }
        let locker = self.lockers[&request.nodes].clone();
        match request.what.as_str() {
            "cycles" => cycles(&locker, &request, self.drops).await,
            "handover" => handover(&vec![locker; request.workers], &request).await,
            // As programs of their own, which know nothing of each other.
            "handover-apart" | "handover-told" => {
                let lockers: Vec<_> =
                    (0..request.workers).map(|_| start(&request.nodes, self.rounds.clone())).collect();
                for locker in &lockers {
                    ready(locker).await;
                }
                // The servers tell each program when the key changes.
                let is_told = request.what == "handover-told";
                if is_told { handover_told(&lockers, &request).await } else { handover(&lockers, &request).await }
            }
            "renew" => renew(&locker, &request, &self.rounds).await,
            "lost" => lost(&locker, &request).await,
            "hold" | "take" => {
                let guard = lock(&locker, &request, 0).acquire().await.unwrap();
                let token = guard.token();
                self.kept.push(guard);
                json!({"held": true, "token": token})
            }
            "stale" => {
                let guard = lock(&locker, &request, 0).acquire().await.unwrap();
                say(&json!({"held": true, "token": guard.token()}));
                tokio::time::sleep(request.duration()).await;
                guard.release().await;
                json!({"done": true})
            }
            "several" => {
                let both = locker.lock_all([request.key(0), request.key(1)]).ttl(request.ttl());
                self.kept.push(both.acquire().await.unwrap());
                json!({"held": true, "by": "`lock_all`"})
            }
            // A lock with a shorter lease renews itself before.
            "extension" if request.duration() < request.ttl() => {
                let mut guard = lock(&locker, &request, 0).acquire().await.unwrap();
                say(&json!({"held": true}));
                tokio::time::sleep(request.duration()).await;
                json!({"extended": guard.extend(request.ttl()).await.is_ok(), "done": true})
            }
            // Only a guard can be released, and no name of an owner is compared.
            _ => unsupported(),
        }
    }
}

fn start(nodes: &[String], rounds: Rounds) -> Locker {
    // Servers are named by their place, so that a program can have another server in the place of one.
    let names: Vec<_> = (0..nodes.len()).map(|place| place.to_string()).collect();
    let fingerprint = format!("programs;{};longest_lease={}ms", names.join(","), LONGEST.as_millis());
    let prefix = format!("library-{}", nodes.len());
    for address in nodes {
        if let Err(error) = admit(address, &prefix, &fingerprint) {
            eprintln!("{address} is not admitted: {error}");
        }
    }
    let none: [String; 0] = [];
    let servers = names.into_iter().zip(nodes);
    let builder = servers
        .fold(Locker::builder(none), |builder, (name, address)| builder.node(name, format!("redis://{address}")));
    let builder = builder.prefix(prefix).longest_lease(LONGEST).observer(rounds);
    let builder = if nodes.len() < 3 { builder.single_node() } else { builder };
    builder.build().unwrap()
}

/// Waits until a majority votes; all servers, if they do within a second.
async fn ready(locker: &Locker) {
    locker.ready(Duration::from_secs(90)).await.unwrap();
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until && locker.nodes().iter().any(|node| node.state != NodeState::Up) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes the server vote at once, as if it had waited for the longest lease, unless another process did.
fn admit(address: &str, prefix: &str, fingerprint: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"INFO server\r\n")?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut info = vec![0; line.trim_start_matches('$').trim().parse::<usize>().unwrap_or_default() + 2];
    reader.read_exact(&mut info)?;
    let info = String::from_utf8_lossy(&info);
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
    write!(stream, "SET {prefix}:fence 1000000 NX\r\nSET {prefix}:marker {run_id}:1:{fingerprint} NX\r\n")?;
    reader.read_line(&mut line)?;
    reader.read_line(&mut line)?;
    Ok(())
}

fn lock(locker: &Locker, request: &Request, worker: usize) -> LockRequest {
    let lock = locker.lock(request.key(worker)).ttl(request.ttl()).wait(WAIT);
    if request.interval_ms == 0 { lock } else { lock.renew_every(Duration::from_millis(request.interval_ms)) }
}

/// Each cycle asks for a lock, and releases it.
async fn cycles(locker: &Locker, request: &Request, drops: bool) -> Value {
    let start = Instant::now();
    let until = start + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let (locker, request) = (locker.clone(), request.clone());
        workers.spawn(async move {
            let mut times = Times::default();
            while Instant::now() < until {
                let began = Instant::now();
                let guard = lock(&locker, &request, worker).acquire().await.unwrap();
                times.acquire.push(began.elapsed());
                let began = Instant::now();
                if drops {
                    drop(guard);
                } else {
                    guard.release().await;
                }
                times.release.push(began.elapsed());
            }
            times
        });
    }
    let all = workers.join_all().await;
    figures(all, start.elapsed())
}

/// Hands a lock over from worker to worker, each with a locker.
async fn handover(lockers: &[Locker], request: &Request) -> Value {
    let gaps = Arc::new(Gaps::new());
    let until = Instant::now() + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for locker in lockers {
        let (locker, request, gaps) = (locker.clone(), request.clone(), gaps.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                let guard = lock(&locker, &request, 0).acquire().await.unwrap();
                pass_on(guard, &gaps).await;
            }
        });
    }
    workers.join_all().await;
    gaps.figures()
}

/// Holds the lock for a while, and lets others acquire it.
async fn pass_on(guard: Guard, gaps: &Gaps) {
    gaps.acquired();
    tokio::time::sleep(HOLD).await;
    gaps.releasing();
    guard.release().await;
    tokio::time::sleep(STEP_ASIDE).await;
}

/// Hands a lock over as [`handover`], but a waiter tries again as soon as a server says that the key has changed, with `CLIENT TRACKING`,
/// and after the library's longest default delay if no server says so. An experiment: RedisLease has no such waiters.
async fn handover_told(lockers: &[Locker], request: &Request) -> Value {
    let gaps = Arc::new(Gaps::new());
    let messages = Arc::new(AtomicUsize::new(0));
    let attempts = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + request.duration();
    let mut workers = tokio::task::JoinSet::new();
    for locker in lockers {
        let changed = Arc::new(Notify::new());
        let key = format!("library-{}:lock:default/{}", request.nodes.len(), request.key(0));
        for node in &request.nodes {
            tell(node.clone(), key.clone(), changed.clone(), messages.clone());
        }
        let (locker, request, gaps, attempts) = (locker.clone(), request.clone(), gaps.clone(), attempts.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                let guard = loop {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    match lock(&locker, &request, 0).try_acquire().await {
                        Ok(guard) => break guard,
                        Err(_) => drop(tokio::time::timeout(Duration::from_millis(250), changed.notified()).await),
                    }
                };
                pass_on(guard, &gaps).await;
            }
        });
    }
    workers.join_all().await;
    let mut figures = gaps.figures();
    figures["messages"] = messages.load(Ordering::Relaxed).into();
    figures["attempts"] = attempts.load(Ordering::Relaxed).into();
    figures
}

/// A thread that notifies about each change of `key` on the server, until the process ends.
fn tell(node: String, key: String, changed: Arc<Notify>, messages: Arc<AtomicUsize>) {
    std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(node)?;
        write!(stream, "HELLO 3\r\nCLIENT TRACKING ON BCAST PREFIX {key}\r\n")?;
        for line in BufReader::new(stream).lines() {
            if line?.starts_with('>') {
                messages.fetch_add(1, Ordering::Relaxed);
                changed.notify_one();
            }
        }
        Ok(())
    });
}

async fn renew(locker: &Locker, request: &Request, rounds: &Rounds) -> Value {
    let began = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..request.workers {
        let lock = lock(locker, request, worker);
        workers.spawn(async move { lock.acquire().await.unwrap() });
    }
    let guards = workers.join_all().await;
    say(&json!({"held": guards.len(), "seconds": began.elapsed().as_secs_f64()}));
    let before = rounds.counts();
    tokio::time::sleep(request.duration()).await;
    let after = rounds.counts();
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    say(&json!({"lost": lost, "renewals": after[0] - before[0], "failed_rounds": after[1] - before[1]}));
    json!({"done": true})
}

async fn lost(locker: &Locker, request: &Request) -> Value {
    let guard = lock(locker, request, 0).acquire().await.unwrap();
    say(&json!({"held": true}));
    let noticed = tokio::time::timeout(request.duration(), guard.lost()).await.is_ok();
    json!({"noticed": noticed, "by": "`Guard::lost`", "done": true})
}
