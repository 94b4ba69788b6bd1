//! The same crontab on two machines whose clocks differ: one run for each tick.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Running, Servers, eventually, program};

/// The time from one tick to the next.
const TICK: Duration = Duration::from_secs(5);
const TICKS: u32 = 4;
/// Less than a tick, and more than the clocks differ by.
const HOLD: &str = "2900ms";

/// The line of the crontab.
fn line(servers: &Servers, options: &[&str], log: &Path) -> String {
    let script = format!("echo $REDISLEASE_TOKEN >> {}", log.display());
    let options: Vec<&str> = ["--lease", "test/report", "--wait", "0", "-q"].iter().chain(options).copied().collect();
    servers.run(&options, &["sh", "-c", &script]).line()
}

/// Runs a line as cron does. Returns the exit code.
fn cron(line: &str) -> Option<i32> {
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().envs([("HOME", "/"), ("LOGNAME", "root"), ("PATH", "/usr/bin:/bin"), ("SHELL", "/bin/sh")]);
    shell.args(["-c", line]).status().unwrap().code()
}

fn runs(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

#[test]
fn two_machines_with_skewed_clocks_run_a_task_once_for_each_tick() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let line = line(&servers, &["--hold-at-least", HOLD], &log);
    let began = Instant::now();
    // The second clock is late, and drifts.
    let machine = |late: fn(u32) -> Duration| {
        let line = &line;
        move || {
            let tick = |tick: u32| {
                thread::sleep((TICK * tick + late(tick)).saturating_sub(began.elapsed()));
                cron(line)
            };
            (0..TICKS).map(tick).collect::<Vec<_>>()
        }
    };
    let codes = thread::scope(|scope| {
        let first = scope.spawn(machine(|_| Duration::from_millis(300)));
        let second = scope.spawn(machine(|tick| Duration::from_millis(250 * u64::from(tick))));
        [first.join().unwrap(), second.join().unwrap()]
    });
    let each: Vec<[Option<i32>; 2]> = codes[0].iter().zip(&codes[1]).map(|(first, second)| [*first, *second]).collect();
    println!("exit codes of the two machines for each tick: {each:?}");
    for mut codes in each {
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(75)]);
    }
    assert_eq!(runs(&log), usize::try_from(TICKS).unwrap());
}

#[test]
fn of_two_machines_with_the_same_clock_one_runs_also_without_one_server() {
    let servers = Servers::start();
    servers.redis[2].process().pause().unwrap();
    for tick in 0..30 {
        let lease = format!("test/tick-{tick}");
        let options = ["--lease", &lease, "--wait", "0", "--hold-at-least", "2s", "-q"];
        let mut machines = [0, 1].map(|_| servers.run(&options, &["true"]).spawn());
        let mut ends = machines.each_mut().map(|machine| (machine.wait().code(), machine.errors()));
        ends.sort();
        assert_eq!(ends, [(Some(0), String::new()), (Some(75), String::new())], "{tick}");
    }
    servers.redis[2].process().resume().unwrap();
}

#[test]
fn without_the_option_a_task_that_is_shorter_than_the_skew_runs_twice() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let line = line(&servers, &[], &log);
    assert_eq!([cron(&line), cron(&line)], [Some(0), Some(0)]);
    assert_eq!(runs(&log), 2);
}

/// New servers vote only after one program has been connected to them for one longest lease.
#[test]
fn the_line_for_a_reboot_lets_new_servers_vote_for_programs_that_end_at_once() {
    let servers = Servers::new("5s");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), servers.urls().replace(',', "\n")).unwrap();
    let page = fs::read_to_string(redislease_lab::repository().join("docs/run.md")).unwrap();
    let shell = |begin: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(begin)).unwrap().trim();
        let line = line.replace("/usr/local/bin/redislease", program().to_str().unwrap());
        let line = line.replace("/usr/local/bin/report", "true").replace("20s", "2s");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).env("REDISLEASE_RUN_REDIS_FILE", file.path());
        shell.envs([
            ("REDISLEASE_RUN_LONGEST_LEASE", "5s"),
            ("REDISLEASE_RUN_TTL", "5s"),
            ("REDISLEASE_RUN_GRACE", "300ms"),
        ]);
        shell
    };
    let task = || shell("*/5 * * * *").stderr(Stdio::null()).status().unwrap().code();
    assert_eq!([task(), task(), task()], [Some(69); 3]);
    let _connected = Running::of(shell("@reboot").stderr(Stdio::null()).spawn().unwrap());
    eventually("a run of the task", || task() == Some(0));
}
