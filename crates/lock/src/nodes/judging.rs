//! The clocks of the nodes: carries out what the [`Judge`](redislease_core::judge::Judge) of the quorum finds.

use redislease_core::admission::Input;
use redislease_core::clock::{Jump, Sample};
use redislease_core::judge::Effect;
use redislease_core::quorum::Node;
use redislease_core::time::Time;
use tokio::sync::oneshot;

use super::message::{Call, Message};
use super::node::NodeTask;
use crate::clock;

impl NodeTask {
    /// Passes on the TIME of a reply. Returns whether the votes in the reply count.
    pub(super) fn judge_clock(&mut self, sample: Sample) -> bool {
        let counts = self.context.shared.judge().read(sample.received, self.context.node, sample);
        self.carry_out_findings();
        counts
    }

    pub(super) fn judge_in_time(&mut self, now: Time) {
        self.context.shared.judge().wake(now, self.context.shared.command_timeout());
        self.carry_out_findings();
    }

    pub(super) fn judge_without_this_node(&mut self) {
        self.context.shared.judge().disconnected(clock::now(), self.context.node);
        self.carry_out_findings();
    }

    fn carry_out_findings(&mut self) {
        loop {
            let Some(effect) = self.context.shared.judge().poll_effect() else { return };
            match effect {
                Effect::ReadClock(node) | Effect::Doubted(node) | Effect::Steady(node) | Effect::Stepped(node) => {
                    self.report(node, effect);
                }
                Effect::Void { lost } => {
                    warn_of(lost);
                    self.context.shared.void_at.send_replace(Some(clock::now()));
                }
            }
        }
    }

    fn report(&mut self, node: Node, finding: Effect) {
        if node == self.context.node {
            self.take_finding(finding);
        } else if let Some(port) = self.context.shared.ports.get(node.index()) {
            // A task that has ended has no connection.
            let _ = port.inbox.send(Message::Clock(finding));
        }
    }

    pub(super) fn take_finding(&mut self, finding: Effect) {
        let name = &self.context.name;
        match finding {
            Effect::ReadClock(_) => {
                // A server whose memory is full answers it too. Nobody waits for the fence.
                self.call(Call::Fence(oneshot::channel().0));
            }
            Effect::Doubted(_) => {
                tracing::info!(node = %name, address = %self.address, "the clock of Redis node {name} and the clock of this process moved apart: the node has no vote until it is known which of them jumped");
                self.feed_admission(Input::Doubted);
            }
            Effect::Steady(_) => self.feed_admission(Input::Steady),
            Effect::Stepped(_) => {
                tracing::warn!(node = %name, address = %self.address, "the clock of Redis node {name} was set: the node has no vote until the longest lease has passed");
                self.feed_admission(Input::Stepped);
            }
            // It concerns the whole quorum.
            Effect::Void { .. } => {}
        }
    }
}

fn warn_of(lost: Option<Jump>) {
    let Some(lost) = lost else {
        tracing::warn!(
            "the clocks of all Redis nodes that answer moved apart from the clock of this process: its leases and locks are confirmed again or lost"
        );
        return;
    };
    let millis = i128::midpoint(lost.low, lost.high) / 100;
    tracing::warn!(lost_ms = %millis, "the clock of this process stood still for {millis} ms (a virtual machine was paused or migrated): its leases and locks are confirmed again or lost, and it starts no attempt until the longest lease has passed");
}
