//! One lease in a shard: carries out the effects of its driver.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::driver::{self, Command, Driver, Fresh, Input, LeaseId, Turns};
use redislease_core::lease::{Broken, Effect};
use redislease_core::op::{Attempt, Token, Vote};
use redislease_core::time::Time;

use super::{Observer, Policy, Setup};
use crate::PanicObserver;
use crate::mailbox::Mailbox;
use crate::nodes::random::{Random, nonce};
use crate::nodes::{Ballot, Nodes, Outbox, Reply, Request};

/// State shared by the machines of a shard.
pub(super) struct Tools {
    pub ballots: Arc<Mailbox<Ballot>>,
    pub turns: Turns,
    pub random: Random,
    pub panics: Arc<dyn PanicObserver>,
}

/// What happens to a machine after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Keep,
    Remove,
}

pub(super) struct Machine {
    pub driver: Driver,
    keys: Arc<[String]>,
    policy: Option<Arc<dyn Policy>>,
    pub observer: Box<dyn Observer>,
}

impl Machine {
    pub fn new(id: LeaseId, setup: Setup, turns: &mut Turns) -> Self {
        let Setup { nodes, keys, config, policy, jump_wait, observer } = setup;
        // Without nodes no jump is noticed.
        let longest = nodes.map_or(config.ttl, |nodes| nodes.longest_lease());
        let driver = Driver::new(id, config, jump_wait.unwrap_or(longest), turns);
        Self { driver, keys, policy, observer }
    }

    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    pub fn handle(
        &mut self,
        now: Time,
        to: LeaseId,
        input: Input,
        outbox: Option<&mut Outbox>,
        tools: &mut Tools,
    ) -> Outcome {
        let policy = self.policy.as_deref();
        if let Some(policy) = policy {
            self.driver.set_may_end(policy.may_end(now));
        }
        let input = match input {
            // Its lease has ended, and this one has its place: the driver ignores it.
            input if to != self.driver.id() => input,
            Input::Command(command @ Command::Want(_), _) => {
                let fresh = fresh(outbox.as_deref(), &mut tools.random);
                Input::Command(command, fresh)
            }
            input @ (Input::Wake | Input::Command(Command::Close, _)) => {
                let instead = policy.and_then(|policy| policy.instead(now, &input));
                instead.map_or(input, |command| Input::Command(command, None))
            }
            input => input,
        };
        if let (Input::Vote { vote: vote @ Vote::Granted(_), .. }, Some(outbox)) = (&input, &outbox) {
            outbox.nodes().saw_grant(vote);
        }
        self.driver.handle(now, to, input, &mut tools.turns);
        self.carry_out(outbox, tools)
    }

    fn carry_out(&mut self, mut outbox: Option<&mut Outbox>, tools: &Tools) -> Outcome {
        while let Some(effect) = self.driver.poll_effect() {
            match effect {
                driver::Effect::Lease(Effect::Send { round, node, op, give_up_at }) => {
                    let reply = Reply::to_shard(tools.ballots.clone(), self.driver.id(), round, node);
                    match &mut outbox {
                        Some(outbox) => outbox.put(node, Request { keys: self.keys.clone(), op, give_up_at }, reply),
                        None => reply.give(Vote::Abstained),
                    }
                }
                // The view asks the caller to publish the term.
                driver::Effect::Lease(Effect::Publish(_)) => {}
                driver::Effect::Lease(Effect::Renewed(renewal)) => {
                    self.observer.renewed(&renewal, self.driver.lease().config().ttl.0);
                }
                driver::Effect::Lease(Effect::Changed(view)) => self.observer.changed(&view),
                driver::Effect::Lease(Effect::Broken(broken)) => {
                    tools.panics.panicked();
                    let Broken { violation, view } = *broken;
                    tracing::error!(keys = ?self.keys, %violation, ?view, "a lease or lock broke an invariant; its term ends, and its keys expire with their TTL. Report this bug");
                }
                driver::Effect::Released => self.observer.released(),
                driver::Effect::Ended => return Outcome::Remove,
            }
        }
        Outcome::Keep
    }
}

/// What an attempt needs. `None` if the operating system provides no random numbers.
fn fresh(outbox: Option<&Outbox>, random: &mut Random) -> Option<Fresh> {
    let drawn = nonce().and_then(|attempt| Ok((Attempt(attempt), random.word()?)));
    match drawn {
        Ok((attempt, word)) => {
            let nodes = outbox.map(Outbox::nodes);
            let floor = nodes.map_or(Token(0), Nodes::floor);
            let (jumped_at, proposal) = (nodes.and_then(Nodes::jumped_at), nodes.and_then(Nodes::proposal));
            Some(Fresh { attempt, entropy: Entropy(word), floor, jumped_at, proposal })
        }
        Err(error) => {
            tracing::error!(%error, "cannot start an attempt: the operating system provides no random numbers");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of the process, or a reader of its memory, does not know the attempts to come.
    #[test]
    fn attempt_ids_do_not_depend_on_what_is_in_memory() {
        let mut random = Random::new();
        random.word().unwrap();
        assert_eq!(random.clone().word().unwrap(), random.clone().word().unwrap(), "numbers are in memory");
        let attempt = || fresh(None, &mut random.clone()).unwrap().attempt;
        assert_ne!(attempt(), attempt());
    }
}
