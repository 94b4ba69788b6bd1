//! The calls that a node's task sends to its server.

use redislease_core::admission::Input;
use redislease_core::op::{Op, Token, Vote};
use redislease_core::seed::{FenceReport, Unseedable};
use redislease_core::time::Time;
use tokio::sync::oneshot;

use super::Reason;
use super::extends::Extend;
use super::failure::Failure;
use super::gathered::Asked;
use super::link::{End, Link};
use super::message::Call;
use super::node::NodeTask;
use super::reload::Reload;
use super::request::{Reply, Request};
use super::script::{self, Extension, Script};
use crate::clock;

/// How many requests for votes may be without an answer on one connection for each millisecond of the command timeout,
/// extensions not counted. A server needs about 15 us for a request, so a renewal behind all of them waits for a third of
/// the timeout.
const REQUESTS_A_MILLISECOND: u64 = 20;
/// The same for a long timeout: a quarter of a second.
const REQUESTS: u64 = 1 << 14;

impl NodeTask {
    /// Sends a call that is not for a vote.
    pub(super) fn call(&mut self, call: Call) {
        let Link::Open(open) = &mut self.link else { return };
        let keyspace = &self.context.shared.keyspace;
        let command = match &call {
            Call::Observe { run_id, nonce, stepped } => script::observe(keyspace, run_id, *nonce, stepped.as_ref()),
            Call::Admit { ticket, marker, seed } => script::admit(keyspace, ticket, marker, *seed),
            Call::Fence(_) => script::fence(keyspace, &self.context.membership.marker(open.run_id.clone())),
            Call::Read(reading) => match self.admission.marker() {
                Some(marker) => script::read(keyspace, &marker, &reading.key),
                None => return,
            },
            Call::Check => script::check(keyspace),
            Call::Info => redis::cmd("INFO"),
            Call::Votes(_) | Call::Extend(_) | Call::Load { .. } => return,
        };
        open.pipe.send(&command, clock::now(), call);
    }

    /// Takes one request for a vote at `now`: gathers it, queues it for a batch call, or answers it.
    pub(super) fn vote(&mut self, now: Time, request: Request, reply: Reply) {
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
            if self.admission.marker().is_none() {
                return answer(extend, Vote::Abstained);
            }
            if open.gathered.holds(attempt) {
                self.send_gathered();
            }
            if let Link::Open(open) = &mut self.link {
                open.extends.push(extend);
            }
            return;
        }
        let most = self.context.shared.command_timeout().0.saturating_mul(REQUESTS_A_MILLISECOND).min(REQUESTS);
        if (open.requests + open.gathered.len()) as u64 >= most {
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
        let before = open.gathered.push(now, Asked { request: Request { keys, op, give_up_at }, reply: Some(reply) });
        for call in before {
            self.send_votes(now, call);
        }
    }

    /// Sends the gathered requests, unless they wait for more.
    pub(super) fn send_due(&mut self) {
        if let Link::Open(open) = &self.link
            && open.gathered.is_due(open.requests)
        {
            self.send_gathered();
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
        let release = |asked: &Asked| asked.request.op.is_release();
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
        while let Link::Open(open) = &mut self.link
            && open.reload.is_none()
            && let Some(leases) = open.extends.next_call()
        {
            self.send_extend(clock::now(), leases);
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

    /// The server does not have the scripts and did not run `call`: they are loaded once, then it is sent again.
    pub(super) fn reload(&mut self, call: Call) -> Result<(), End> {
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
        let reload = open.reload.get_or_insert_default();
        reload.not_run(call);
        for Asked { request, reply } in open.gathered.take().into_iter().flatten() {
            if let Some(reply) = reply {
                reload.wait(request, reply);
            }
        }
        Ok(())
    }

    pub(super) fn reloaded(&mut self) {
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
            self.vote(now, request, reply);
        }
        // If the scripts are lost again, these requests must be sent before the scripts are.
        self.send_gathered();
    }
}

/// Gives the vote on one extension, unless its sender has given up.
pub(super) fn answer(lease: Extend, vote: Vote) {
    if let Some(reply) = lease.reply {
        reply.give(vote);
    }
}
