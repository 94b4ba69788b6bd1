//! The machine of one lock in a program that takes it for itself: request it, wait for it, hold it, let it go.
//!
//! It stands above a [`Driver`](crate::driver::Driver), which makes one attempt for each [`Command::Want`] and renews the term. This
//! machine decides when to try again, until when the program holds the lock, and what happens to the keys afterwards.
//!
//! ```text
//!   asking ──▶ won ──▶ held ──▶ over
//!    │  ▲       │
//!    ▼  │       ▼ lost before the program had it
//!   turn, pause ──▶ failed
//! ```
//!
//! The term of such a program is never published, so it is never in another state than [`Standing::Publishing`], and a term that
//! was lost is not continued.

mod event;
mod instead;

use alloc::collections::VecDeque;

pub use event::{Failure, Input, Lost, Refusal, Request};

use crate::backoff::Entropy;
use crate::lease::{Command, EndReason, Standing, TermId, TermView, View};
use crate::rules::Rules;
use crate::time::{Millis, Time};

#[cfg(test)]
mod tests;

/// How long an attempt may give no report. Then it is requested again.
pub const SILENCE: Millis = Millis(1000);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// An attempt was requested. Without a report, it is requested again at this time.
    Asking(Time),
    /// The next attempt has a turn at this time.
    Turn(Time),
    /// The next attempt waits for this time, or for a release in this process.
    Pausing(Time),
    /// A majority has confirmed the term, and the program does not have it yet.
    Won(TermId),
    Held {
        term: TermId,
        ends_at: Option<Time>,
    },
    Failed(Failure),
    /// The program let it go. With the command to the lease that follows.
    Over(Option<Command>),
}

/// What the lease has shown of the present attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    Unseen,
    UnderWay,
    /// It ended without a term.
    Failed,
    /// The program has not taken its term.
    GivenUp,
}

/// One lock of one program, from its request to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    request: Request,
    pub(crate) rules: Rules,
    phase: Phase,
    /// The end of the wait.
    until: Time,
    /// Failed attempts.
    failures: u32,
    view: View,
    progress: Progress,
    /// Whether a report was not considered yet.
    unread: bool,
    reports: u64,
    lost: Option<Lost>,
    released: bool,
    ended: bool,
    /// The end of the validity with which the last term began.
    first_until: Option<Time>,
    /// Until then nobody else gets the lock, also after a release.
    keep_until: Option<Time>,
    commands: VecDeque<Command>,
}

impl Lock {
    /// A request that begins at `now`. Its first effect is the first attempt.
    pub fn new(now: Time, request: Request) -> Self {
        let until = now + request.wait;
        let mut lock = Self {
            request,
            rules: Rules::NONE,
            phase: Phase::Asking(now + SILENCE),
            until,
            failures: 0,
            view: View::default(),
            progress: Progress::Unseen,
            unread: false,
            reports: 0,
            lost: None,
            released: false,
            ended: false,
            first_until: None,
            keep_until: None,
            commands: VecDeque::new(),
        };
        lock.commands.push_back(Command::Want(lock.request.holder.clone()));
        lock
    }

