//! rslock, as its documentation uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::protocol::{Gaps, HOLD, Request, STEP_ASIDE, Times, figures, say, unsupported};

/// How many extensions are in flight at a time.
const AT_ONCE: usize = 256;

#[derive(Default)]
pub struct Managers(HashMap<Vec<String>, LockManager>);

impl Managers {
    fn of(&mut self, nodes: &[String]) -> LockManager {
        let new = || LockManager::new(nodes.iter().map(|node| format!("redis://{node}")).collect());
        self.0.entry(nodes.to_vec()).or_insert_with(new).clone()
    }

    pub async fn answer(&mut self, request: Request) -> Value {
        let manager = self.of(&request.nodes);
        match request.what.as_str() {
            "cycles" => cycles(manager, request).await,
            "handover" => handover(manager, request).await,
            "renew" => renew(manager, request).await,
            "lost" => lost(manager, request).await,
            "hold" | "take" => {
                let lock = manager.acquire(request.key(0).as_bytes(), request.ttl()).await.unwrap();
                // Only the keys count.
                std::mem::forget(lock);
                json!({"held": true})
            }
            "stale" => {
                let lock = manager.acquire(request.key(0).as_bytes(), request.ttl()).await.unwrap();
                say(&json!({"held": true}));
                tokio::time::sleep(request.duration()).await;
                manager.unlock(&lock.lock).await;
                json!({"done": true})
            }
            "foreign" => {
                let (resource, val) = (request.key(0).into_bytes(), vec![0; 20]);
                let lock = Lock { resource, val, validity_time: 0, lock_manager: manager.clone() };
                manager.unlock(&lock).await;
                json!({"done": true})
            }
            "extension" => {
                let lock = manager.lock(request.key(0).as_bytes(), request.ttl()).await.unwrap();
                say(&json!({"held": true}));
                tokio::time::sleep(request.duration()).await;
                let extended = manager.extend(&lock, request.ttl()).await.is_ok();
                json!({"extended": extended, "done": true})
            }
            _ => unsupported(),
        }
    }
}

async fn cycles(manager: LockManager, request: Request) -> Value {
    let start = Instant::now();
    let until = start + request.duration();
    let mut workers = JoinSet::new();
    for worker in 0..request.workers {
        let (manager, key, ttl) = (manager.clone(), request.key(worker), request.ttl());
        workers.spawn(async move {
            let mut times = Times::default();
            while Instant::now() < until {
                let began = Instant::now();
                match manager.lock(key.as_bytes(), ttl).await {
                    Ok(lock) => {
                        times.acquire.push(began.elapsed());
                        let began = Instant::now();
                        manager.unlock(&lock).await;
                        times.release.push(began.elapsed());
                    }
                    Err(_) => times.errors += 1,
                }
            }
            times
        });
    }
    let all = workers.join_all().await;
    figures(all, start.elapsed())
}

async fn handover(manager: LockManager, request: Request) -> Value {
    let gaps = Arc::new(Gaps::new());
    let until = Instant::now() + request.duration();
    let mut workers = JoinSet::new();
    for _ in 0..request.workers {
        let (manager, key, ttl, gaps) = (manager.clone(), request.key(0), request.ttl(), gaps.clone());
        workers.spawn(async move {
            while Instant::now() < until {
                if let Ok(lock) = manager.lock(key.as_bytes(), ttl).await {
                    gaps.acquired();
                    tokio::time::sleep(HOLD).await;
                    gaps.releasing();
                    manager.unlock(&lock).await;
                    tokio::time::sleep(STEP_ASIDE).await;
                }
            }
        });
    }
    workers.join_all().await;
    gaps.figures()
}

async fn renew(manager: LockManager, request: Request) -> Value {
    let began = Instant::now();
    let mut locks: Vec<Option<Lock>> = Vec::new();
    for first in (0..request.workers).step_by(AT_ONCE) {
        let mut workers = JoinSet::new();
        for worker in first..request.workers.min(first + AT_ONCE) {
            let (manager, key, ttl) = (manager.clone(), request.key(worker), request.ttl());
            workers.spawn(async move { manager.lock(key.as_bytes(), ttl).await.ok() });
        }
        locks.extend(workers.join_all().await);
    }
    say(&json!({"held": locks.iter().flatten().count(), "seconds": began.elapsed().as_secs_f64()}));
    let until = Instant::now() + request.duration();
    let interval = Duration::from_millis(request.interval_ms);
    let (lost, renewals) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    while Instant::now() < until {
        let next = Instant::now() + interval;
        for chunk in locks.chunks_mut(AT_ONCE) {
            let mut workers = JoinSet::new();
            for lock in chunk.iter_mut().filter_map(Option::take) {
                let (manager, ttl) = (manager.clone(), request.ttl());
                workers.spawn(async move { manager.extend(&lock, ttl).await.ok() });
            }
            let kept = workers.join_all().await;
            lost.fetch_add(kept.iter().filter(|lock| lock.is_none()).count(), Ordering::Relaxed);
            renewals.fetch_add(kept.iter().flatten().count(), Ordering::Relaxed);
            for (place, lock) in chunk.iter_mut().zip(kept) {
                *place = lock;
            }
        }
        tokio::time::sleep_until(next.min(until).into()).await;
    }
    json!({"lost": lost.load(Ordering::Relaxed), "renewals": renewals.load(Ordering::Relaxed), "done": true})
}

/// `using` returns an error when an extension fails.
async fn lost(manager: LockManager, request: Request) -> Value {
    let key = request.key(0);
    let held = AtomicBool::new(false);
    let work = manager.using(key.as_bytes(), request.ttl(), async || {
        held.store(true, Ordering::Relaxed);
        say(&json!({"held": true}));
        tokio::time::sleep(request.duration()).await;
    });
    match work.await {
        Ok(()) => json!({"noticed": false, "done": true}),
        Err(error) => json!({"noticed": held.load(Ordering::Relaxed), "by": error.to_string(), "done": true}),
    }
}
