//! The connection of a node's task and its calls: what ends with it, and when the senders of requests give up.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use redislease_core::marker::RunId;
use redislease_core::op::Token;
use redislease_core::seed::Unseedable;
use redislease_core::time::Time;

use super::connection::Opened;
use super::extends::Extends;
use super::failure::Failure;
use super::gathered::Gathered;
use super::info::Process;
use super::message::Call;
use super::pipe::Pipe;
use super::reload::Reload;
use super::request::Reply;
use super::status::Misconfiguration;

/// A future that runs concurrently with the task's loop.
pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) enum Link {
    /// Until the next attempt to connect.
    Pause(Time),
    Opening(Pending<Result<Opened, Failure>>),
    Open(Box<Open>),
}

/// The state that ends with a connection.
pub(super) struct Open {
    pub pipe: Pipe<Call>,
    /// How many requests in calls of [`Call::Votes`] are in flight.
    pub requests: usize,
    pub process: Process,
    /// The name of the process in markers.
    pub run_id: RunId,
    /// When the senders of the requests in flight give up; for a batch, the earliest of them.
    pub give_up: BTreeSet<(Time, u64)>,
    /// The node's newest TIME in milliseconds, and the arrival time of its reply.
    pub node_time: Option<(u64, Time)>,
    pub seeding: Option<Pending<Option<Result<Token, Unseedable>>>>,
    pub info_due: Time,
    pub gathered: Gathered,
    pub extends: Extends,
    pub reload: Option<Reload>,
}

/// Why a connection ends.
pub(super) enum End {
    Failure(Failure),
    Misconfigured(Misconfiguration, String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Open {
    /// Gives [`Vote::Unknown`](redislease_core::op::Vote::Unknown) on every request whose sender has given up. Returns
    /// their number.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut expired = self.extends.expire(now).len();
        while let Some(&(at, id)) = self.give_up.first()
            && at <= now
        {
            self.give_up.pop_first();
            match self.pipe.get_mut(id) {
                Some(Call::Votes(asked)) => {
                    let replies = asked.iter_mut().map(|asked| (asked.request.give_up_at, &mut asked.reply));
                    self.give_up.extend(give_up(now, replies, &mut expired).map(|next| (next, id)));
                }
                Some(Call::Extend(leases)) => {
                    let replies = leases.iter_mut().map(|lease| (lease.give_up_at, &mut lease.reply));
                    self.give_up.extend(give_up(now, replies, &mut expired).map(|next| (next, id)));
                }
                _ => {}
            }
        }
        expired + self.reload.as_mut().map_or(0, |reload| reload.expire(now))
    }

    /// Removes the deadline of the call `id`, which was answered.
    pub fn answered(&mut self, id: u64, give_up_at: impl Iterator<Item = Time>) {
        let mut last = None;
        for at in give_up_at.filter(|at| last.replace(*at) != Some(*at)).collect::<Vec<_>>() {
            self.give_up.remove(&(at, id));
        }
    }
}

/// Drops the replies whose sender has given up, and counts them. Returns when the next sender gives up.
fn give_up<'a>(
    now: Time,
    replies: impl Iterator<Item = (Time, &'a mut Option<Reply>)>,
    expired: &mut usize,
) -> Option<Time> {
    let mut next: Option<Time> = None;
    for (at, reply) in replies.filter(|(_, reply)| reply.is_some()) {
        if at <= now {
            *expired += 1;
            drop(reply.take());
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    next
}
