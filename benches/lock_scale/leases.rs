//! Many leases, whose publisher is this process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Config, EndReason, OnDeadline, Publication, Renewal, Standing, TermId, View};
use redislease_core::op::{Attempt, Holder};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::{Command, Keeper, LeaseHandle, Observer, Setup};
use redislease_lock::nodes::Nodes;

use crate::{TIMEOUT, interval, ttl};

fn config(leases: usize) -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: ttl(leases),
        renew_interval: interval(leases),
        stop_budget: Millis(11_000),
        command_timeout: TIMEOUT,
        drift: Drift::STANDARD,
        backoff: Backoff::exponential(100, 10_000, 10),
        deadline: OnDeadline::Seal,
    }
}

/// What the publisher is told of one lease.
enum News {
    Confirmed(u32, Attempt),
    /// Idle, and when the next attempt may begin.
    Idle(u32, Time),
    Held(u32, TermId),
}

#[derive(Default)]
struct Shared {
    news: Mutex<Vec<News>>,
    arrived: Condvar,
    stop: AtomicBool,
    held: AtomicUsize,
    lost: AtomicU64,
    failed_rounds: AtomicU64,
    /// In milliseconds.
    smallest_left: AtomicU64,
}

impl Shared {
    fn tell(&self, news: News) {
        let mut all = self.news.lock().unwrap();
        all.push(news);
        if all.len() == 1 {
            self.arrived.notify_one();
        }
    }
}

/// The observer of one lease.
struct Watch {
    number: u32,
    shared: Arc<Shared>,
    held: AtomicBool,
    acquires: AtomicBool,
}

impl Observer for Watch {
    fn renewed(&self, renewal: &Renewal, _: u64) {
        match renewal {
            Renewal::Success { left, .. } => {
                let left = left.map_or(u64::MAX, |left| left.0);
                self.shared.smallest_left.fetch_min(left, Ordering::Relaxed);
            }
            _ => {
                self.shared.failed_rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn changed(&self, view: &View) {
        let shared = &self.shared;
        let holds = matches!(view.standing, Standing::Held(_));
        let held = self.held.swap(holds, Ordering::Relaxed);
        match (&view.standing, &view.ending) {
            (Standing::Publishing(term), _) if self.acquires.swap(false, Ordering::Relaxed) => {
                shared.tell(News::Confirmed(self.number, term.id.attempt));
            }
            (Standing::Held(term), _) if !held => {
                shared.held.fetch_add(1, Ordering::Relaxed);
                shared.tell(News::Held(self.number, term.id.clone()));
            }
            (Standing::Idle, ending) => {
                if held && ending.as_ref().is_some_and(|ending| ending.reason != EndReason::Decided) {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                }
                self.acquires.store(false, Ordering::Relaxed);
                shared.tell(News::Idle(self.number, view.retry_at.unwrap_or_default()));
            }
            (Standing::Acquiring(..), _) => self.acquires.store(true, Ordering::Relaxed),
            _ => {}
        }
        if held && !holds {
            shared.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub struct Leases {
    shared: Arc<Shared>,
    handles: Arc<Vec<LeaseHandle>>,
    publisher: Option<JoinHandle<Vec<Option<TermId>>>>,
}

impl Leases {
    pub fn open(keeper: &Keeper, nodes: &Nodes, count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let open = |number: usize| {
            let number = u32::try_from(number).unwrap();
            let observer = Watch {
                number,
                shared: shared.clone(),
                held: AtomicBool::new(false),
                acquires: AtomicBool::new(false),
            };
            keeper.open(Setup {
                nodes: Some(nodes.clone()),
                keys: [nodes.keyspace().lock("scale", &format!("lease-{number}"))].into(),
                config: config(count),
                policy: None,
                jump_wait: None,
                observer: Box::new(observer),
            })
        };
        let handles: Arc<Vec<LeaseHandle>> = Arc::new((0..count).map(open).collect());
        let publisher = std::thread::Builder::new().name("publisher".into()).spawn({
            let (shared, handles) = (shared.clone(), handles.clone());
            move || publish(&shared, &handles)
        });
        let leases = Self { shared, handles, publisher: publisher.ok() };
        leases.reset();
        leases
    }

    pub fn want(&self, range: Range<usize>) {
        for handle in &self.handles[range] {
            handle.command(Command::Want(holder()));
        }
    }

    pub fn adopt(&self, terms: &[Option<TermId>]) {
        for (handle, term) in self.handles.iter().zip(terms) {
            handle.command(Command::Adopt(term.clone().unwrap()));
        }
    }

    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }

    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    pub fn failed_rounds(&self) -> u64 {
        self.shared.failed_rounds.load(Ordering::Relaxed)
    }

    pub fn smallest_left(&self) -> Duration {
        Duration::from_millis(self.shared.smallest_left.load(Ordering::Relaxed))
    }

    /// Counts anew.
    pub fn reset(&self) {
        self.shared.smallest_left.store(u64::MAX / 2, Ordering::Relaxed);
        self.shared.failed_rounds.store(0, Ordering::Relaxed);
    }

    /// Leaves every term to the next process, and returns which they are.
    pub fn close(mut self) -> Vec<Option<TermId>> {
        self.stop()
    }

    fn stop(&mut self) -> Vec<Option<TermId>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.arrived.notify_one();
        self.publisher.take().map(|publisher| publisher.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.stop();
    }
}

fn holder() -> Holder {
    Holder("scale/publisher".into())
}

/// Publishes what is confirmed, and wants again what is idle. Returns the terms that were held last.
fn publish(shared: &Shared, handles: &[LeaseHandle]) -> Vec<Option<TermId>> {
    let mut terms = vec![None; handles.len()];
    let mut waiting: BinaryHeap<Reverse<(Time, u32)>> = BinaryHeap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut all = shared.news.lock().unwrap();
        if all.is_empty() {
            all = shared.arrived.wait_timeout(all, Duration::from_millis(10)).unwrap().0;
        }
        let news = std::mem::take(&mut *all);
        drop(all);
        for news in news {
            match news {
                News::Confirmed(number, attempt) => {
                    handles[number as usize].command(Command::Published { attempt, outcome: Publication::Written });
                }
                News::Idle(number, retry_at) => waiting.push(Reverse((retry_at, number))),
                News::Held(number, term) => terms[number as usize] = Some(term),
            }
        }
        // A wish for a lease that has moved on since does nothing.
        while let Some(Reverse((at, number))) = waiting.peek().copied()
            && at <= clock::now()
        {
            waiting.pop();
            handles[number as usize].command(Command::Want(holder()));
        }
    }
    terms
}
