//! Gathers requests, so that a server executes many of them in one call.
//!
//! A call costs a server as much as several requests in it: it wakes up, reads and writes. So requests wait while they are
//! fewer than half of the requests in flight, for 2 ms at most. Without requests in flight, or with a few, a request is sent
//! at once. Requests about one lease keep their order.

use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::request::{Reply, Request};
use super::script;

/// How many requests one call has at most: a server needs less than 1 ms for them.
const REQUESTS: usize = 128;
/// Requests wait while they are fewer than the requests in flight divided by this number.
const PART: usize = 2;
/// How long requests wait at most. A server that does not answer must have a release behind its acquire before the connection
/// is closed: when it resumes, it executes both.
const WAIT: Millis = Millis(2);
/// How many keys one call has at most, unless one request has more.
const KEYS: usize = 200;
/// The maximum difference between the deadlines of the requests of one call: the server uses the earliest for all.
const DEADLINES: Millis = Millis(50);

/// A request, and the receiver of its vote.
#[derive(Debug)]
pub(super) struct Asked {
    pub request: Request,
    /// Dropped when the sender gave up.
    pub reply: Option<Reply>,
}

impl Asked {
    pub fn attempt(&self) -> Attempt {
        self.request.op.attempt()
    }
}

/// The requests of one call.
#[derive(Debug, Default)]
struct List {
    asked: Vec<Asked>,
    /// How many keys they have together.
    keys: usize,
}

impl List {
    fn fits(&self, request: &Request) -> bool {
        let Some(first) = self.asked.first() else { return true };
        let apart = |at: Time| at.since(request.give_up_at).max(request.give_up_at.since(at));
        let near = apart(first.request.give_up_at) <= DEADLINES;
        near && self.asked.len() < REQUESTS && self.keys + request.keys.len() <= KEYS
    }

    fn push(&mut self, asked: Asked) {
        self.keys += asked.request.keys.len();
        self.asked.push(asked);
    }

    /// The next call is probably as long.
    fn take(&mut self) -> Vec<Asked> {
        self.keys = 0;
        let next = Vec::with_capacity(self.asked.len());
        std::mem::replace(&mut self.asked, next)
    }
}

/// Requests for votes that are not sent yet, other than extensions.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Seals and releases. They are sent before `votes`: a lease that is released and acquired again is free.
    ends: List,
    votes: List,
    /// When the first of them was gathered.
    since: Option<Time>,
}

impl Gathered {
    /// Adds a request. Returns the calls that must be sent before it is gathered with others.
    pub fn push(&mut self, now: Time, asked: Asked) -> Vec<Vec<Asked>> {
        let ends = script::is_end(&asked.request.op);
        // A release must not overtake its acquire.
        let overtakes = ends && self.votes.asked.iter().any(|earlier| earlier.attempt() == asked.attempt());
        let list = if ends { &self.ends } else { &self.votes };
        let before = if overtakes || !list.fits(&asked.request) { self.take() } else { Vec::new() };
        self.since.get_or_insert(now);
        let list = if ends { &mut self.ends } else { &mut self.votes };
        list.push(asked);
        before
    }

    /// Whether a request of `attempt` is gathered.
    pub fn holds(&self, attempt: Attempt) -> bool {
        self.ends.asked.iter().chain(&self.votes.asked).any(|asked| asked.attempt() == attempt)
    }

    /// How many requests are gathered.
    pub fn len(&self) -> usize {
        self.ends.asked.len() + self.votes.asked.len()
    }

    /// Whether the gathered requests should be sent although [`Gathered::waits_until`] has not passed, while `in_flight` others
    /// have no answer yet.
    pub fn is_due(&self, in_flight: usize) -> bool {
        self.len() > 0 && self.len() >= in_flight / PART
    }

    /// When the gathered requests are sent at the latest.
    pub fn waits_until(&self) -> Option<Time> {
        self.since.map(|since| since + WAIT)
    }

    /// The calls to send, in order.
    pub fn take(&mut self) -> Vec<Vec<Asked>> {
        self.since = None;
        let all = [self.ends.take(), self.votes.take()];
        all.into_iter().filter(|call| !call.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_core::op::{Grant, Op, Stages, Token};

    const NOW: Time = Time(100);

    fn asked(op: Op, keys: usize, give_up_at: u64) -> Asked {
        let keys = (0..keys).map(|key| format!("k-{key}")).collect();
        Asked { request: Request { keys, op, give_up_at: Time(give_up_at) }, reply: None }
    }

    fn confirm(attempt: u128) -> Op {
        Op::Confirm { attempt: Attempt(attempt), grant: Grant(1), token: Token(1) }
    }

    fn release(attempt: u128) -> Op {
        Op::Release { attempt: Attempt(attempt), stages: Stages::All }
    }

    fn attempts(calls: &[Vec<Asked>]) -> Vec<Vec<u128>> {
        calls.iter().map(|call| call.iter().map(|asked| asked.attempt().0).collect()).collect()
    }

    #[test]
    fn ends_go_first_and_both_kinds_keep_their_order() {
        let mut gathered = Gathered::default();
        for op in [confirm(1), release(2), confirm(3), release(4)] {
            assert!(gathered.push(NOW, asked(op, 1, 500)).is_empty());
        }
        assert_eq!(attempts(&gathered.take()), [[2, 4], [1, 3]]);
        assert!(gathered.take().is_empty());
    }

    #[test]
    fn requests_wait_only_while_many_others_are_in_flight() {
        let mut gathered = Gathered::default();
        assert!(!gathered.is_due(0) && gathered.waits_until().is_none(), "nothing to send");
        gathered.push(NOW, asked(confirm(1), 1, 500));
        assert!(gathered.is_due(0) && gathered.is_due(3), "one of a few");
        assert!(!gathered.is_due(4));
        gathered.push(NOW + Millis(1), asked(release(2), 1, 460));
        assert!(gathered.is_due(4) && !gathered.is_due(6));
        assert_eq!(gathered.waits_until(), Some(NOW + WAIT), "the first one waits no longer for the second");
        gathered.take();
        assert_eq!(gathered.waits_until(), None);
    }

    #[test]
    fn a_release_does_not_overtake_its_acquire() {
        let mut gathered = Gathered::default();
        gathered.push(NOW, asked(release(9), 1, 500));
        gathered.push(NOW, asked(confirm(1), 1, 500));
        assert_eq!(attempts(&gathered.push(NOW, asked(release(1), 1, 500))), [[9], [1]]);
        assert_eq!(attempts(&gathered.take()), [[1]]);
    }

    #[test]
    fn many_requests_many_keys_and_distant_deadlines_begin_another_call() {
        let mut gathered = Gathered::default();
        for attempt in 0..128 {
            assert!(gathered.push(NOW, asked(confirm(attempt), 1, 500)).is_empty());
        }
        assert_eq!(gathered.push(NOW, asked(confirm(128), 1, 500))[0].len(), 128);
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(129), 200, 500))), [[128]]);
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(130), 1, 500))), [[129]]);
        assert!(gathered.push(NOW, asked(confirm(131), 1, 550)).is_empty());
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(132), 1, 449))), [[130, 131]]);
    }
}
