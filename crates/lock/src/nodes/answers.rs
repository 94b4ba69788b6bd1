//! The handling of a server's answers: votes, its clock, its state, errors.

use redis::{RedisError, RedisResult, Value};
use redislease_core::clock::Sample;
use redislease_core::time::Time;
use redislease_core::wire::replies::{self, Answer, InvalidReply};
use redislease_core::wire::{Answers, Call as Sent, Input};

use super::Reason;
use super::failure::Failure;
use super::info::Info;
use super::link::{End, Link, Wire};
use super::message::{Call, Shown};
use super::node::NodeTask;
use super::script::{self, Script};
use crate::clock;

impl NodeTask {
    pub(super) fn count_each(&self, count: usize, reason: Reason) {
        for _ in 0..count {
            self.context.failed(reason);
        }
    }

    /// Handles one answer: to the oldest call. An error ends the connection.
    pub(super) fn answered(&mut self, answer: RedisResult<Value>) -> Result<(), End> {
        let received = clock::now();
        let Some(sent) = self.wire.oldest() else {
            return Err(Failure::protocol("the server sent a reply without a command").into());
        };
        let (id, at) = (sent.id, sent.at);
        self.context.observer.answered(self.context.node, received.since(at));
        let value = match answer {
            Ok(value) => value,
            Err(error) => return self.failed(id, &error),
        };
        let mut errors = Vec::new();
        if !matches!(&sent.call, Sent::Own(_)) {
            let reply = Wire::read(&sent.call, script::value(value, &mut errors)).map_err(ended_by)?;
            // After a jump of a clock the votes are unknown.
            let counts = self.check_clock(at, received, reply.time);
            errors.iter().filter(|_| counts).for_each(|error| self.refused_requests(1, error));
            if let Answers::Marker(_) = &reply.answer {
                self.beat_answered = true;
                self.show_clock();
            }
            self.feed(received, Input::Answered { id, counts, answers: reply.answer });
            return Ok(());
        }
        let Some(call) = self.wire.take_own(id) else { return Ok(()) };
        self.answered_own(at, received, call, value)
    }

    fn answered_own(&mut self, at: Time, received: Time, call: Call, value: Value) -> Result<(), End> {
        let errors = &mut Vec::new();
        match call {
            Call::Fence(asked) => {
                let report = replies::read_fence(script::value(value, errors)).map_err(ended_by)?;
                if self.check_clock(at, received, report.clock) {
                    // The sender may have given up.
                    let _ = asked.send(report);
                }
            }
            Call::Read(reading) => {
                let reply = replies::read_value(script::value(value, errors)).map_err(ended_by)?;
                let counts = self.check_clock(at, received, reply.time);
                match reply.answer {
                    _ if !counts => {}
                    Ok(Answer::Vote(found)) if self.wire.admission().marker().is_some() => {
                        let shown = found.map_or(Shown::Nothing, |(value, left)| Shown::Value(value, left));
                        // The sender may have given up.
                        let _ = reading.answer.send(shown);
                    }
                    Err(foreign) => {
                        self.context.failed(Reason::Protocol);
                        tracing::debug!(node = %self.context.name, address = %self.address, "{foreign}");
                        let _ = reading.answer.send(Shown::Foreign);
                    }
                    Ok(_) => {}
                }
            }
            Call::Info => {
                let text: String = redis::from_redis_value(value).map_err(Failure::protocol)?;
                self.informed(&Info::parse(&text).map_err(Failure::protocol)?)?;
            }
            Call::Check => {
                let reply = replies::read_check(script::value(value, errors)).map_err(ended_by)?;
                self.check_clock(at, received, reply.time);
                self.refused(reply.answer.map(|(command, error)| Failure::refused_command(&command, &error)));
            }
            Call::Load(script) => {
                if Script::ALL.last() == Some(&script) {
                    self.feed(received, Input::Loaded);
                }
            }
        }
        Ok(())
    }

    /// Passes on the TIME of a reply. Returns whether the reply counts: no clock jumped.
    fn check_clock(&mut self, sent: Time, received: Time, time: u64) -> bool {
        let node_time = time / 1000;
        self.feed(received, Input::Clock { node_time });
        self.judge_clock(Sample { node_time, sent, received })
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

    /// Handles an error reply to the call `id`.
    fn failed(&mut self, id: u64, error: &RedisError) -> Result<(), End> {
        let now = clock::now();
        let Some(sent) = self.wire.get(id) else { return Ok(()) };
        let (reason, lost) = (Reason::from(error), error.is_unrecoverable_error());
        let own = match &sent.call {
            Sent::Own(own) => Some(own),
            Sent::Admission(_) | Sent::Batch(_) => None,
        };
        if reason == Reason::NoScript {
            if matches!(own, Some(Call::Info | Call::Load(_))) {
                return Err(Failure::protocol("a command other than a script returned NOSCRIPT").into());
            }
            self.feed(now, Input::NotRun { id });
            return Ok(());
        }
        if let (Some(Call::Check), Some(refusal), false) = (own, Failure::refusal(error), lost) {
            self.wire.take_own(id);
            self.refused(Some(refusal));
            return Ok(());
        }
        // A replica cannot be a node; a call of the task is repeated on a new connection.
        let asked = matches!(&sent.call, Sent::Batch(_) | Sent::Own(Call::Read(_)));
        if lost || reason == Reason::ReadOnly || !asked {
            let doing = if lost { "the connection is lost" } else { "the server refuses" };
            return Err(Failure::of(doing, error).into());
        }
        let mut count = 1;
        if let Sent::Batch(batch) = &sent.call {
            count = self.wire.requests(batch).len();
            self.feed(now, Input::Refused { id });
        } else if let Some(Call::Read(reading)) = self.wire.take_own(id)
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
