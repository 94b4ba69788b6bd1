//! What a node's task sends to its server, and what it makes of the answers.

use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use redislease_core::admission::Input;
use redislease_core::clock::Reading;
use redislease_core::marker::Marker;
use redislease_core::op::{Op, Token, Vote};
use redislease_core::seed::{FenceReport, Unseedable};
use redislease_core::time::Time;
use tokio::sync::oneshot;

use super::Reason;
use super::connection::Failure;
use super::info::Info;
use super::node::{Call, End, Link, NodeTask};
use super::pipe::Sent;
use super::request::{Reply, Request};
use super::script::{self, Answer, By, Garbled};
use crate::clock;

impl NodeTask {
    fn count(&self, reason: Reason) {
        self.series.error(reason.as_str());
    }

    /// Sends a call that is not for a vote.
    pub(super) fn call(&mut self, call: Call, by: By) {
        let Link::Open(open) = &mut self.link else { return };
        let keyspace = &self.shared.keyspace;
        let command = match &call {
            Call::Observe { run_id, nonce, stepped } => script::observe(by, keyspace, run_id, *nonce, stepped.as_ref()),
            Call::Admit { ticket, marker, seed } => script::admit(by, keyspace, ticket, marker, *seed),
            Call::Fence(_) => script::fence(by, keyspace, &self.membership.marker(open.run_id.clone())),
            Call::Info => redis::cmd("INFO"),
            Call::Vote(..) => return,
        };
        open.pipe.send(command, clock::now(), call);
    }

    pub(super) fn vote(&mut self, request: Request, reply: Reply) {
        let now = clock::now();
        if request.give_up_at <= now {
            return self.count(Reason::Timeout);
        }
        match self.send_vote(now, request, reply, By::Hash) {
            Ok(()) => {}
            Err((reply, vote)) => reply.answer(vote),
        }
    }

    /// Sends it, or says what to answer instead.
    fn send_vote(&mut self, now: Time, request: Request, reply: Reply, by: By) -> Result<(), (Reply, Vote)> {
        // What was never sent was never done.
        let Link::Open(open) = &mut self.link else { return Err((reply, Vote::Abstained)) };
        if open.pipe.is_full() {
            self.count(Reason::Busy);
            return Err((reply, Vote::Abstained));
        }
        let release = matches!(request.op, Op::Release { .. });
        let (marker, deadline) = match (self.admission.marker(), open.node_time) {
            _ if release => (String::new(), 0),
            (Some(marker), Some((time, received))) => {
                (marker.to_string(), time.saturating_add(request.give_up_at.since(received).0))
            }
            _ => return Err((reply, Vote::Abstained)),
        };
        let command = script::vote(by, &self.shared.keyspace, &request.keys, &marker, deadline, &request.op);
        let give_up_at = request.give_up_at;
        let id = open.pipe.send(command, now, Call::Vote(request, Some(reply)));
        open.give_up.insert((give_up_at, id));
        Ok(())
    }

    pub(super) fn fence(&mut self, answer: oneshot::Sender<FenceReport>) {
        // The same server must not be heard twice, under two names.
        if self.shared.board.twin(self.node).is_none() {
            self.call(Call::Fence(answer), By::Hash);
        }
    }