    /// What was asked for.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The next command for the lease. After [`Command::Release`] and [`Command::Close`] it gets no other.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When the machine needs [`Input::Wake`]. `Time(0)` is now.
    pub fn next_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Failed(_) | Phase::Over(_) => None,
            Phase::Asking(_) | Phase::Turn(_) | Phase::Pausing(_) | Phase::Won(_) if self.ended => Some(Time(0)),
            Phase::Asking(_) | Phase::Turn(_) | Phase::Won(_) if self.unread => Some(Time(0)),
            Phase::Asking(at) | Phase::Turn(at) | Phase::Pausing(at) => Some(at),
            Phase::Won(_) => self.term().and_then(|term| term.stop_at),
            Phase::Held { ends_at, .. } => ends_at,
        }
    }

    /// The term that the lease shows. It is never published, so it is never in another state than this.
    pub const fn term(&self) -> Option<&TermView> {
        match &self.view.standing {
            Standing::Publishing(term) => Some(term),
            #[cfg(feature = "check")]
            Standing::Adopting(term) | Standing::Held(term) if breaks!(self.rules, LostLockContinues) => Some(term),
            _ => None,
        }
    }

    /// What the lease has shown last.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The number of reports. It changes with everything that a reader may wait for.
    pub const fn reports(&self) -> u64 {
        self.reports
    }

    /// Why the lock was lost, if that is known. It may have expired without a report: see [`Lock::check`].
    pub const fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Whether a majority has answered the release.
    pub const fn is_released(&self) -> bool {
        self.released
    }

    /// Whether the lease has ended.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the program has let the lock go.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Whether the program has let the lock go so that its keys are deleted now.
    pub const fn is_freed(&self) -> bool {
        matches!(self.phase, Phase::Over(Some(Command::Release { keep_until: None })))
    }

    /// Whether the next attempt waits: then a release in this process counts.
    pub const fn is_pausing(&self) -> bool {
        matches!(self.phase, Phase::Pausing(_))
    }

    /// Until when the lock is valid if it is not renewed again.
    pub fn valid_until(&self) -> Option<Time> {
        let stop_at = self.term()?.stop_at?;
        let Phase::Held { ends_at: Some(ends_at), .. } = self.phase else { return Some(stop_at) };
        Some(stop_at.min(ends_at))
    }

    /// Until when nobody else gets the lock.
    pub const fn keep_until(&self) -> Option<Time> {
        self.keep_until
    }

    /// The term that was won and is valid at `now`.
    pub fn won(&self, now: Time) -> Option<&TermId> {
        match &self.phase {
            Phase::Won(term) if self.check(now).is_ok() => Some(term),
            _ => None,
        }
    }

    /// The term of the lock that the program has.
    pub const fn held(&self) -> Option<&TermId> {
        if let Phase::Held { term, .. } = &self.phase { Some(term) } else { None }
    }

    /// Why the request failed.
    pub const fn failure(&self) -> Option<&Failure> {
        if let Phase::Failed(failure) = &self.phase { Some(failure) } else { None }
    }

    /// Whether the lock is valid at `now`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self, now: Time) -> Result<&TermView, Lost> {
        if let Some(lost) = self.lost.filter(|_| !breaks!(self.rules, LostLockContinues)) {
            return Err(lost);
        }
        if let Phase::Held { ends_at: Some(ends_at), .. } = self.phase
            && now >= ends_at
            && !breaks!(self.rules, MaxHoldIgnored)
        {
            return Err(Lost::MaxHold);
        }
        let in_time = |term: &&TermView| term.stop_at.is_some_and(|stop_at| now < stop_at);
        self.term().filter(|term| breaks!(self.rules, ExpiryUnchecked) || in_time(term)).ok_or(Lost::Expired)
    }

    /// Whether the program has the lock, and it is not valid any more.
    fn is_lost(&self, now: Time) -> bool {
        self.held().is_some() && self.check(now).is_err()
    }

    /// Takes one input. Returns whether a reader may wait for it.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> bool {
        if matches!(input, Input::LetGo | Input::Release | Input::Abandon)
            && self.held().is_some()
            && let Err(lost) = self.check(now)
        {
            // It has expired without a report.
            self.lost.get_or_insert(lost);
        }
        match input {
            Input::Shown(view) => return self.shown(view),
            Input::Released => self.released = true,
            Input::Ended => {
                // After a release, the lease ends too.
                if !self.is_over() {
                    self.lost.get_or_insert(Lost::Closed);
                }
                return !core::mem::replace(&mut self.ended, true);
            }
            Input::Taken => self.taken(now),
            Input::Freed => {
                if let Phase::Pausing(at) = &mut self.phase {
                    *at = now.min(*at);
                }
            }
            Input::Unused => self.keep_until = None,
            Input::Closed => _ = self.lost.get_or_insert(Lost::Closed),
            Input::LetGo if self.is_lost(now) && !breaks!(self.rules, LostLockDeleted) => self.end(Command::Close),
            Input::LetGo | Input::Release => self.let_go(now),
            Input::Abandon => self.end(Command::Close),
            Input::Wake { paused_until, entropy } => self.wake(now, paused_until, entropy),
        }
        true
    }

    fn shown(&mut self, view: &View) -> bool {
        let was_held = self.term().is_some();
        self.view.clone_from(view);
        if self.is_over() {
            // Its end was asked for: nobody waits for what the lease shows then.
            return false;
        }
        if let Standing::Acquiring(..) = view.standing {
            self.progress = Progress::UnderWay;
            return false;
        }
        self.reports = self.reports.wrapping_add(1);
        self.unread = true;
        if let Some(until) = self.term().map(|term| term.valid_until) {
            self.progress = Progress::Unseen;
            if !was_held {
                self.first_until = until;
            }
        } else if was_held {
            let missing = view.ending.as_ref().is_some_and(|ending| ending.reason == EndReason::Misses);
            self.lost.get_or_insert(if missing { Lost::Missing } else { Lost::Expired });
        } else if self.progress == Progress::UnderWay {
            self.progress = Progress::Failed;
        }
        true
    }

    fn taken(&mut self, now: Time) {
        if let Phase::Won(term) = &self.phase {
            let ends_at = self.request.max_hold.map(|longest| now + longest);
            self.phase = Phase::Held { term: term.clone(), ends_at };
            self.keep_until = Some(now + self.request.hold_at_least).filter(|until| *until > now);
        }
    }

    fn let_go(&mut self, now: Time) {
        if breaks!(self.rules, CancelForgotten) && !matches!(self.phase, Phase::Held { .. }) {
            return self.phase = Phase::Over(None);
        }
        if breaks!(self.rules, WonAfterCancelKept) && matches!(self.phase, Phase::Won(_)) {
            return self.phase = Phase::Over(None);
        }
        if breaks!(self.rules, ReleaseLeftToTtl) {
            return self.end(Command::Close);
        }
        // A lock that the program never had is not kept.
        let keep_until = self.keep_until.filter(|until| now < *until && !breaks!(self.rules, ReleasedTooEarly));
        self.end(Command::Release { keep_until });
    }

    fn end(&mut self, command: Command) {
        if !self.is_over() {
            self.phase = Phase::Over(Some(command.clone()));
            self.commands.push_back(command);
        }
    }

    fn wake(&mut self, now: Time, paused_until: Option<Time>, entropy: Entropy) {
        match self.phase {
            Phase::Asking(_) | Phase::Turn(_) | Phase::Pausing(_) | Phase::Won(_) if self.ended => {
                self.phase = Phase::Failed(Failure::Closed);
            }
            Phase::Asking(at) => self.consider(now, at, paused_until, entropy),
            // The turn may come earlier now.
            Phase::Turn(at) if self.unread => self.consider(now, at, paused_until, entropy),
            Phase::Turn(at) if now >= at && now >= self.until() => self.timed_out(self.refusal()),
            Phase::Turn(at) if now >= at => self.want(now),
            Phase::Pausing(at) if now >= at => {
                if breaks!(self.rules, NeverTriesAgain) {
                    return self.phase = Phase::Pausing(Time(u64::MAX));
                }
                // A term that was lost before the program had it was one more attempt that failed.
                (self.lost, self.progress) = (None, Progress::Unseen);
                self.commands.push_back(Command::TryNow);
                self.want(now);
            }
            Phase::Won(_) => {
                self.unread = false;
                if self.check(now).is_err() {
                    self.fail(now, self.refusal(), entropy);
                }
            }
            Phase::Held { ref term, ends_at: Some(at) } if now >= at && !breaks!(self.rules, MaxHoldIgnored) => {
                self.lost.get_or_insert(Lost::MaxHold);
                self.reports = self.reports.wrapping_add(1);
                self.commands.push_back(Command::End { term: term.clone(), proof: false });
                self.phase = Phase::Held { term: term.clone(), ends_at: None };
            }
            Phase::Turn(_) | Phase::Pausing(_) | Phase::Held { .. } | Phase::Failed(_) | Phase::Over(_) => {}
        }
    }

    fn want(&mut self, now: Time) {
        self.commands.push_back(Command::Want(self.request.holder.clone()));
        self.phase = Phase::Asking(now + SILENCE);
    }

    /// What the last report says about the attempt.
    fn consider(&mut self, now: Time, again_at: Time, paused_until: Option<Time>, entropy: Entropy) {
        let reported = core::mem::take(&mut self.unread);
        if let Ok(term) = self.check(now) {
            self.phase = Phase::Won(term.id.clone());
        } else if self.progress == Progress::Failed || self.lost.is_some() {
            self.fail(now, self.refusal(), entropy);
        } else if !reported && now < again_at {
            // The view may be that of the attempt before.
        } else if let Some(turn) = self.view.retry_at.filter(|turn| *turn > now) {
            self.wait_for_turn(now, turn, paused_until, entropy);
        } else {
            // It is still the same attempt.
            self.want(now);
        }
    }

    /// What the last attempt has shown.
    fn refusal(&self) -> Refusal {
        if self.progress == Progress::GivenUp {
            return Refusal::NotTaken;
        }
        let by = self.view.refused_by.as_deref();
        by.map_or(Refusal::NotGranted, |by| Refusal::Held(by.clone(), self.view.retry_at))
    }

    /// When the request has no time left for another attempt. Without a wait, it makes its one attempt whenever it has a turn.
    fn until(&self) -> Time {
        let for_ever = self.request.wait == Millis::ZERO || breaks!(self.rules, WaitsForEver);
        if for_ever { Time(u64::MAX) } else { self.until }
    }

    fn timed_out(&mut self, last: Refusal) {
        self.phase = Phase::Failed(Failure::Attempt { last, timed_out: true });
    }

    fn wait_for_turn(&mut self, now: Time, turn: Time, paused_until: Option<Time>, entropy: Entropy) {
        let once = self.request.wait == Millis::ZERO;
        let paused = paused_until.filter(|paused| *paused > now && (once || *paused >= self.until));
        if let Some(paused) = paused {
            self.fail(now, Refusal::ClockStoodStill(paused), entropy);
        } else {
            // A turn that comes too late is no attempt.
            self.phase = Phase::Turn(turn.min(self.until()));
        }
    }

    /// An attempt failed: another one follows after a delay, or when the keys of the holder end, or none.
    fn fail(&mut self, now: Time, last: Refusal, entropy: Entropy) {
        self.failures = self.failures.saturating_add(1);
        // The keys of a term that the program never had would refuse its next attempt.
        let running = self.term().map(|term| &term.id);
        let ending = self.view.ending.as_ref().map(|ending| &ending.id);
        if let Some(term) = running.or(ending).cloned() {
            self.commands.push_back(Command::End { term, proof: true });
        }
        if self.request.wait == Millis::ZERO || self.request.retry.exhausted(self.failures) {
            self.phase = Phase::Failed(Failure::Attempt { last, timed_out: false });
            return;
        }
        if now >= self.until() {
            return self.timed_out(last);
        }
        let longest = self.request.retry.delay(self.failures);
        let at = now + longest.saturating_sub(entropy.up_to(Millis(longest.0 / 2)));
        let free_at = if let Refusal::Held(_, Some(free_at)) = last { free_at } else { at };
        self.phase = Phase::Pausing(at.min(free_at).min(self.until()));
    }
}
