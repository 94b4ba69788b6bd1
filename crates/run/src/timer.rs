//! The timer with which the kernel kills the guard.

use std::io;

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::clock::BootTime;

/// A timer of the kernel that sends SIGKILL to this process. It also does so while the process is stopped or hangs. It has no effect
/// on the first process of a PID namespace.
#[derive(Debug)]
pub struct KillTimer(Timer);

impl KillTimer {
    pub fn new(at: BootTime) -> io::Result<Self> {
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        let mut timer = Self(Timer::new(ClockId::CLOCK_BOOTTIME, event)?);
        timer.set(at)?;
        Ok(timer)
    }

    /// Replaces the time; a time in the past kills at once.
    pub fn set(&mut self, at: BootTime) -> io::Result<()> {
        // A time of zero would clear the timer.
        let at = BootTime(at.0.max(1)).timespec();
        let at = TimeSpec::new(at.tv_sec, at.tv_nsec);
        Ok(self.0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}
