//! The clock for validity, and timers on it.
//!
//! The clock is `CLOCK_BOOTTIME`, which keeps running while the machine is suspended, as the TTLs on the Redis nodes do.
//! `std::time::Instant` and the timers of tokio stop in suspend, so validity never uses them.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use redislease_core::time::{Millis, Time};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The current time, in whole milliseconds, rounded down.
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or_default();
    Time(seconds.saturating_mul(1000) + nanoseconds / 1_000_000) - lost::time()
}

/// Unix time of the wall clock, in microseconds. Never used for validity.
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The wall clock's time at `instant`, if the clock is not set in between. For display.
pub fn wall(instant: Time) -> SystemTime {
    let (now, wall) = (now(), SystemTime::now());
    if instant >= now { wall + Duration::from(instant.since(now)) } else { wall - Duration::from(now.since(instant)) }
}

/// Time that the clock of this process has lost, as that of a virtual machine that was paused. Only a build with debug assertions
/// can lose time, and only tests make it: the file that `REDISLEASE_TEST_LOST_TIME` names contains the milliseconds, in 8 digits.
/// The clock, and the alarms with it, then show what they would show on such a machine.
mod lost {
    use redislease_core::time::Millis;

    #[cfg(not(debug_assertions))]
    pub const fn time() -> Millis {
        Millis::ZERO
    }

    #[cfg(debug_assertions)]
    pub fn time() -> Millis {
        use std::fs::File;
        use std::os::unix::fs::FileExt;
        use std::sync::LazyLock;

        static SOURCE: LazyLock<Option<File>> =
            LazyLock::new(|| std::env::var_os("REDISLEASE_TEST_LOST_TIME").and_then(|path| File::open(path).ok()));
        let Some(source) = &*SOURCE else { return Millis::ZERO };
        let mut digits = [0; 8];
        let text = source.read_exact_at(&mut digits, 0).ok().and_then(|()| std::str::from_utf8(&digits).ok());
        Millis(text.and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

/// A timer of the operating system (timerfd), which can be reset.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set: Option<Time>,
}

impl Alarm {
    /// Creates an alarm that is not set. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[allow(deprecated, reason = "its replacement is unsafe; OwnedFd already guarantees what it requires")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, set: None })
    }

    /// Sets the alarm to `at`, replacing the previous time; `None` clears it.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn set(&mut self, at: Option<Time>) -> io::Result<()> {
        if self.set == at {
            return Ok(());
        }
        self.arm(at)?;
        self.set = at;
        Ok(())
    }

    fn arm(&self, at: Option<Time>) -> io::Result<()> {
        let at = at.map(|at| at + lost::time());
        // A value of zero would clear the timer instead of expiring at once.
        let value = at.map_or(Timespec { tv_sec: 0, tv_nsec: 0 }, |at| timespec(at.max(Time(1))));
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Makes sure that the alarm expires at `at` or earlier. Saves a system call for a caller that reads the clock
    /// afterwards anyway.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn set_no_later(&mut self, at: Option<Time>) -> io::Result<()> {
        match (self.set, at) {
            (_, None) => Ok(()),
            (Some(set), Some(at)) if set <= at => Ok(()),
            _ => self.set(at),
        }
    }

    /// Returns when the alarm expires, which clears it. Cancel-safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn expired(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.timer.readable().await?;
            let read = guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0_u8; 8])?));
            match read {
                // Time was lost since the alarm was set.
                Ok(Ok(_)) if cfg!(debug_assertions) && self.set.is_some_and(|at| now() < at) => self.arm(self.set)?,
                Ok(Ok(_)) => {
                    self.set = None;
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error),
                Err(_not_yet) => {}
            }
        }
    }
}

fn timespec(at: Time) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(at.0 / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(at.0 % 1000).unwrap_or_default() * 1_000_000,
    }
}

