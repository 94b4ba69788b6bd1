//! Requests, answers, and the figures in them.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

/// One request of the driver.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// What to measure, as bench/README.md lists it.
    #[serde(rename = "do")]
    pub what: String,
    /// `host:port` of each server.
    pub nodes: Vec<String>,
    /// Concurrent workers, or the number of locks to renew.
    #[serde(default = "one")]
    pub workers: usize,
    /// How long to measure.
    #[serde(default)]
    pub seconds: f64,
    pub ttl_ms: u64,
    #[serde(default)]
    pub interval_ms: u64,
    /// Keys of one request begin with it.
    pub prefix: String,
}

const fn one() -> usize {
    1
}

impl Request {
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub fn key(&self, worker: usize) -> String {
        format!("{}-{worker}", self.prefix)
    }
}

/// Answers requests until the end of the input.
pub fn serve(mut answer: impl FnMut(Request) -> Value) {
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line.unwrap()).unwrap();
        say(&answer(request));
    }
}

/// Writes one line.
pub fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").unwrap();
    out.flush().unwrap();
}

pub fn unsupported() -> Value {
    json!({"unsupported": true})
}

/// The times of one worker.
#[derive(Default)]
pub struct Times {
    pub acquire: Vec<Duration>,
    pub release: Vec<Duration>,
    pub errors: usize,
}

/// The figures of all workers.
pub fn figures(all: Vec<Times>, took: Duration) -> Value {
    let errors: usize = all.iter().map(|times| times.errors).sum();
    let (mut acquire, mut release) = (Vec::new(), Vec::new());
    for times in all {
        acquire.extend(times.acquire);
        release.extend(times.release);
    }
    json!({
        "cycles": release.len(),
        "seconds": took.as_secs_f64(),
        "errors": errors,
        "acquire_us": percentiles(acquire),
        "release_us": percentiles(release),
    })
}

/// The first time, the median and the 99th percentile in microseconds.
pub fn percentiles(mut times: Vec<Duration>) -> Value {
    let first = times.first().map(|time| time.as_secs_f64() * 1e6);
    times.sort_unstable();
    let at = |percent: usize| {
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).map(|time| time.as_secs_f64() * 1e6)
    };
    json!({"first": first, "p50": at(50), "p99": at(99), "count": times.len()})
}

/// From the call of a release to the next success of another waiter.
pub struct Gaps {
    start: Instant,
    /// Nanoseconds after `start`; 0 before the first release.
    released: AtomicU64,
    gaps: Mutex<Vec<Duration>>,
}

impl Gaps {
    pub fn new() -> Self {
        Self { start: Instant::now(), released: AtomicU64::new(0), gaps: Mutex::default() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }

    pub fn acquired(&self) {
        let released = self.released.swap(0, Ordering::SeqCst);
        if released > 0 {
            self.gaps.lock().unwrap().push(Duration::from_nanos(self.now() - released));
        }
    }

    pub fn releasing(&self) {
        self.released.store(self.now(), Ordering::SeqCst);
    }

    pub fn figures(&self) -> Value {
        json!({"gap_us": percentiles(self.gaps.lock().unwrap().clone())})
    }
}

/// How long a holder keeps a lock that others wait for.
pub const HOLD: Duration = Duration::from_millis(2);
/// How long a worker that released does not ask again, so that others get the lock.
pub const STEP_ASIDE: Duration = Duration::from_millis(20);
