//! A short wait for the answer of a program, before the thread of a shard sleeps.
//!
//! Votes wake a task of the program that awaits its lock or its release, and its next command often follows at once. A thread that
//! sleeps in between is woken by the operating system, which takes about half as long as a round with the servers.

use std::time::{Duration, Instant};

/// The longest wait. An answer that took longer is not waited for the next time.
const LONGEST: Duration = Duration::from_micros(100);
/// After more votes there is no wait: then many tasks answer, and their commands are sent together if the thread sleeps.
const FEW: u32 = 8;

/// Decides whether to wait, from how soon the last answers came. A shard whose program does not answer at once never waits.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// How many votes were handled since the last wait.
    votes: u32,
    /// The last answer after votes came soon.
    pays: bool,
    /// When the last wait after votes began.
    since: Option<Instant>,
}

impl Linger {
    /// A vote was handled.
    pub const fn voted(&mut self) {
        self.votes = self.votes.saturating_add(1);
    }

    /// A command woke the thread.
    pub fn answered(&mut self) {
        if let Some(since) = self.since {
            self.pays = since.elapsed() < LONGEST;
        }
    }

    /// Waits for an answer or votes, if that pays. The other tasks of this thread run in the meantime. Returns whether there is work.
    pub async fn wait(&mut self, is_answered: impl Fn() -> bool, has_votes: impl Fn() -> bool) -> bool {
        let began = Instant::now();
        self.since = (1..=FEW).contains(&std::mem::take(&mut self.votes)).then_some(began);
        if self.since.is_none() || !self.pays {
            return false;
        }
        loop {
            tokio::task::yield_now().await;
            if is_answered() || has_votes() {
                return true;
            }
            if began.elapsed() >= LONGEST {
                self.pays = false;
                return false;
            }
            // The task that was woken may need this core.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the wait returned, and how many times it looked for an answer.
    async fn wait(linger: &mut Linger, answered_at: usize) -> (bool, usize) {
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            looks.get() == answered_at
        };
        (linger.wait(look, || false).await, looks.get())
    }

    #[tokio::test]
    async fn it_waits_after_votes_while_the_last_answer_came_soon() {
        let mut linger = Linger::default();
        linger.voted();
        assert_eq!(wait(&mut linger, 1).await, (false, 0), "nothing is known yet");
        // However slow this machine is, the answer came soon.
        linger.since = linger.since.map(|since| since + Duration::from_hours(1));
        linger.answered();
        assert_eq!(wait(&mut linger, 1).await, (false, 0), "there were no votes");
        linger.voted();
        assert_eq!(wait(&mut linger, 1).await, (true, 1));
        linger.votes = FEW + 1;
        assert_eq!(wait(&mut linger, 1).await, (false, 0), "there were many votes");
        linger.voted();
        assert!(!wait(&mut linger, usize::MAX).await.0);
        linger.voted();
        assert_eq!(wait(&mut linger, 1).await, (false, 0), "no answer came");
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_is_not_waited_for_the_next_time() {
        let mut linger = Linger { pays: true, votes: 1, since: Instant::now().checked_sub(LONGEST) };
        linger.answered();
        assert_eq!(wait(&mut linger, 1).await, (false, 0));
    }
}