/// Sleeps until `at`; returns at once if it is in the past.
///
/// # Errors
/// The process has no free file descriptor.
pub async fn sleep_until(at: Time) -> io::Result<()> {
    let mut alarm = Alarm::new()?;
    alarm.set(Some(at))?;
    alarm.expired().await
}

/// Runs `work` for at most `span`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if `work` does not complete in time; it is dropped. Another error if the process has no
/// free file descriptor.
pub async fn within<T>(span: Millis, work: impl Future<Output = T>) -> io::Result<T> {
    let timeout = sleep_until(now() + span);
    tokio::select! {
        biased;
        done = work => Ok(done),
        slept = timeout => Err(slept.err().unwrap_or_else(|| io::ErrorKind::TimedOut.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeps_no_less_than_asked() {
        let at = now() + Millis(20);
        sleep_until(at).await.unwrap();
        assert!(now() >= at);
        sleep_until(Time(0)).await.unwrap();
    }

    #[tokio::test]
    async fn an_alarm_expires_at_the_instant_set_last() {
        let mut alarm = Alarm::new().unwrap();
        alarm.set(Some(now() + Millis(60_000))).unwrap();
        let at = now() + Millis(20);
        alarm.set(Some(at)).unwrap();
        alarm.expired().await.unwrap();
        assert!(now() >= at && now().since(at) < Millis(10_000));
        let error = within(Millis(20), alarm.expired()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "it expires once");
    }

    /// By how many seconds CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC in the time namespace of the test below, as after a
    /// long suspend.
    const SUSPENDED: u64 = 1_000_000_000;

    #[tokio::test]
    #[ignore = "run by the next test, in a time namespace"]
    async fn in_a_time_namespace_after_a_suspend() {
        assert!(now() >= Time(SUSPENDED * 1000), "{:?} does not count suspend", now());
        let at = now() + Millis(20);
        tokio::time::timeout(Duration::from_secs(10), sleep_until(at)).await.expect("the timer expires").unwrap();
        assert!(now() >= at);
    }

    #[test]
    fn clock_and_alarm_count_suspend() {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--time", "--boottime", &SUSPENDED.to_string(), "--fork", "--"]);
        unshare.arg(std::env::current_exe().unwrap());
        unshare.args(["--exact", "clock::tests::in_a_time_namespace_after_a_suspend", "--ignored"]);
        let done = match unshare.output() {
            Ok(done) => done,
            Err(error) => return println!("skipped: cannot run unshare: {error}"),
        };
        let (said, complaint) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if complaint.starts_with("unshare: ") {
            // A time namespace needs privileges that most containers do not have.
            return println!("skipped: {complaint}");
        }
        assert!(done.status.success() && said.contains("1 passed"), "{said}{complaint}");
    }

    #[tokio::test]
    #[ignore = "run by the next test, in a process that loses time"]
    async fn in_a_process_that_loses_time() {
        let (before, real) = (now(), std::time::Instant::now());
        let mut alarm = Alarm::new().unwrap();
        alarm.set(Some(before + Millis(300))).unwrap();
        std::fs::write(std::env::var_os("REDISLEASE_TEST_LOST_TIME").unwrap(), "00000500").unwrap();
        assert!(now() < before, "{:?} is after {before:?}", now());
        alarm.expired().await.unwrap();
        assert!(now() >= before + Millis(300));
        assert!(real.elapsed() >= Duration::from_millis(790), "the alarm expired after {:?}", real.elapsed());
    }

    #[test]
    fn clock_and_alarm_lose_the_time_that_a_test_takes_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "00000000").unwrap();
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "clock::tests::in_a_process_that_loses_time", "--ignored"]);
        let done = process.env("REDISLEASE_TEST_LOST_TIME", file.path()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn the_wall_clock_is_far_from_1970() {
        assert!(unix_micros() > 1_700_000_000_000_000);
        assert!(wall(now() + Millis(5000)) > SystemTime::now());
    }
}
