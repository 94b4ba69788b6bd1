//! What many leases cost on the lock layer: the real keeper and nodes on three real redis-servers, without Kubernetes.
//!
//! The process is its own publisher: it calls a term published as soon as it is confirmed, and wants again after a loss.
//! The sleeps are the durations over which something is measured. Each number of leases runs in a process of its own, so that memory is that of this number.
//!
//! ```text
//! cargo bench --bench lock_scale -- 1000 100000      # numbers of leases; 100 1000 10000 100000 without arguments
//! ```
#![allow(clippy::unwrap_used, reason = "a failed step ends the measurement")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "figures for people")]

mod leases;
mod usage;

use std::process::Command;
use std::time::{Duration, Instant};

use prometheus::Registry;
use redislease::metrics::nodes::NodeMetrics;
use redislease::metrics::panics::Panics;
use redislease_core::lease::TermId;
use redislease_core::marker::Membership;
use redislease_core::time::Millis;
use redislease_lab::{RedisServer, pause, poll, resume};
use redislease_lock::keeper::Keeper;
use redislease_lock::nodes::{Config, NodeConfig, Nodes};

use leases::Leases;
use usage::{Commands, Cpu, Threads, memory};

const NUMBERS: [usize; 4] = [100, 1000, 10_000, 100_000];
/// How long leases last, in renewal intervals.
const LEASE: u64 = 4;
/// How many leases a process begins with at one time: an attempt waits 60 s for its turn at most, and 2,500 attempts begin in a
/// second.
const AT_ONCE: usize = 100_000;
const TIMEOUT: Millis = Millis(500);
/// How long every server is stopped.
const OUTAGE: Duration = Duration::from_mins(1);
/// For how long commands are counted after it.
const AFTERWARDS: u64 = 30;
/// For how long the steady state is measured at least: whole intervals.
const STEADY: Duration = Duration::from_secs(30);
/// A step that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(10);
/// Tells a child process how many leases it keeps.
const ONE: &str = "--one";

/// How often a lease is renewed: every 10 s, and more seldom beyond 100,000 leases, so that three servers and a client that share
/// two processors still renew all of them.
const fn interval(leases: usize) -> Millis {
    let interval = leases as u64 / 10;
    Millis(if interval > 10_000 { interval } else { 10_000 })
}

fn ttl(leases: usize) -> Millis {
    Millis(LEASE * interval(leases).0)
}

fn main() {
    // Cargo passes `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [one, number] = arguments.as_slice()
        && one == ONE
    {
        return measure(number.parse().unwrap());
    }
    let numbers: Vec<usize> = arguments.iter().map(|number| number.parse().expect("a number of leases")).collect();
    let numbers = if numbers.is_empty() { NUMBERS.to_vec() } else { numbers };
    println!("{}", Row::HEADER);
    for number in numbers {
        let status = Command::new(std::env::current_exe().unwrap()).args([ONE, &number.to_string()]).status().unwrap();
        assert!(status.success(), "{number} leases: {status}");
    }
}

/// Servers that vote at once, as if they had waited for the longest lease.
fn servers() -> Vec<RedisServer> {
    let start = |_| {
        let server = RedisServer::start().unwrap();
        server.admit("redislease", &membership().name()).unwrap();
        server
    };
    (0..3).map(start).collect()
}

fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "f00d".into() }
}

/// What a process needs to keep leases.
struct Process {
    nodes: Nodes,
    keeper: Keeper,
    registry: Registry,
}

impl Process {
    fn start(servers: &[RedisServer], leases: usize) -> Self {
        let registry = Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = NodeMetrics::register(&registry, &panics).unwrap();
        let named = |(index, server): (u8, &RedisServer)| NodeConfig {
            name: char::from(b'a' + index).to_string(),
            address: server.address().to_string(),
        };
        let config = Config {
            quorum: "scale".into(),
            nodes: (0..).zip(servers).map(named).collect(),
            key_prefix: "redislease".into(),
            membership: membership(),
            longest_lease: ttl(leases),
            command_timeout: TIMEOUT,
            credentials: None,
            tls: None,
            has_statuses: false,
            connect_last: Vec::new(),
        };
        let nodes = Nodes::start(&config, metrics.quorum(&config)).unwrap();
        let keeper = Keeper::start(panics.keeper_observer()).unwrap();
        let votes = || nodes.watch().borrow().iter().all(|node| node.state == redislease_lock::nodes::NodeState::Up);
        wait_until("every node to vote", votes);
        Self { nodes, keeper, registry }
    }
}

/// How long it took.
fn wait_until(what: &str, done: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    let done = || if done() { Ok(()) } else { Err(format!("still waiting for {what}")) };
    poll(PATIENCE, done).unwrap();
    start.elapsed()
}

