//! The handling of a server's answers: votes, its clock, its state, errors.

use redis::{RedisError, RedisResult, Value};
use redislease_core::admission::Input;
use redislease_core::clock::Sample;
use redislease_core::marker::Marker;
use redislease_core::op::{Op, Vote};
use redislease_core::seed::FenceReport;
use redislease_core::time::Time;

use super::Reason;
use super::calls::answer;
use super::extends::Extend;
use super::failure::Failure;
use super::gathered::Asked;
use super::info::Info;
use super::link::{End, Link};
use super::message::{Call, Shown};
use super::node::NodeTask;
use super::pipe::Sent;
use super::request::Request;
use super::script::{self, Answer, InvalidReply, NoAnswer};
use crate::clock;

impl NodeTask {
    pub(super) fn count(&self, reason: Reason) {
        self.context.failed(reason);
    }

    pub(super) fn count_each(&self, count: usize, reason: Reason) {
        for _ in 0..count {
            self.count(reason);
        }
    }

    /// Handles one answer. An error ends the connection.
    pub(super) fn answered(&mut self, sent: Sent<Call>, answer: RedisResult<Value>) -> Result<(), End> {
        let received = clock::now();
        self.context.observer.answered(self.context.node, received.since(sent.at));
        let Sent { id, at, call } = sent;
        if let Link::Open(open) = &mut self.link {
            match &call {
                Call::Votes(asked) => {
                    open.requests -= asked.len();
                    open.answered(id, asked.iter().map(|asked| asked.request.give_up_at));
                }
                Call::Extend(leases) => {
                    open.extends.under_way -= 1;
                    open.answered(id, leases.iter().map(|lease| lease.give_up_at));
                }
                _ => {}
            }
        }
        let value = match answer {
            Ok(value) => value,
            Err(error) => return self.failed(call, &error),
        };
        self.note_order(&call);
        match call {
            Call::Votes(asked) => self.take_votes(at, received, asked, value)?,
            Call::Extend(leases) => self.take_extended(at, received, leases, value)?,
            Call::Observe { .. } | Call::Admit { .. } => {
                let reply = script::read_marker(value).map_err(ended_by)?;
                // A clock step is handled first, because the marker in the reply may be older than the step.
                let marker = reply.answer.clone();
                self.check_clock(at, received, reply);
                self.observed(marker)?;
            }
            Call::Fence(report) => {
                let reply = script::read_fence(value).map_err(ended_by)?;
                let clock = reply.time;
                if let Some((allegiance, fence)) = self.check_clock(at, received, reply) {
                    // The sender may have given up.
                    let _ = report.send(FenceReport { allegiance, fence, clock });
                }
            }
            Call::Read(reading) => {
                let reply = script::read_value(value).map_err(ended_by)?;
                match self.check_clock(at, received, reply) {
                    Some(Ok(Answer::Vote(found))) if self.admission.marker().is_some() => {
                        let shown = found.map_or(Shown::Nothing, |(value, left)| Shown::Value(value, left));
                        // The sender may have given up.
                        let _ = reading.answer.send(shown);
                    }
                    Some(Err(foreign)) => {
                        self.count(Reason::Protocol);
                        tracing::debug!(node = %self.context.name, address = %self.address, "{foreign}");
                        let _ = reading.answer.send(Shown::Foreign);
                    }
                    _ => {}
                }
            }
            Call::Info => {
                let text: String = redis::from_redis_value(value).map_err(Failure::protocol)?;
                self.informed(&Info::parse(&text).map_err(Failure::protocol)?)?;
            }
            Call::Check => {
                let reply = script::read_check(value).map_err(ended_by)?;
                let refused = reply.answer.clone();
                self.check_clock(at, received, reply);
                self.refused(refused.map(|(command, error)| Failure::refused_command(&command, &error)));
            }
            Call::Load { last } => {
                if last {
                    self.reloaded();
                }
            }
        }
        Ok(())
    }

    /// While the scripts are loaded, a call that was executed overtakes those about the same lease that were not.
    fn note_order(&mut self, call: &Call) {
        let Link::Open(open) = &mut self.link else { return };
        let Some(reload) = &mut open.reload else { return };
        match call {
            Call::Votes(asked) => asked.iter().for_each(|asked| reload.ran(asked.attempt())),
            Call::Extend(leases) => leases.iter().for_each(|lease| reload.ran(lease.attempt)),
            _ => {}
        }
    }

    /// A reply to other requests, or to fewer or more of them, may belong to another call.
    fn take_votes(&mut self, sent: Time, received: Time, asked: Vec<Asked>, value: Value) -> Result<(), End> {
        let ops: Vec<&Op> = asked.iter().map(|asked| &asked.request.op).collect();
        let answered = script::read_votes(&ops, value).map_err(ended_by)?;
        // After a jump of a clock the replies are dropped, which makes these votes unknown.
        let Some(answers) = self.check_clock(sent, received, answered) else { return Ok(()) };
        for (Asked { request, reply }, answer) in asked.into_iter().zip(answers) {
            let vote = self.vote_of(&request, answer);
            if let Some(reply) = reply {
                reply.give(vote);
            }
        }
        Ok(())
    }

