//! The calls that a node's task sends to its server, and the handling of the answers.

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
use super::extends::Extend;
use super::gathered::Asked;
use super::info::Info;
use super::node::{Call, End, Link, NodeTask, Open};
use super::pipe::Sent;
use super::reload::Reload;
use super::request::{Reply, Request};
use super::script::{self, Answer, Extension, InvalidReply, NoAnswer, Script};
use crate::clock;

/// How many requests for votes may be without an answer on one connection, extensions not counted. A server needs about
/// 15 us for a request, so a renewal behind all of them waits for a quarter of a second.
const REQUESTS: usize = 1 << 14;

impl NodeTask {
    fn count(&self, reason: Reason) {
        self.context.series.error(reason.as_str());
    }

    fn count_each(&self, count: usize, reason: Reason) {
        for _ in 0..count {
            self.count(reason);
        }
    }

    /// Sends a call that is not for a vote.
    pub(super) fn call(&mut self, call: Call) {
        let Link::Open(open) = &mut self.link else { return };
        let keyspace = &self.context.shared.keyspace;
        let command = match &call {
            Call::Observe { run_id, nonce, stepped } => script::observe(keyspace, run_id, *nonce, stepped.as_ref()),
            Call::Admit { ticket, marker, seed } => script::admit(keyspace, ticket, marker, *seed),
            Call::Fence(_) => script::fence(keyspace, &self.context.membership.marker(open.run_id.clone())),
            Call::Check => script::check(keyspace),
            Call::Info => redis::cmd("INFO"),
            Call::Votes(_) | Call::Extend(_) | Call::Load { .. } => return,
        };
        open.pipe.send(&command, clock::now(), call);
    }

    /// Takes one request for a vote: gathers it, queues it for a batch call, or answers it.
    pub(super) fn vote(&mut self, request: Request, reply: Reply) {
        let now = clock::now();
        if request.give_up_at <= now {
            // Dropping the reply answers the request.
            return self.count(Reason::Timeout);
        }
        // A request that was never sent was not executed.
        let Link::Open(open) = &mut self.link else { return reply.give(Vote::Abstained) };
        if let Some(reload) = &mut open.reload {
            return reload.wait(request, reply);
        }
        let Request { keys, op, give_up_at } = request;
        if let Op::Extend { attempt, token, ttl } = op {
            let extend = Extend { keys, attempt, token, ttl, give_up_at, reply: Some(reply) };
            return if self.admission.marker().is_some() {
                open.extends.push(extend);
            } else {
                answer(extend, Vote::Abstained);
            };
        }
        if open.requests + open.gathered.len() >= REQUESTS {
            self.count(Reason::Busy);
            return reply.give(Vote::Abstained);
        }
        if self.refusal.is_some() && matches!(op, Op::Acquire { .. } | Op::Confirm { .. }) {
            return reply.give(Vote::Abstained);
        }
        if let Some(extension) = open.extends.take(op.attempt()) {
            self.send_gathered();
            self.send_extend(now, vec![extension]);
        }
        let Link::Open(open) = &mut self.link else { return reply.give(Vote::Abstained) };
        let before = open.gathered.push(Asked { request: Request { keys, op, give_up_at }, reply: Some(reply) });
        for call in before {
            self.send_votes(now, call);
        }
    }

    /// Sends the gathered requests.
    pub(super) fn send_gathered(&mut self) {
        let Link::Open(open) = &mut self.link else { return };
        let calls = open.gathered.take();
        if calls.is_empty() {
            return;
        }
        let now = clock::now();
        for call in calls {
            self.send_votes(now, call);
        }
    }

    /// Sends one call for all requests. The server executes acquires only before the earliest deadline.
    fn send_votes(&mut self, now: Time, mut asked: Vec<Asked>) {
        // A late release is useful: it needs neither a vote of the node nor a deadline.
        let release = |asked: &Asked| matches!(asked.request.op, Op::Release { .. });
        asked.retain_mut(|asked| {
            let late = asked.request.give_up_at <= now;
            if late {
                asked.reply = None;
            }
            !late || release(asked)
        });
        let give_up_at = asked.iter().map(|asked| asked.request.give_up_at).filter(|at| *at > now).min();
        let terms = give_up_at.and_then(|give_up_at| self.terms(now, give_up_at));
        if terms.is_none() {
            for reply in asked.extract_if(.., |asked| !release(asked)).filter_map(|asked| asked.reply) {
                reply.give(Vote::Abstained);
            }
        }
        let (marker, deadline) = terms.unwrap_or_default();
        let Link::Open(open) = &mut self.link else { return };
        if asked.is_empty() {
            return;
        }
        let requests = asked.iter().map(|asked| (&*asked.request.keys, &asked.request.op));
        let command = script::votes(&self.context.shared.keyspace, &marker, deadline, requests);
        open.requests += asked.len();
        let id = open.pipe.send(&command, now, Call::Votes(asked));
        open.give_up.extend(give_up_at.map(|at| (at, id)));
    }

    /// The expected marker, and the deadline in milliseconds of the node's clock; `None` while the node has no vote.
    fn terms(&self, now: Time, give_up_at: Time) -> Option<(String, u64)> {
        let Link::Open(open) = &self.link else { return None };
        let (time, received) = open.node_time?;
        let marker = self.admission.marker()?;
        (give_up_at > now).then(|| (marker.to_string(), time.saturating_add(give_up_at.since(received).0)))
    }