    pub(super) fn seeded(&mut self, seed: Option<Result<Token, Unseedable>>) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = None;
        }
        if let Some(seed) = seed {
            self.feed(Input::Seed(seed));
        }
    }

    /// Takes one answer. What it returns ends the connection.
    pub(super) fn answered(&mut self, sent: Sent<Call>, answer: RedisResult<Value>) -> Result<(), End> {
        let received = clock::now();
        self.series.duration.observe(Duration::from(received.since(sent.at)).as_secs_f64());
        let Sent { id, at, call } = sent;
        if let (Link::Open(open), Call::Vote(request, _)) = (&mut self.link, &call) {
            open.give_up.remove(&(request.give_up_at, id));
        }
        let value = match answer {
            Ok(value) => value,
            Err(error) => return self.refused(call, &error),
        };
        match call {
            Call::Vote(request, reply) => match script::read_vote(&request.op, value) {
                Ok(answer) => {
                    let vote =
                        self.heard(at, received, answer).map_or(Vote::Unknown, |answer| self.voted(&request, answer));
                    if let Some(reply) = reply {
                        reply.answer(vote);
                    }
                }
                Err(garbled) => {
                    self.count(Reason::Protocol);
                    tracing::warn!(node = %self.name, address = %self.address, keys = ?request.keys, "{garbled}");
                }
            },
            Call::Observe { .. } | Call::Admit { .. } => {
                let answer = script::read_marker(value).map_err(garbled)?;
                // A step is told first: the marker in the reply that shows it is not the last word.
                let marker = answer.answer.clone();
                self.heard(at, received, answer);
                self.observed(marker)?;
            }
            Call::Fence(report) => {
                let answer = script::read_fence(value).map_err(garbled)?;
                let clock = answer.time;
                if let Some((allegiance, fence)) = self.heard(at, received, answer) {
                    // Nobody may be waiting any more.
                    let _ = report.send(FenceReport { allegiance, fence, clock });
                }
            }
            Call::Info => {
                let text: String = redis::from_redis_value(value).map_err(Failure::protocol)?;
                self.informed(&Info::parse(&text).map_err(Failure::protocol)?)?;
            }
        }
        Ok(())
    }

    /// Reads the clock in a reply. None when the clock was set: then the reply does not count.
    fn heard<T>(&mut self, sent: Time, received: Time, reply: script::Reply<T>) -> Option<T> {
        let time = reply.time / 1000;
        if let Link::Open(open) = &mut self.link {
            open.node_time = Some((time, received));
        }
        match self.clock_watch.read(time, sent, received) {
            Reading::Steady => Some(reply.answer),
            Reading::Stepped => {
                tracing::warn!(node = %self.name, address = %self.address, "the node's clock was set: it loses its vote");
                self.feed(Input::Stepped);
                None
            }
        }
    }

    fn voted(&mut self, request: &Request, answer: Answer) -> Vote {
        let release = matches!(request.op, Op::Release { .. });
        match answer {
            // Behind the reply that showed a step come those of requests that were in flight: they were carried out
            // by the same stepped clock.
            Answer::Vote(_) if !release && self.admission.marker().is_none() => Vote::Unknown,
            Answer::Vote(vote) => vote,
            Answer::Late => {
                self.count(Reason::Late);
                Vote::Abstained
            }
            Answer::NotAdmitted => {
                self.count(Reason::NotAdmitted);
                self.feed(Input::NotAdmitted);
                Vote::Abstained
            }
        }
    }

    fn observed(&mut self, marker: Option<Marker>) -> Result<(), End> {
        let Link::Open(open) = &self.link else { return Ok(()) };
        match marker {
            Some(marker) if *marker.run_id() == open.run_id => {
                self.show_clock();
                self.feed(Input::Observed(marker));
                Ok(())
            }
            Some(marker) => Err(Failure::protocol(format!(
                "another server answers on this connection: marker `{marker}` does not name {}",
                open.run_id
            ))
            .into()),
            // Only admit meets this: the ticket was flushed while it was waited for.
            None => {
                self.count(Reason::NotAdmitted);
                Err(Failure { reason: Reason::NotAdmitted, text: "its marker is gone: it was flushed".to_owned() }
                    .into())
            }
        }
    }

    fn informed(&mut self, info: &Info) -> Result<(), End> {
        let Link::Open(open) = &self.link else { return Ok(()) };
        if info.run_id != open.run_id {
            let text = format!("another server answers on this connection: {} instead of {}", info.run_id, open.run_id);
            return Err(Failure::protocol(text).into());
        }
        match &info.misconfiguration {
            Some((why, sentence)) => Err(End::Misconfigured(*why, sentence.clone())),
            None => Ok(()),
        }
    }

    /// Takes an error instead of an answer.
    fn refused(&mut self, call: Call, error: &RedisError) -> Result<(), End> {
        let reason = Reason::from(error);
        if reason == Reason::NoScript {
            return self.again(call);
        }
        // A replica is no node, and an own call is repeated on a new connection.
        let ends = error.is_unrecoverable_error() || reason == Reason::ReadOnly || !matches!(call, Call::Vote(..));
        if ends {
            let doing = if error.is_unrecoverable_error() { "the connection is lost" } else { "the server refuses" };
            return Err(Failure::of(doing, error).into());
        }
        self.count(reason);
        tracing::debug!(node = %self.name, address = %self.address, %reason, "{error}");
        Ok(())
    }

    /// The server forgot our scripts, so this one was not run: it is sent again with its text.
    fn again(&mut self, call: Call) -> Result<(), End> {
        self.count(Reason::NoScript);
        match call {
            Call::Vote(_, None) => {}
            Call::Vote(request, Some(reply)) => {
                let Link::Open(open) = &self.link else { return Ok(()) };
                let attempt = request.op.attempt();
                let same = |call: &Call| matches!(call, Call::Vote(other, _) if other.op.attempt() == attempt);
                // What was sent behind it may run before it: its turn is over.
                if open.pipe.in_flight().any(same) {
                    return Ok(());
                }
                if let Err((reply, vote)) = self.send_vote(clock::now(), request, reply, By::Text) {
                    reply.answer(vote);
                }
            }
            Call::Info => return Err(Failure::protocol("INFO answered NOSCRIPT").into()),
            own => self.call(own, By::Text),
        }
        Ok(())
    }
}

fn garbled(garbled: Garbled) -> End {
    Failure::protocol(garbled).into()
}
