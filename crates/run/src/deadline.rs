//! What the guard does with the deadlines: a machine without IO.

use std::time::Duration;

use crate::clock::{BootTime, Deadlines};
use crate::message::ToGuard;

/// When the guard sends the stop signal, and when the kernel kills.
#[derive(Debug)]
pub struct Schedule {
    deadlines: Deadlines,
    grace: Duration,
    stopping: bool,
    killing: bool,
}

/// How long before the deadline the process group of the command is killed. The kernel kills the command with its parent, but not the
/// rest of the group, and not a command that has another user or capabilities from its file. No grace period is shorter.
pub const KILL_BEFORE: Duration = Duration::from_millis(50);

/// What the guard has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// Set the timer of the kernel to this time.
    Arm(BootTime),
    /// Send the stop signal, and set the timer of the kernel to this time.
    Stop(BootTime),
    /// Kill the process group of the command: the deadline is near.
    Kill,
}

impl Schedule {
    pub const fn new(deadlines: Deadlines, grace: Duration) -> Self {
        Self { deadlines, grace, stopping: false, killing: false }
    }

    /// When [`Self::time`] is called at the latest.
    pub fn next(&self) -> Option<BootTime> {
        match (self.stopping, self.killing) {
            (false, _) => Some(self.deadlines.stop_at),
            (true, false) => Some(self.kill_group_at()),
            (true, true) => None,
        }
    }

    fn kill_group_at(&self) -> BootTime {
        self.deadlines.kill_at.before(KILL_BEFORE)
    }

    /// What a message of `run` asks for.
    pub fn told(&mut self, message: &ToGuard, now: BootTime) -> Action {
        match message {
            ToGuard::Renewed(deadlines) => self.renewed(*deadlines),
            ToGuard::Stop => self.lost(now),
            ToGuard::Start(..) | ToGuard::Signal(_) => Action::Nothing,
        }
    }

    /// The lock was renewed. A command that was asked to stop is not asked to go on, and no renewal shortens the time.
    fn renewed(&mut self, deadlines: Deadlines) -> Action {
        if self.stopping || deadlines.kill_at <= self.deadlines.kill_at {
            return Action::Nothing;
        }
        self.deadlines = deadlines;
        Action::Arm(deadlines.kill_at)
    }

    /// The lock is lost. If it has not expired, its keys are gone or the machine stood still: another program can have the lock
    /// already, so the command gets no grace period.
    fn lost(&mut self, now: BootTime) -> Action {
        let grace = if now < self.deadlines.stop_at { Duration::ZERO } else { self.grace };
        self.stop_within(now, grace)
    }

    /// Nobody renews the lock any more, and its keys exist until the deadline.
    pub fn stop(&mut self, now: BootTime) -> Action {
        self.stop_within(now, self.grace)
    }

    fn stop_within(&mut self, now: BootTime, grace: Duration) -> Action {
        if self.stopping {
            return Action::Nothing;
        }
        self.stopping = true;
        let grace = grace.max(KILL_BEFORE);
        self.deadlines.kill_at = self.deadlines.kill_at.min(now.after(grace));
        Action::Stop(self.deadlines.kill_at)
    }

    /// Time has passed.
    pub fn time(&mut self, now: BootTime) -> Action {
        if self.stopping && !self.killing && self.kill_group_at() <= now {
            self.killing = true;
            return Action::Kill;
        }
        if now < self.deadlines.stop_at { Action::Nothing } else { self.stop(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    fn until(stop_at: u64) -> Deadlines {
        Deadlines { stop_at: BootTime(stop_at), kill_at: BootTime(stop_at + 100) }
    }

    #[test]
    fn a_renewal_moves_both_deadlines_and_never_back() {
        let mut schedule = Schedule::new(until(100), GRACE);
        assert_eq!(schedule.told(&ToGuard::Renewed(until(150)), BootTime(0)), Action::Arm(BootTime(250)));
        assert_eq!(schedule.renewed(until(120)), Action::Nothing);
        assert_eq!(schedule.next(), Some(BootTime(150)));
        assert_eq!(schedule.time(BootTime(149)), Action::Nothing);
        assert_eq!(schedule.time(BootTime(150)), Action::Stop(BootTime(250)));
    }

    #[test]
    fn a_stop_is_final_and_does_not_extend_the_time() {
        let mut schedule = Schedule::new(until(100), GRACE);
        assert_eq!(schedule.stop(BootTime(50)), Action::Stop(BootTime(150)));
        assert_eq!(schedule.renewed(until(500)), Action::Nothing);
        assert_eq!(schedule.time(BootTime(99)), Action::Nothing);
        let mut late = Schedule::new(until(100), GRACE);
        assert_eq!(late.time(BootTime(107)), Action::Stop(BootTime(200)), "the grace period ends at the deadline");
    }

    #[test]
    fn the_group_is_killed_once_before_the_deadline() {
        let mut schedule = Schedule::new(until(100), GRACE);
        schedule.stop(BootTime(50));
        assert_eq!((schedule.next(), schedule.time(BootTime(99))), (Some(BootTime(100)), Action::Nothing));
        assert_eq!(schedule.time(BootTime(100)), Action::Kill);
        assert_eq!((schedule.next(), schedule.time(BootTime(140))), (None, Action::Nothing));
    }

    #[test]
    fn a_loss_before_the_lock_expires_leaves_no_grace_period() {
        let grace = Duration::from_secs(5);
        let until = Deadlines { stop_at: BootTime(5000), kill_at: BootTime(10_000) };
        let mut early = Schedule::new(until, grace);
        assert_eq!(early.told(&ToGuard::Stop, BootTime(4999)), Action::Stop(BootTime(5049)));
        assert_eq!((early.next(), early.time(BootTime(4999))), (Some(BootTime(4999)), Action::Kill));
        let mut expired = Schedule::new(until, grace);
        assert_eq!(expired.told(&ToGuard::Stop, BootTime(5000)), Action::Stop(BootTime(10_000)));
        assert_eq!(expired.time(BootTime(5000)), Action::Nothing);
    }

    /// The kernel ends the guard at the deadline: a timer in the past would end it first.
    #[test]
    fn without_a_grace_period_the_group_is_signalled_before_the_deadline() {
        let mut schedule = Schedule::new(Deadlines { stop_at: BootTime(100), kill_at: BootTime(150) }, Duration::ZERO);
        assert_eq!(schedule.stop(BootTime(10)), Action::Stop(BootTime(60)));
        assert_eq!((schedule.next(), schedule.time(BootTime(10))), (Some(BootTime(10)), Action::Kill));
    }
}
