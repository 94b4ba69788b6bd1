//! The calls that a node's task sends to its server.

use redislease_core::admission::Input;
use redislease_core::op::Vote;
use redislease_core::seed::FenceReport;
use redislease_core::time::Time;
use redislease_core::wire::{self, Effect, Why};
use tokio::sync::oneshot;

use super::Reason;
use super::brief::brief;
use super::failure::Failure;
use super::link::{Link, Open};
use super::message::Call;
use super::node::NodeTask;
use super::random::nonce;
use super::request::{Reply, Request};
use super::script::{self, Script};
use crate::clock;

/// An input of the wire of a node.
type ToWire = wire::Input<String, Reply, Call>;

impl NodeTask {
    /// Sends a call that is not for a vote.
    pub(super) fn call(&mut self, call: Call) {
        if matches!(call, Call::Read(_)) && self.admission.marker().is_none() {
            return;
        }
        self.feed_wire(clock::now(), ToWire::Own(call));
    }

    /// Takes one request for a vote at `now`.
    pub(super) fn vote(&mut self, now: Time, request: Request, reply: Reply) {
        if matches!(self.link, Link::Open(_)) {
            self.feed_wire(now, ToWire::Request(request, reply));
        } else if request.give_up_at <= now {
            // Dropping the reply answers the request.
            self.count(Reason::Timeout);
        } else {
            // A request that was never sent was not executed.
            reply.give(Vote::Abstained);
        }
    }

    /// Gives an input to the wire, if there is a connection, and carries out what follows.
    pub(super) fn feed_wire(&mut self, now: Time, input: ToWire) {
        let Link::Open(open) = &mut self.link else { return };
        open.wire.handle(now, input);
        while let Link::Open(open) = &mut self.link
            && let Some(effect) = open.wire.poll_effect()
        {
            match effect {
                Effect::Send(id) => self.write(id),
                Effect::Load => self.load(),
                Effect::Vote(reply, vote) => reply.give(vote),
                Effect::Failed(why, count) => self.requests_failed(why, count),
                Effect::Foreign { keys, invalid } => {
                    self.count(Reason::Protocol);
                    let invalid = brief(invalid.to_string());
                    tracing::warn!(node = %self.context.name, address = %self.address, ?keys, "{invalid}");
                }
                Effect::Overdue => self.close(Failure::timeout(self.context.shared.command_timeout()).into()),
                // Those who wait for it notice that it is dropped.
                Effect::Lost(_) => {}
            }
        }
    }

    fn requests_failed(&mut self, why: Why, count: usize) {
        let reason = match why {
            Why::Timeout => Reason::Timeout,
            Why::Busy => Reason::Busy,
            Why::Late => Reason::Late,
            Why::NotAdmitted => Reason::NotAdmitted,
            Why::NoScript => Reason::NoScript,
        };
        self.count_each(count, reason);
        if why == Why::NotAdmitted {
            self.feed(Input::NotAdmitted);
        }
    }

    /// Writes a call of the wire.
    fn write(&mut self, id: u64) {
        let Link::Open(open) = &mut self.link else { return };
        let Open { client, wire, run_id, .. } = open.as_mut();
        let Some(sent) = wire.get(id) else { return };
        let keyspace = &self.context.shared.keyspace;
        let marker = || self.context.membership.marker(run_id.clone());
        let command = match &sent.call {
            wire::Call::Batch(batch) => script::batch(keyspace, wire, batch),
            wire::Call::Own(own) => match own {
                Call::Observe { run_id, stepped } => match nonce() {
                    Ok(nonce) => script::observe(keyspace, run_id, nonce, stepped.as_ref()),
                    Err(error) => return self.close(Failure::system(&error).into()),
                },
                Call::Admit { ticket, marker, seed } => script::admit(keyspace, ticket, marker, *seed),
                Call::Fence(_) => script::fence(keyspace, &marker()),
                Call::Read(reading) => script::read(keyspace, &marker(), &reading.key),
                Call::Check => script::check(keyspace),
                Call::Info => redis::cmd("INFO"),
                Call::Load(script) => script.load(),
            },
        };
        client.push(&command);
    }

    /// Loads all scripts.
    fn load(&mut self) {
        for script in Script::ALL {
            self.call(Call::Load(*script));
        }
    }

    pub(super) fn fence(&mut self, answer: oneshot::Sender<FenceReport>) {
        // The same server must not count as two nodes.
        if self.context.shared.board.duplicate(self.context.node).is_none() {
            self.call(Call::Fence(answer));
        }
    }

    /// Waits for an answer to the admission, instead of an earlier one.
    pub(super) fn answer_later(&mut self, answer: impl Future<Output = Option<Input>> + Send + 'static) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = Some(Box::pin(answer));
        }
    }

    pub(super) fn answer_admission(&mut self, answer: Option<Input>) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = None;
        }
        self.feed(answer.unwrap_or(Input::FencesUnread));
    }
}
