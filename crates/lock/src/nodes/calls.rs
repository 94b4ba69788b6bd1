//! The calls that a node's task sends to its server.

use redislease_core::admission;
use redislease_core::time::Time;
use redislease_core::wire::{self, Effect, Input, Why};

use super::brief::brief;
use super::failure::Failure;
use super::link::Link;
use super::message::Call;
use super::node::NodeTask;
use super::random::nonce;
use super::request::Reply;
use super::script::{self, Script};
use super::{Reason, seeding};
use crate::clock;

impl NodeTask {
    /// Sends a call that is not for a vote.
    pub(super) fn call(&mut self, call: Call) {
        if matches!(call, Call::Read(_)) && self.wire.admission().marker().is_none() {
            return;
        }
        self.feed(clock::now(), Input::Own(call));
    }

    pub(super) fn feed_admission(&mut self, input: admission::Input) {
        self.feed(clock::now(), Input::Admission(input));
    }

    /// Gives an input to the wire, and carries out what follows.
    pub(super) fn feed(&mut self, now: Time, input: Input<String, Reply, Call>) {
        self.wire.handle(now, input);
        while let Some(effect) = self.wire.poll_effect() {
            match effect {
                Effect::Send(id) => self.write(id),
                Effect::Load => Script::ALL.iter().for_each(|script| self.call(Call::Load(*script))),
                Effect::Vote(reply, vote) => reply.give(vote),
                Effect::Failed(why, count) => self.requests_failed(why, count),
                Effect::Foreign { keys, invalid } => {
                    self.context.failed(Reason::Protocol);
                    let invalid = brief(invalid.to_string());
                    tracing::warn!(node = %self.context.name, address = %self.address, ?keys, "{invalid}");
                }
                Effect::Admission(effect) => self.carry_out(effect),
                Effect::Overdue => self.close(Failure::timeout(self.context.shared.command_timeout()).into()),
                Effect::AnotherServer(marker) => {
                    let text = format!("another server answers on this connection: its marker is `{marker}`");
                    self.close(Failure::protocol(text).into());
                }
                Effect::Flushed => {
                    let text = "its marker was deleted: the server was flushed".to_owned();
                    self.close(Failure { reason: Reason::NotAdmitted, text }.into());
                }
                // Those who wait for it notice that it is dropped.
                Effect::Lost(_) => {}
            }
        }
    }

    fn carry_out(&mut self, effect: admission::Effect) {
        let (shared, node) = (self.context.shared.clone(), self.context.node);
        match effect {
            // The wire sends it.
            admission::Effect::Call(_) => {}
            admission::Effect::ListStatuses { again } => {
                self.answer_later(seeding::list_statuses(shared, node, again));
            }
            admission::Effect::ReadFences => self.answer_later(seeding::read_fences(shared, node)),
            admission::Effect::Changed(standing) => self.show(&standing),
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
    }

    /// Writes a call of the wire.
    fn write(&mut self, id: u64) {
        let Link::Open(open) = &mut self.link else { return };
        let Some(sent) = self.wire.get(id) else { return };
        let keyspace = &self.context.shared.keyspace;
        let marker = || self.context.membership.marker(open.run_id.clone());
        let command = match &sent.call {
            wire::Call::Batch(batch) => script::batch(keyspace, &self.wire, batch),
            wire::Call::Admission(call) => match (call, nonce()) {
                (admission::Call::Observe { run_id, stepped }, Ok(nonce)) => {
                    script::observe(keyspace, run_id, nonce, stepped.as_ref())
                }
                (admission::Call::Observe { .. }, Err(error)) => return self.close(Failure::system(&error).into()),
                (admission::Call::Admit { ticket, marker, seed }, _) => script::admit(keyspace, ticket, marker, *seed),
            },
            wire::Call::Own(call) => match call {
                Call::Fence(_) => script::fence(keyspace, &marker()),
                Call::Read(reading) => script::read(keyspace, &marker(), &reading.key),
                Call::Check => script::check(keyspace),
                Call::Info => redis::cmd("INFO"),
                Call::Load(script) => script.load(),
            },
        };
        open.client.push(&command);
    }

    /// Waits for an answer to the admission, instead of an earlier one.
    pub(super) fn answer_later(&mut self, answer: impl Future<Output = admission::Input> + Send + 'static) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = Some(Box::pin(answer));
        }
    }

    pub(super) fn answer_admission(&mut self, answer: admission::Input) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = None;
        }
        self.feed_admission(answer);
    }
}
