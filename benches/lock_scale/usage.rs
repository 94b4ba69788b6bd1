//! What processes use: processor, memory, commands.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use redislease_lab::{RedisServer, Usage};

/// Clock ticks a second in `/proc`.
const TICKS: f64 = 100.0;

/// Processor time of processes since an instant.
pub struct Cpu {
    processes: Vec<u32>,
    used: Duration,
    since: Instant,
}

impl Cpu {
    pub fn own() -> Self {
        Self::new(vec![std::process::id()])
    }

    pub fn of(servers: &[RedisServer]) -> Self {
        Self::new(servers.iter().filter_map(|server| server.process().pid()).collect())
    }

    fn new(processes: Vec<u32>) -> Self {
        let used = processes.iter().filter_map(|process| Usage::of(*process).ok()).map(|usage| usage.cpu).sum();
        Self { processes, used, since: Instant::now() }
    }

    /// How many cores they used since then.
    pub fn cores(&self) -> f64 {
        let now = Self::new(self.processes.clone());
        now.used.saturating_sub(self.used).as_secs_f64() / self.since.elapsed().as_secs_f64()
    }
}

/// Of user and system.
fn ticks(path: &str) -> u64 {
    let stat = fs::read_to_string(path).unwrap_or_default();
    // The name in parentheses may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Processor time of the threads of this process since an instant.
pub struct Threads {
    ticks: BTreeMap<String, u64>,
    since: Instant,
}

impl Threads {
    pub fn now() -> Self {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let mut ticks_of = BTreeMap::new();
        for thread in threads {
            let path = thread.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
            *ticks_of.entry(name).or_default() += ticks(&path.join("stat").to_string_lossy());
        }
        Self { ticks: ticks_of, since: Instant::now() }
    }

    pub fn cores(&self) -> String {
        let now = Self::now();
        let seconds = self.since.elapsed().as_secs_f64();
        let cores = |(name, ticks): (&String, &u64)| {
            let used = (ticks - self.ticks.get(name).copied().unwrap_or_default()) as f64 / TICKS / seconds;
            format!("{name} {used:.3}")
        };
        now.ticks.iter().map(cores).collect::<Vec<_>>().join(", ")
    }
}

/// Resident bytes of this process.
pub fn memory() -> u64 {
    Usage::of(std::process::id()).map_or(0, |usage| usage.memory)
}

/// Commands that servers have run since an instant, those in scripts included.
pub struct Commands<'a> {
    servers: &'a [RedisServer],
    count: u64,
    since: Instant,
}

impl<'a> Commands<'a> {
    pub fn of(servers: &'a [RedisServer]) -> Self {
        Self { servers, count: servers.iter().map(count).sum(), since: Instant::now() }
    }

    /// Commands a second on one server.
    pub fn per_second(&self) -> f64 {
        let now: u64 = self.servers.iter().map(count).sum();
        (now - self.count) as f64 / self.servers.len() as f64 / self.since.elapsed().as_secs_f64()
    }
}

fn count(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).ok().and_then(|stats| stats.text()).unwrap_or_default();
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter_map(calls).sum()
}
