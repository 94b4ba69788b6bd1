//! The wire: the machine of one node in a process. It owns the node's admission, and makes calls of the requests for votes, and
//! votes of the replies, while a connection is open.
//!
//! Its caller opens the connection, writes each call at [`Effect::Send`], knows the scripts, gives the replies back, and has the
//! node's clock judged. Each request gets exactly one vote, at its `give_up_at` at the latest. `K` is the type of a key, `R` that
//! of the receiver of a vote, and `C` that of the calls that are neither for votes nor of the admission.

mod batch;
mod connection;
mod event;
mod extends;
mod gathered;
mod in_flight;
mod limits;
mod releases;
mod reload;
pub mod replies;
#[cfg(test)]
mod samples;
#[cfg(test)]
pub(crate) mod tests;

pub use batch::{Asked, Batch, Call, Request, Sent, Terms};
pub use event::{Answers, Effect, Input, Why};
pub use limits::Limits;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{self, Admission};
use crate::marker::Marker;
use crate::op::{Op, Vote};
use crate::rules::Rules;
use crate::time::{Millis, Time};
use extends::Extends;
use gathered::Gathered;
use in_flight::InFlight;
use releases::Releases;
use reload::Reload;
use replies::{Answer, Exception, InvalidReply, NoAnswer, Reply, Value};

/// The memory of more effects than this is freed after a peak.
const KEPT: usize = 1024;

/// What is known about the node's readiness to vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trust {
    /// The marker that every vote must find, while the node is admitted.
    marker: Option<Marker>,
    /// The server refuses commands: no new term on this node.
    refuses: bool,
    /// The node's newest TIME in milliseconds, and the arrival time of its reply.
    node_time: Option<(u64, Time)>,
}

impl Trust {
    /// The terms of a call whose first sender gives up at `give_up_at`; `None` while the node has no vote.
    fn terms(&self, give_up_at: Time) -> Option<Terms> {
        let ((time, received), marker) = (self.node_time?, self.marker.clone()?);
        Some(Terms { marker, deadline: time.saturating_add(give_up_at.since(received).0) })
    }
}

/// The machine of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire<K, R, C> {
    pub(crate) rules: Rules,
    limits: Limits,
    /// A call without an answer for this time ends the connection.
    timeout: Millis,
    admission: Admission,
    is_connected: bool,
    trust: Trust,
    in_flight: InFlight<K, R, C>,
    gathered: Gathered<K, R>,
    extends: Extends<K, R>,
    releases: Releases<K, R>,
    reload: Option<Reload<K, R, C>>,
    effects: VecDeque<Effect<K, R, C>>,
}

impl<K, R, C> Wire<K, R, C> {
    /// The machine of a node without a connection.
    pub fn new(admission: Admission, limits: Limits, timeout: Millis) -> Self {
        Self {
            rules: Rules::NONE,
            limits,
            timeout,
            admission,
            is_connected: false,
            trust: Trust::default(),
            in_flight: InFlight::EMPTY,
            gathered: Gathered::EMPTY,
            extends: Extends::EMPTY,
            releases: Releases::EMPTY,
            reload: None,
            effects: VecDeque::new(),
        }
    }

    /// Changes how long a call may be without an answer.
    pub const fn set_timeout(&mut self, timeout: Millis) {
        self.timeout = timeout;
    }

    /// The call `id`, if it is in flight.
    pub fn get(&self, id: u64) -> Option<&Sent<K, R, C>> {
        self.in_flight.get(id)
    }

    /// The oldest call in flight: a server answers in order.
    pub fn oldest(&self) -> Option<&Sent<K, R, C>> {
        self.in_flight.oldest()
    }

