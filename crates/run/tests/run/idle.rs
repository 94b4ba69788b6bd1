//! What `run` costs while the command works.

use std::fs;
use std::time::Duration;

use redislease_lab::{RedisServer, private_memory};

use crate::support::{Run, Servers, child_of, eventually};

/// The most private memory of `run` and its guard together, in kB.
const MOST_MEMORY: u64 = 6 * 1024;

/// The parts of a core.
struct Used {
    /// Of `run`, guard and init together.
    run: f64,
    /// Of a redis-server that nobody uses, at the same time.
    idle_server: f64,
}

/// Measures the private memory of `run`, guard and init, and the processor time.
fn measure(run: Run, span: Duration) -> Used {
    let unused = RedisServer::start().unwrap();
    let server = [unused.process().pid().unwrap()];
    let run = run.spawn();
    eventually("the command", || run.guard().and_then(child_of).and_then(child_of).is_some());
    let guard = run.guard().unwrap();
    let pids = [run.pid(), guard, child_of(guard).unwrap()].map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    let used = |pids: &[u32]| pids.iter().map(|pid| processor_time(*pid)).sum::<Duration>();
    let before = [used(&pids), used(&server)];
    std::thread::sleep(span);
    let after = [used(&pids), used(&server)];
    let [run, idle_server] = [0, 1].map(|of| after[of].saturating_sub(before[of]).as_secs_f64() / span.as_secs_f64());
    let [keeper, guard, init] = pids.map(|pid| private_memory(pid).unwrap());
    println!(
        "private memory: run {keeper} kB, guard {guard} kB, init {init} kB; {:.3} % of a core in {span:?}; an unused redis-server: {:.3} %",
        run * 100.0,
        idle_server * 100.0
    );
    assert!(keeper + guard <= MOST_MEMORY, "run {keeper} kB, guard {guard} kB: at most {MOST_MEMORY} kB together");
    Used { run, idle_server }
}

#[test]
fn an_idle_run_needs_little_memory_and_processor_time() {
    let servers = Servers::short();
    let used = measure(servers.run(&["--lease", "test/idle", "-q"], &["sleep", "1000"]), Duration::from_secs(5));
    assert!(used.run <= 0.01, "{} of a core, with a renewal every 0.6 s", used.run);
}

/// With the default durations, and for the build that is released: `make run-idle`.
#[test]
#[ignore = "it takes 100 s, and the figures are those of a release build"]
fn an_idle_run_with_the_default_durations_needs_a_thousandth_of_a_core() {
    let servers = Servers::new("60s");
    let run = Run::new(&["--redis", &servers.urls(), "--lease", "test/idle", "-q", "--", "sleep", "1000"]);
    let Used { run, idle_server } = measure(run, Duration::from_mins(1));
    // A processor that other machines share needs several times as long for a program that seldom runs.
    let most = f64::max(0.001, 1.5 * idle_server);
    assert!(run <= most, "{run} of a core: at most {most}");
}

/// The time that all threads of a process have run.
fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let nanoseconds = threads.map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default()
    });
    Duration::from_nanos(nanoseconds.sum())
}