    /// Sends waiting extensions up to the limit of calls in flight.
    pub(super) fn send_extends(&mut self) {
        let now = clock::now();
        while let Link::Open(open) = &mut self.link
            && open.reload.is_none()
            && let Some(leases) = open.extends.next_call()
        {
            self.send_extend(now, leases);
        }
    }

    /// Sends one call for all of `leases`. The server executes it only before the earliest deadline of them.
    fn send_extend(&mut self, now: Time, mut leases: Vec<Extend>) {
        leases.retain(|lease| lease.give_up_at > now);
        let Some(give_up_at) = leases.iter().map(|lease| lease.give_up_at).min() else { return };
        let Some((marker, deadline)) = self.terms(now, give_up_at) else {
            return leases.into_iter().for_each(|lease| answer(lease, Vote::Abstained));
        };
        let Link::Open(open) = &mut self.link else { return };
        let extensions: Vec<Extension<'_>> = leases.iter().map(Extend::extension).collect();
        let command = script::extend(&self.context.shared.keyspace, &marker, deadline, &extensions);
        let id = open.pipe.send(&command, now, Call::Extend(leases));
        open.extends.under_way += 1;
        open.give_up.insert((give_up_at, id));
    }

    pub(super) fn fence(&mut self, answer: oneshot::Sender<FenceReport>) {
        // The same server must not count as two nodes.
        if self.context.shared.board.duplicate(self.context.node).is_none() {
            self.call(Call::Fence(answer));
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

    /// Handles one answer. An error ends the connection.
    pub(super) fn answered(&mut self, sent: Sent<Call>, answer: RedisResult<Value>) -> Result<(), End> {
        let received = clock::now();
        self.context.series.duration.observe(Duration::from(received.since(sent.at)).as_secs_f64());
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
        // After a clock step the replies are dropped, which makes these votes unknown.
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
        let release = matches!(request.op, Op::Release { .. });
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

    /// Reads the clock in a reply. `None` if the clock was set; then the reply does not count.
    fn check_clock<T>(&mut self, sent: Time, received: Time, reply: script::Reply<T>) -> Option<T> {
        let time = reply.time / 1000;
        if let Link::Open(open) = &mut self.link {
            open.node_time = Some((time, received));
        }
        match self.clock_watch.read(time, sent, received) {
            Reading::Steady => Some(reply.answer),
            Reading::Stepped => {
                let name = &self.context.name;
                tracing::warn!(node = %name, address = %self.address, "the clock of Redis node {name} was set: the node has no vote until the longest lease has passed");
                self.feed(Input::Stepped);
                None
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
        let asked = matches!(call, Call::Votes(_) | Call::Extend(_));
        if lost || reason == Reason::ReadOnly || !asked {
            let doing = if lost { "the connection is lost" } else { "the server refuses" };
            return Err(Failure::of(doing, error).into());
        }
        let count = match &call {
            Call::Extend(leases) => leases.len(),
            Call::Votes(asked) => asked.len(),
            _ => 1,
        };
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

    /// The server does not have the scripts and did not run `call`: they are loaded once, then it is sent again.
    fn reload(&mut self, call: Call) -> Result<(), End> {
        self.count(Reason::NoScript);
        if matches!(call, Call::Info | Call::Load { .. }) {
            return Err(Failure::protocol("a command other than a script returned NOSCRIPT").into());
        }
        let Link::Open(open) = &mut self.link else { return Ok(()) };
        if open.reload.is_none() {
            let last = Script::ALL.len() - 1;
            for (place, script) in Script::ALL.iter().enumerate() {
                open.pipe.send(&script.load(), clock::now(), Call::Load { last: place == last });
            }
        }
        open.reload.get_or_insert_default().not_run(call);
        Ok(())
    }

    fn reloaded(&mut self) {
        let Link::Open(open) = &mut self.link else { return };
        let Some(reload) = open.reload.take() else { return };
        let (again, waiting) = Reload::finish(reload);
        let now = clock::now();
        for call in again {
            match call {
                Call::Votes(asked) => self.send_votes(now, asked),
                Call::Extend(leases) => self.send_extend(now, leases),
                own => self.call(own),
            }
        }
        for (request, reply) in waiting {
            self.vote(request, reply);
        }
        // If the scripts are lost again, these requests must be sent before the scripts are.
        self.send_gathered();
    }
}

impl Open {
    /// The call `id` was answered: nobody gives up on it any more.
    fn answered(&mut self, id: u64, give_up_at: impl Iterator<Item = Time>) {
        let mut last = None;
        for at in give_up_at.filter(|at| last.replace(*at) != Some(*at)).collect::<Vec<_>>() {
            self.give_up.remove(&(at, id));
        }
    }
}

/// Gives the vote on one extension, unless its sender has given up.
fn answer(lease: Extend, vote: Vote) {
    if let Some(reply) = lease.reply {
        reply.give(vote);
    }
}

fn ended_by(invalid: InvalidReply) -> End {
    Failure::protocol(invalid).into()
}
