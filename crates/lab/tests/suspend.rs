//! A process on a machine that is suspended: its timers on CLOCK_MONOTONIC do not count the suspend, and those on
//! CLOCK_BOOTTIME do. Needs cc.

use std::{
    env, fs,
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use redislease_lab::{Process, Result, SuspendLibrary, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

/// Each timer of the process.
const TIMER: Duration = Duration::from_secs(5);
/// Longer than the timers.
const SUSPEND: Duration = Duration::from_secs(6);
/// Tolerance for a busy machine. Less than the difference between a suspend that counts and one that does not.
const BUSY: Duration = Duration::from_secs(4);
/// Limit for the start of the process and for its output after the timers.
const SOON: Duration = Duration::from_secs(20);

/// CLOCK_BOOTTIME, by a system call that the library of the machine does not see.
fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).expect("after the boot");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// Runs `wait`, and prints how long it took on both clocks, in milliseconds.
fn measured(name: &str, wait: impl FnOnce()) {
    let (monotonic, boot) = (Instant::now(), boottime());
    println!("{name} started");
    wait();
    println!("{name} took {} {}", monotonic.elapsed().as_millis(), boottime().saturating_sub(boot).as_millis());
}

/// Runs in a separate process, started by the test below.
#[test]
#[ignore = "the process whose machine the next test suspends"]
fn timers() {
    let condvar = || {
        let (changed, never) = (Condvar::new(), Mutex::new(()));
        let mut guard = never.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (again, waited) = changed.wait_timeout(guard, TIMER).unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                return;
            }
            guard = again;
        }
    };
    let tokio = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { tokio::time::sleep(TIMER).await });
    };
    let alarm = || {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).expect("a timer");
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec { tv_sec: TIMER.as_secs().cast_signed(), tv_nsec: 0 };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: after })
            .expect("a timer that is set");
        rustix::io::read(&timer, &mut [0_u8; 8]).expect("its end");
    };
    thread::scope(|scope| {
        scope.spawn(|| measured("condvar", condvar));
        scope.spawn(|| measured("tokio", tokio));
        scope.spawn(|| measured("alarm", alarm));
    });
}

/// Waits for a line with this text in the log, and returns what follows the text.
fn line(process: &Process, text: &str) -> String {
    let found = poll(SOON, || {
        let log = fs::read_to_string(process.log()).unwrap_or_default();
        let rest = log.lines().find_map(|line| line.split_once(text)).map(|(_, rest)| rest.trim().to_owned());
        rest.ok_or(log)
    });
    found.unwrap_or_else(|log| panic!("no line has {text:?}:\n{log}"))
}

#[test]
fn a_suspend_stops_the_monotonic_clock_and_no_other() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let this = env::current_exe().expect("this test");
    let process = Process::new("the process with timers", this, folder.path().join("log"))
        .args(["--exact", "timers", "--ignored", "--nocapture"])
        .on_machine(SuspendLibrary::compile(folder.path())?.machine("sleeper")?);
    process.start()?;
    for name in ["condvar", "tokio", "alarm"] {
        line(&process, &format!("{name} started"));
    }
    process.suspend()?;
    let suspended = Instant::now();
    poll(SUSPEND + SOON, || {
        let log = fs::read_to_string(process.log()).unwrap_or_default();
        assert!(!log.contains("took"), "the process runs during the suspend:\n{log}");
        if suspended.elapsed() >= SUSPEND { Ok(()) } else { Err(String::new()) }
    })
    .expect("the end of the suspend");
    process.wake()?;
    let took = |name: &str| {
        let took = line(&process, &format!("{name} took "));
        let mut clocks = took.split(' ').map(|clock| Duration::from_millis(clock.parse().expect("a number")));
        (clocks.next().expect("one clock"), clocks.next().expect("two clocks"))
    };
    for name in ["condvar", "tokio"] {
        let (monotonic, boot) = took(name);
        assert!(monotonic >= TIMER && monotonic < TIMER + BUSY, "{name}: {monotonic:?} on CLOCK_MONOTONIC");
        assert!(boot >= TIMER + SUSPEND, "{name}: {boot:?} on CLOCK_BOOTTIME");
    }
    let (monotonic, boot) = took("alarm");
    assert!(monotonic < TIMER, "the alarm counts the suspend: {monotonic:?} on CLOCK_MONOTONIC");
    assert!(boot >= SUSPEND, "{boot:?} on CLOCK_BOOTTIME");
    Ok(())
}
