//! What the lease of a lock carries out instead of an input, because the program does not have the lock.

use super::{Failure, Lock, Lost, Phase, Progress};
use crate::driver;
use crate::lease::{Command, Standing, TermId};
use crate::time::Time;

impl Lock {
    /// The command that the lease carries out instead of an input, if any. From this answer on, the program does not get the term.
    pub fn instead(&mut self, now: Time, input: &driver::Input) -> Option<Command> {
        match input {
            driver::Input::Wake => self.give_up_untaken(now).map(|term| Command::End { term, proof: true }),
            driver::Input::Command(Command::Close, _) => self.close(),
            _ => None,
        }
    }

    /// The term that the program has not taken in the time for which it was granted: it may have forgotten its request. A request that
    /// is polled again goes on with another attempt.
    pub(super) fn give_up_untaken(&mut self, now: Time) -> Option<TermId> {
        let is_asked = self.held().is_none() && !self.is_over();
        let in_time = self.first_until.is_none_or(|until| now < until) || breaks!(self.rules, UntakenTermKept);
        let term = self.term().filter(|_| is_asked && !in_time)?.id.clone();
        self.lost.get_or_insert(Lost::Expired);
        self.progress = Progress::GivenUp;
        self.view.standing = Standing::Idle;
        Some(term)
    }

    /// The lease closes. Its keys can be released if the program has let the lock go, and its command may not have arrived yet, or if
    /// it does not have the lock: then it does not get it any more.
    pub(super) fn close(&mut self) -> Option<Command> {
        let release = Command::Release { keep_until: None };
        match &self.phase {
            Phase::Held { .. } => return breaks!(self.rules, HeldLockDeleted).then_some(release),
            Phase::Over(command) => {
                return command.clone().filter(|command| matches!(command, Command::Release { .. }));
            }
            _ => {}
        }
        self.lost.get_or_insert(Lost::Closed);
        self.phase = Phase::Failed(Failure::Closed);
        self.reports = self.reports.wrapping_add(1);
        Some(release)
    }
}