    /// The requests of a batch, in order.
    pub fn requests<'a>(&self, batch: &'a Batch<K, R>) -> &'a [Asked<K, R>] {
        match &batch.asked[..] {
            [rest @ .., _] if !rest.is_empty() && batch.extends() && breaks!(self.rules, LastLeaseDropped) => rest,
            all => all,
        }
    }

    /// Reads the reply to a call for votes or of the admission, for [`Input::Answered`].
    ///
    /// # Errors
    /// No script returns such a reply to this call: it may belong to another one.
    pub fn read(call: &Call<K, R, C>, value: Value) -> Result<Reply<Answers>, InvalidReply> {
        let Call::Batch(batch) = call else {
            let Reply { time, answer } = replies::read_marker(value)?;
            return Ok(Reply { time, answer: Answers::Marker(answer) });
        };
        if batch.extends() {
            let Reply { time, answer } = replies::read_extend(batch.asked.len(), value)?;
            return Ok(Reply { time, answer: Answers::Extended(answer) });
        }
        let ops = batch.asked.iter().map(|asked| &asked.request.op);
        let Reply { time, answer } = replies::read_votes(ops, value)?;
        Ok(Reply { time, answer: Answers::Votes(answer) })
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect<K, R, C>> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            self.effects.shrink_to(KEPT);
        }
        effect
    }

    /// When the machine needs [`Input::Wake`], if no other input comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [
            self.in_flight.oldest().map(|sent| sent.at + self.timeout),
            self.in_flight.next_expiry(),
            self.extends.next_expiry(),
            self.releases.next_expiry(),
            self.gathered.waits_until(&self.limits),
            self.reload.as_ref().and_then(Reload::next_expiry),
            self.admission.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input<K, R, C>) {
        match input {
            Input::Request(request, reply) => self.request(now, Asked { request, reply: Some(reply) }),
            Input::Own(own) if !self.is_connected => self.effects.push_back(Effect::Lost(own)),
            Input::Own(own) => self.send_call(now, Call::Own(own), None),
            Input::Flush => {
                self.gather_releases(now);
                if self.gathered.is_due(self.in_flight.requests, &self.limits) {
                    self.send_gathered(now);
                }
                self.send_extends(now);
            }
            Input::Clock { node_time } => self.trust.node_time = Some((node_time, now)),
            Input::Opened => self.open(),
            Input::Admission(input) => self.admit(now, input),
            Input::Refuses(refuses) => self.trust.refuses = refuses,
            Input::Answered { id, answers: Answers::Marker(marker), .. } => self.marked(now, id, marker),
            Input::Answered { id, counts, answers } => self.answered(now, id, counts, answers),
            Input::Refused { id } => {
                if let Some(Call::Batch(batch)) = self.in_flight.take(id) {
                    self.vote_all(batch.asked, &Vote::Unknown);
                }
            }
            Input::NotRun { id } => self.not_run(now, id),
            Input::Loaded => self.loaded(now),
            Input::Wake => {
                self.wake(now);
                self.admit(now, admission::Input::Wake);
            }
            Input::Closed => self.close(now),
        }
    }

    fn vote(&mut self, asked: Asked<K, R>, vote: Vote) {
        self.effects.extend(asked.reply.map(|reply| Effect::Vote(reply, vote)));
    }

    fn vote_all(&mut self, asked: Vec<Asked<K, R>>, vote: &Vote) {
        for asked in asked {
            self.vote(asked, vote.clone());
        }
    }

    fn fail(&mut self, now: Time, why: Why, count: usize) {
        if count > 0 {
            self.effects.push_back(Effect::Failed(why, count));
            if why == Why::NotAdmitted {
                self.admit(now, admission::Input::NotAdmitted);
            }
        }
    }

    /// Gathers a request, queues it for a batch of extensions, or answers it.
    fn request(&mut self, now: Time, mut asked: Asked<K, R>) {
        if !self.is_connected {
            return self.vote(asked, Vote::Abstained);
        }
        let is_release = asked.request.op.is_release();
        if asked.is_over(now) {
            if let Some(reply) = asked.reply.take() {
                self.fail(now, Why::Timeout, 1);
                self.effects.push_back(Effect::Vote(reply, Vote::Unknown));
            }
            // A late release is useful: without it, the keys stay until their TTL has passed.
            if !is_release {
                return;
            }
        }
        if let Some(reload) = &mut self.reload {
            return reload.waiting.push(asked);
        }
        if asked.request.op.is_extend() {
            if self.trust.marker.is_none() {
                return self.vote(asked, Vote::Abstained);
            }
            if self.gathered.holds(asked.attempt()) {
                self.send_gathered(now);
            }
            return self.extends.push(asked);
        }
        if self.is_full() {
            if is_release {
                return self.releases.push(asked);
            }
            self.fail(now, Why::Busy, 1);
            return self.vote(asked, Vote::Abstained);
        }
        if self.trust.refuses && matches!(asked.request.op, Op::Acquire { .. } | Op::Confirm { .. }) {
            return self.vote(asked, Vote::Abstained);
        }
        self.gather(now, asked);
    }

    /// Whether as many requests have no answer as may be in flight.
    fn is_full(&self) -> bool {
        let Limits { in_flight_a_milli, in_flight, .. } = self.limits;
        let most = self.timeout.0.saturating_mul(in_flight_a_milli).min(in_flight);
        (self.in_flight.requests + self.gathered.len()) as u64 >= most
    }

    fn gather(&mut self, now: Time, asked: Asked<K, R>) {
        if let Some(extension) = self.extends.take(asked.attempt()) {
            self.send_gathered(now);
            self.send(now, vec![extension]);
        }
        for call in self.gathered.push(now, asked, &self.limits) {
            self.send(now, call);
        }
    }

    /// Gathers the releases that have waited for others.
    fn gather_releases(&mut self, now: Time) {
        while self.reload.is_none()
            && !self.is_full()
            && let Some(asked) = self.releases.pop()
        {
            self.gather(now, asked);
        }
    }

    fn send_gathered(&mut self, now: Time) {
        let mut calls = self.gathered.take();
        if breaks!(self.rules, EndsBehindVotes) {
            calls.reverse();
        }
        for call in calls {
            self.send(now, call);
        }
    }

    /// Sends waiting extensions up to the limit of calls in flight.
    fn send_extends(&mut self, now: Time) {
        while self.reload.is_none()
            && let Some(leases) = self.extends.next_call(self.in_flight.extends, &self.limits)
        {
            self.send(now, leases);
        }
    }

    /// Sends one call for all requests. The node executes acquires and extensions only before the earliest deadline.
    fn send(&mut self, now: Time, mut asked: Vec<Asked<K, R>>) {
        // A late release needs neither a vote of the node nor a deadline.
        let is_release = |asked: &Asked<K, R>| asked.request.op.is_release();
        let effects = &mut self.effects;
        let mut answer = |reply: Option<R>, vote| effects.extend(reply.map(|reply| Effect::Vote(reply, vote)));
        asked.retain_mut(|asked| {
            let late = asked.is_over(now);
            if late {
                answer(asked.reply.take(), Vote::Unknown);
            }
            !late || is_release(asked)
        });
        let give_up_at = asked.iter().map(|asked| asked.request.give_up_at).filter(|at| *at > now).min();
        let terms = give_up_at.and_then(|give_up_at| self.trust.terms(give_up_at));
        if terms.is_none() {
            for refused in asked.extract_if(.., |asked| !is_release(asked)) {
                answer(refused.reply, Vote::Abstained);
            }
        }
        if !asked.is_empty() {
            self.send_call(now, Call::Batch(Batch { asked, terms }), give_up_at);
        }
    }

    fn send_call(&mut self, now: Time, call: Call<K, R, C>, give_up_at: Option<Time>) {
        let id = self.in_flight.push(now, call, give_up_at);
        self.effects.push_back(Effect::Send(id));
    }

    fn answered(&mut self, now: Time, id: u64, counts: bool, answers: Answers) {
        let is_loading = self.reload.is_some();
        if is_loading && breaks!(self.rules, SentAgainAlthoughRun) {
            return self.not_run(now, id);
        }
        let Some(Call::Batch(batch)) = self.in_flight.take(id) else { return };
        if let Some(reload) = &mut self.reload {
            batch.asked.iter().for_each(|asked| reload.ran(asked.attempt()));
        }
        match answers {
            // Calls for votes have no marker in their replies.
            Answers::Marker(_) => {}
            _ if !counts => self.vote_all(batch.asked, &Vote::Unknown),
            Answers::Votes(answers) => self.take_votes(now, batch.asked, answers),
            Answers::Extended(Answer::Vote(exceptions)) => self.take_extended(batch.asked, exceptions),
            Answers::Extended(not_done) => {
                self.fail(now, if not_done == Answer::Late { Why::Late } else { Why::NotAdmitted }, batch.asked.len());
                self.vote_all(batch.asked, &Vote::Abstained);
            }
        }
    }

    fn take_votes(&mut self, now: Time, asked: Vec<Asked<K, R>>, answers: Vec<Result<Answer, NoAnswer>>) {
        let (mut late, mut not_admitted) = (0, 0);
        for (asked, answer) in asked.into_iter().zip(answers) {
            let vote = match answer {
                // The replies to requests in flight follow the reply that showed a step: they were executed by the same
                // stepped clock.
                Ok(Answer::Vote(_)) if !asked.request.op.is_release() && self.trust.marker.is_none() => Vote::Unknown,
                Ok(Answer::Vote(vote)) => vote,
                Ok(Answer::Late) => {
                    late += 1;
                    Vote::Abstained
                }
                Ok(Answer::NotAdmitted) => {
                    not_admitted += 1;
                    Vote::Abstained
                }
                Err(NoAnswer::Invalid(invalid)) => {
                    self.effects.push_back(Effect::Foreign { keys: asked.request.keys.clone(), invalid });
                    Vote::Unknown
                }
                Err(NoAnswer::Error) => Vote::Unknown,
            };
            self.vote(asked, vote);
        }
        self.fail(now, Why::Late, late);
        self.fail(now, Why::NotAdmitted, not_admitted);
    }

    fn take_extended(&mut self, asked: Vec<Asked<K, R>>, exceptions: Vec<Exception>) {
        let is_trusted = self.trust.marker.is_some();
        let mut exceptions = exceptions.into_iter().peekable();
        for (place, asked) in asked.into_iter().enumerate() {
            let exception = exceptions.next_if(|(exception, _)| *exception == place);
            let vote = exception.map_or(Vote::Extended, |(_, vote)| vote);
            if is_trusted && vote == Vote::Unknown {
                let (keys, invalid) = (asked.request.keys.clone(), InvalidReply::foreign_value());
                self.effects.push_back(Effect::Foreign { keys, invalid });
            }
            self.vote(asked, if is_trusted { vote } else { Vote::Unknown });
        }
    }

    /// The server does not have the scripts: they are loaded once, then the call is sent again.
    fn not_run(&mut self, now: Time, id: u64) {
        self.fail(now, Why::NoScript, 1);
        let Some(call) = self.in_flight.take(id) else { return };
        if self.reload.is_none() {
            self.effects.push_back(Effect::Load);
        }
        let reload = self.reload.get_or_insert(Reload::EMPTY);
        reload.again.push(call);
        reload.waiting.extend(self.gathered.take().into_iter().flatten());
    }

    fn loaded(&mut self, now: Time) {
        let Some(mut reload) = self.reload.take() else { return };
        self.vote_all(reload.take_overtaken(), &Vote::Abstained);
        for call in reload.again {
            match call {
                Call::Batch(batch) => self.send(now, batch.asked),
                call => self.send_call(now, call, None),
            }
        }
        for asked in reload.waiting {
            self.request(now, asked);
        }
        // If the scripts are lost again, these requests must be sent before the scripts are.
        self.send_gathered(now);
    }

    fn wake(&mut self, now: Time) {
        let extends = self.extends.expire(now);
        let mut expired = self.releases.expire(now);
        expired.extend(self.reload.as_mut().map(|reload| reload.expire(now)).into_iter().flatten());
        let mut count = extends.len() + expired.len();
        self.vote_all(extends, &Vote::Unknown);
        let effects = &mut self.effects;
        effects.extend(expired.into_iter().map(|reply| Effect::Vote(reply, Vote::Unknown)));
        self.in_flight.expire(now, |reply| {
            count += 1;
            effects.push_back(Effect::Vote(reply, Vote::Unknown));
        });
        self.fail(now, Why::Timeout, count);
        if self.in_flight.oldest().is_some_and(|sent| sent.at + self.timeout <= now) {
            return self.effects.push_back(Effect::Overdue);
        }
        if self.gathered.waits_until(&self.limits).is_some_and(|at| at <= now) {
            self.send_gathered(now);
        }
    }
}
