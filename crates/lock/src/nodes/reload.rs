//! Recovery from a lost script cache: the scripts are loaded once, and calls that were not executed are sent again in
//! order.
//!
//! Redis answers calls in order, so every call that was sent before the scripts is answered before them. Until then
//! nothing new is sent. Calls that were not executed are sent again before the waiting requests, which keeps the order of
//! the requests about one lease. An exception: if another process loads the scripts meanwhile, a later request about the
//! lease may have been executed. The earlier one is then not sent again.

use std::collections::HashSet;

use redislease_core::op::{Attempt, Vote};
use redislease_core::time::Time;

use super::extends::Extend;
use super::gathered::Asked;
use super::message::Call;
use super::request::{Reply, Request};

/// The calls and requests that wait until the scripts are loaded.
#[derive(Debug, Default)]
pub(super) struct Reload {
    /// Calls that were not executed.
    again: Vec<Call>,
    /// Requests that arrived meanwhile.
    waiting: Vec<(Request, Reply)>,
    /// Attempts for which a later call was executed.
    overtaken: HashSet<Attempt>,
}

impl Reload {
    /// The server did not execute `call`.
    pub fn not_run(&mut self, call: Call) {
        self.again.push(call);
    }

    /// The server executed a call about `attempt`.
    pub fn ran(&mut self, attempt: Attempt) {
        self.overtaken.insert(attempt);
    }

    /// Adds a waiting request.
    pub fn wait(&mut self, request: Request, reply: Reply) {
        self.waiting.push((request, reply));
    }