/// One line of the table.
struct Row {
    leases: usize,
    held: Duration,
    adopted: Duration,
    /// Cores of this process, and of the three servers together.
    cores: [f64; 2],
    /// Bytes of this process beyond what it had before the first lease.
    memory: u64,
    lost: u64,
    failed_rounds: u64,
    smallest_left: Duration,
    /// Commands a second on one node in steady state, those in scripts included.
    steady: f64,
    /// The same in the 30 s after the outage, and in the busiest of these seconds.
    afterwards: [f64; 2],
    held_again: Duration,
}

impl Row {
    const HEADER: &str = "\
| leases | all held | all adopted | cores: client | cores: 3 servers | memory MB | bytes a lease | lost | failed rounds | smallest validity left | commands/s a node: steady | 30 s after an outage of 60 s | busiest second | factor | all held again |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

    fn print(&self) {
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        println!(
            "| {} | {} | {} | {:.3} | {:.3} | {:.0} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {} |",
            self.leases,
            seconds(self.held),
            seconds(self.adopted),
            self.cores[0],
            self.cores[1],
            self.memory as f64 / 1e6,
            self.memory / self.leases as u64,
            self.lost,
            self.failed_rounds,
            seconds(self.smallest_left),
            self.steady,
            self.afterwards[0],
            self.afterwards[1],
            self.afterwards[0] / self.steady,
            seconds(self.held_again),
        );
    }
}

/// Takes every lease in a first process. Returns how long it took, its terms, and the memory before the first lease.
fn take_all(servers: &[RedisServer], number: usize) -> (Duration, Vec<Option<TermId>>, u64) {
    let process = Process::start(servers, number);
    let before = memory();
    let leases = Leases::open(&process.keeper, &process.nodes, number);
    let began = Instant::now();
    for first in (0..number).step_by(AT_ONCE) {
        let end = number.min(first + AT_ONCE);
        leases.want(first..end);
        wait_until("every lease to be held", || leases.held() >= end);
    }
    let held = began.elapsed();
    let terms = leases.close();
    wait_for_shutdown(&process);
    (held, terms, before)
}

/// Stops all servers for a while. Returns when they run again.
fn outage(servers: &[RedisServer], leases: &Leases, number: usize) -> Instant {
    let lost = leases.lost();
    pause(servers).unwrap();
    let client = Cpu::own();
    // The duration of the fault.
    std::thread::sleep(OUTAGE);
    let (cores, lost) = (client.cores(), leases.lost() - lost);
    eprintln!("{number} leases, client's cores in the outage: {cores:.3}, lost in it: {lost}");
    resume(servers).unwrap();
    Instant::now()
}

fn measure(number: usize) {
    let servers = servers();
    let (held, terms, before) = take_all(&servers, number);
    let process = Process::start(&servers, number);
    let leases = Leases::open(&process.keeper, &process.nodes, number);
    leases.adopt(&terms);
    let adopted = wait_until("every lease to be adopted", || leases.held() == number);

    // The phases spread within one interval.
    std::thread::sleep(Duration::from(interval(number)));
    leases.reset();
    let (client, theirs, commands) = (Cpu::own(), Cpu::of(&servers), Commands::of(&servers));
    let threads = Threads::now();
    // The duration that is measured.
    std::thread::sleep(STEADY.max(Duration::from(interval(number))));
    let cores = [client.cores(), theirs.cores()];
    let steady = commands.per_second();
    eprintln!("{number} leases, cores by thread: {}", threads.cores());
    let (lost, failed_rounds, smallest_left) = (leases.lost(), leases.failed_rounds(), leases.smallest_left());
    let memory = memory().saturating_sub(before);

    let back = outage(&servers, &leases, number);
    let (afterwards, held_again) = aftermath(&servers, &leases, number, back);
    Row {
        leases: number,
        held,
        adopted,
        cores,
        memory,
        lost,
        failed_rounds,
        smallest_left,
        steady,
        afterwards,
        held_again,
    }
    .print();
    let page = prometheus::TextEncoder::new().encode_to_string(&process.registry.gather()).unwrap();
    let counted = |line: &&str| line.starts_with("redislease_redis_errors_total") && !line.ends_with(" 0");
    eprintln!("{}", page.lines().filter(counted).collect::<Vec<_>>().join("\n"));
    drop(leases);
    drop(process);
}

/// Commands a second in the time after the outage, and when every lease was held again.
fn aftermath(servers: &[RedisServer], leases: &Leases, number: usize, back: Instant) -> ([f64; 2], Duration) {
    let (all, mut busiest) = (Commands::of(servers), 0_f64);
    let mut held_again = None;
    for _ in 0..AFTERWARDS {
        let one = Commands::of(servers);
        // The rate of each second is measured.
        std::thread::sleep(Duration::from_secs(1));
        busiest = busiest.max(one.per_second());
        if held_again.is_none() && leases.held() == number {
            held_again = Some(back.elapsed());
        }
    }
    let mean = all.per_second();
    let held_again = held_again.unwrap_or_else(|| {
        wait_until("every lease to be held again", || leases.held() == number);
        back.elapsed()
    });
    ([mean, busiest], held_again)
}

fn wait_for_shutdown(process: &Process) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(process.keeper.shutdown());
}