    fn vote_of(&mut self, request: &Request, answer: Result<Answer, NoAnswer>) -> Vote {
        let release = request.op.is_release();
        match answer {
            // The replies to requests in flight follow the reply that showed a step: they were executed by the same
            // stepped clock.
            Ok(Answer::Vote(_)) if !release && self.admission.marker().is_none() => Vote::Unknown,
            Ok(Answer::Vote(vote)) => vote,
            Ok(Answer::Late) => self.not_done(Reason::Late),
            Ok(Answer::NotAdmitted) => self.not_done(Reason::NotAdmitted),
            Err(NoAnswer::Invalid(invalid)) => {
                self.count(Reason::Protocol);
                let (name, Request { keys, .. }) = (&self.context.name, request);
                tracing::warn!(node = %name, address = %self.address, ?keys, "{invalid}");
                Vote::Unknown
            }
            Err(NoAnswer::Error(error)) => {
                self.refused_requests(1, &error);
                Vote::Unknown
            }
        }
    }

    fn take_extended(&mut self, sent: Time, received: Time, leases: Vec<Extend>, value: Value) -> Result<(), End> {
        let answered = script::read_extend(leases.len(), value).map_err(ended_by)?;
        let exceptions = match self.check_clock(sent, received, answered) {
            Some(Answer::Vote(exceptions)) if self.admission.marker().is_some() => exceptions,
            None | Some(Answer::Vote(_)) => return Ok(()),
            Some(not_done) => {
                let reason = if not_done == Answer::Late { Reason::Late } else { Reason::NotAdmitted };
                self.not_extended(leases, reason);
                return Ok(());
            }
        };
        let mut exceptions = exceptions.into_iter().peekable();
        for (place, lease) in leases.into_iter().enumerate() {
            let vote =
                exceptions.next_if(|(exception, _)| *exception == place).map_or(Vote::Extended, |(_, vote)| vote);
            if vote == Vote::Unknown {
                self.count(Reason::Protocol);
                let Extend { keys, .. } = &lease;
                tracing::warn!(node = %self.context.name, address = %self.address, ?keys, "a key holds a value that RedisLease did not write; choose another keyPrefix");
            }
            answer(lease, vote);
        }
        Ok(())
    }

    fn not_extended(&mut self, leases: Vec<Extend>, reason: Reason) {
        for lease in leases {
            let vote = self.not_done(reason);
            answer(lease, vote);
        }
    }

    /// The server executed nothing and reported that.
    fn not_done(&mut self, reason: Reason) -> Vote {
        self.count(reason);
        if reason == Reason::NotAdmitted {
            self.feed(Input::NotAdmitted);
        }
        Vote::Abstained
    }

    /// Reads the clock in a reply. `None` if it jumped; then the reply does not count.
    fn check_clock<T>(&mut self, sent: Time, received: Time, reply: script::Reply<T>) -> Option<T> {
        let node_time = reply.time / 1000;
        if let Link::Open(open) = &mut self.link {
            open.node_time = Some((node_time, received));
        }
        self.judge_clock(Sample { node_time, sent, received }).then_some(reply.answer)
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
            // Only the admit script finds no marker: the wait ticket was deleted during the wait.
            None => {
                self.count(Reason::NotAdmitted);
                Err(Failure {
                    reason: Reason::NotAdmitted,
                    text: "its marker was deleted: the server was flushed".to_owned(),
                }
                .into())
            }
        }
    }

    fn informed(&mut self, info: &Info) -> Result<(), End> {
        let Link::Open(open) = &self.link else { return Ok(()) };
        if info.process != open.process {
            let text = format!(
                "another server process answers on this connection, or the server was a replica meanwhile: {} instead of {}",
                info.process.name(None),
                open.run_id
            );
            return Err(Failure::protocol(text).into());
        }
        match &info.misconfiguration {
            Some((why, sentence)) => Err(End::Misconfigured(*why, sentence.clone())),
            None => Ok(()),
        }
    }

    /// Handles an error reply.
    fn failed(&mut self, call: Call, error: &RedisError) -> Result<(), End> {
        let reason = Reason::from(error);
        if reason == Reason::NoScript {
            return self.reload(call);
        }
        let lost = error.is_unrecoverable_error();
        if let (Call::Check, Some(refusal), false) = (&call, Failure::refusal(error), lost) {
            self.refused(Some(refusal));
            return Ok(());
        }
        // A replica cannot be a node; a call of the task is repeated on a new connection.
        let asked = matches!(call, Call::Votes(_) | Call::Extend(_) | Call::Read(_));
        if lost || reason == Reason::ReadOnly || !asked {
            let doing = if lost { "the connection is lost" } else { "the server refuses" };
            return Err(Failure::of(doing, error).into());
        }
        let count = match &call {
            Call::Extend(leases) => leases.len(),
            Call::Votes(asked) => asked.len(),
            _ => 1,
        };
        if let Call::Read(reading) = call
            && error.code() == Some("WRONGTYPE")
        {
            let _ = reading.answer.send(Shown::Foreign);
        }
        self.refused_requests(count, error);
        Ok(())
    }

    /// The server returned an error to `count` requests. They have no vote.
    fn refused_requests(&mut self, count: usize, error: &RedisError) {
        let reason = Reason::from(error);
        self.count_each(count, reason);
        tracing::debug!(node = %self.context.name, address = %self.address, %reason, "{error}");
        if let Some(refusal) = Failure::refusal(error) {
            self.context.update(|status| status.last_refusal = Some(refusal.text));
            self.check_soon();
        }
    }
}

fn ended_by(invalid: InvalidReply) -> End {
    Failure::protocol(invalid).into()
}