    /// When the first sender gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        let again = self.again.iter().filter_map(|call| match call {
            Call::Votes(asked) => {
                asked.iter().filter(|asked| asked.reply.is_some()).map(|asked| asked.request.give_up_at).min()
            }
            Call::Extend(leases) => leases.iter().filter(|lease| lease.reply.is_some()).map(|l| l.give_up_at).min(),
            _ => None,
        });
        again.chain(self.waiting.iter().map(|(request, _)| request.give_up_at)).min()
    }

    /// Drops the requests whose sender has given up. Returns their number.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut expired = 0;
        let mut over = |at: Time| {
            expired += usize::from(at <= now);
            at <= now
        };
        for call in &mut self.again {
            match call {
                Call::Votes(asked) => asked.retain(|asked| asked.reply.is_some() && !over(asked.request.give_up_at)),
                Call::Extend(leases) => leases.retain(|lease| lease.reply.is_some() && !over(lease.give_up_at)),
                _ => {}
            }
        }
        self.waiting.retain(|(request, _)| !over(request.give_up_at));
        expired
    }

    /// The scripts are loaded: returns the calls to send, in order. A request that was overtaken was not executed, and
    /// its vote says so.
    pub fn finish(self) -> (Vec<Call>, Vec<(Request, Reply)>) {
        let Self { again, waiting, overtaken } = self;
        let mut calls = Vec::new();
        for call in again {
            match call {
                Call::Votes(asked) => {
                    let (late, asked): (Vec<Asked>, Vec<Asked>) =
                        asked.into_iter().partition(|asked| overtaken.contains(&asked.attempt()));
                    for reply in late.into_iter().filter_map(|asked| asked.reply) {
                        reply.give(Vote::Abstained);
                    }
                    calls.push(Call::Votes(asked));
                }
                Call::Extend(leases) => {
                    let (late, leases): (Vec<Extend>, Vec<Extend>) =
                        leases.into_iter().partition(|lease| overtaken.contains(&lease.attempt));
                    for reply in late.into_iter().filter_map(|lease| lease.reply) {
                        reply.give(Vote::Abstained);
                    }
                    calls.push(Call::Extend(leases));
                }
                other => calls.push(other),
            }
        }
        (calls, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_core::op::{Op, Token};
    use redislease_core::time::Millis;
    use std::sync::mpsc;

    struct Votes(mpsc::Sender<(u128, Vote)>, mpsc::Receiver<(u128, Vote)>);

    impl Votes {
        fn new() -> Self {
            let (sender, receiver) = mpsc::channel();
            Self(sender, receiver)
        }

        fn reply(&self, attempt: u128) -> Reply {
            let sender = self.0.clone();
            Reply::to_function(move |vote| sender.send((attempt, vote)).unwrap())
        }

        fn seal(&self, attempt: u128, give_up_at: u64) -> (Request, Reply) {
            let op = Op::Seal { attempt: Attempt(attempt) };
            (Request { keys: ["k".to_owned()].into(), op, give_up_at: Time(give_up_at) }, self.reply(attempt))
        }

        fn extends(&self, attempts: &[u128], give_up_at: u64) -> Call {
            let extend = |&attempt| Extend {
                keys: ["k".to_owned()].into(),
                attempt: Attempt(attempt),
                token: Token(1),
                ttl: Millis(1),
                give_up_at: Time(give_up_at),
                reply: Some(self.reply(attempt)),
            };
            Call::Extend(attempts.iter().map(extend).collect())
        }

        fn given(&self) -> Vec<(u128, Vote)> {
            self.1.try_iter().collect()
        }
    }

    fn attempts(calls: &[Call]) -> Vec<u128> {
        let of = |call: &Call| match call {
            Call::Votes(asked) => asked.iter().map(|asked| asked.attempt().0).collect(),
            Call::Extend(leases) => leases.iter().map(|lease| lease.attempt.0).collect(),
            _ => vec![],
        };
        calls.iter().flat_map(of).collect()
    }

    #[test]
    fn calls_are_sent_again_in_order_and_before_waiting_requests() {
        let votes = Votes::new();
        let mut reload = Reload::default();
        for attempt in [1, 2] {
            let (request, reply) = votes.seal(attempt, 500);
            reload.not_run(Call::Votes(vec![Asked { request, reply: Some(reply) }]));
        }
        reload.not_run(votes.extends(&[3, 4], 500));
        let (request, reply) = votes.seal(5, 500);
        reload.wait(request, reply);
        let (again, waiting) = reload.finish();
        assert_eq!((attempts(&again), waiting[0].0.op.attempt()), (vec![1, 2, 3, 4], Attempt(5)));
        assert_eq!(votes.given(), []);
    }

    #[test]
    fn an_overtaken_request_is_not_sent_and_was_not_executed() {
        let votes = Votes::new();
        let mut reload = Reload::default();
        let (request, reply) = votes.seal(1, 500);
        reload.not_run(Call::Votes(vec![Asked { request, reply: Some(reply) }]));
        reload.not_run(votes.extends(&[2, 3], 500));
        reload.ran(Attempt(1));
        reload.ran(Attempt(3));
        let (again, _) = reload.finish();
        assert_eq!(attempts(&again), [2]);
        assert_eq!(votes.given(), [(1, Vote::Abstained), (3, Vote::Abstained)]);
    }

    #[test]
    fn a_waiting_request_gives_up_in_time() {
        let votes = Votes::new();
        let mut reload = Reload::default();
        let (request, reply) = votes.seal(1, 300);
        reload.not_run(Call::Votes(vec![Asked { request, reply: Some(reply) }]));
        reload.not_run(votes.extends(&[2], 400));
        let (request, reply) = votes.seal(3, 300);
        reload.wait(request, reply);
        assert_eq!(reload.next_expiry(), Some(Time(300)));
        assert_eq!(reload.expire(Time(300)), 2);
        assert_eq!(votes.given(), [(1, Vote::Unknown), (3, Vote::Unknown)]);
        assert_eq!((reload.next_expiry(), reload.expire(Time(399))), (Some(Time(400)), 0));
        assert_eq!(reload.expire(Time(400)), 1);
        assert!(attempts(&reload.finish().0).is_empty());
    }
}
