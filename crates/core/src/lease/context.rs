//! What the parts of a lease machine share: the configuration, what the driver has set, the round numbers and the effects.

use alloc::collections::VecDeque;

use crate::lease::config::Config;
use crate::lease::event::{Effect, Round};
use crate::op::Op;
use crate::quorum::Node;
use crate::rules::Rules;
use crate::time::{Millis, Time};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Context {
    pub config: Config,
    pub rules: Rules,
    /// Earliest start of the next attempt or round, by the driver: see [`Lease::hold`](super::Lease::hold).
    pub held_until: Time,
    /// See [`Lease::delay_joins`](super::Lease::delay_joins).
    pub join_delay: Millis,
    /// See [`Command::KeepKeysFor`](super::Command::KeepKeysFor).
    pub least_life: Millis,
    /// The number of the round that begins next.
    pub next_round: Round,
    /// How many rounds were reads of the keys.
    pub reads: u32,
    pub effects: VecDeque<Effect>,
}

impl Context {
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            rules: Rules::NONE,
            held_until: Time(0),
            join_delay: Millis::ZERO,
            least_life: Millis::ZERO,
            next_round: Round(0),
            reads: 0,
            effects: VecDeque::new(),
        }
    }

    pub const fn new_round(&mut self) -> Round {
        let round = self.next_round;
        self.next_round = Round(round.0.wrapping_add(1));
        round
    }

    /// Sends a request that a node executes within one command timeout, or not at all.
    pub fn send(&mut self, now: Time, round: Round, node: Node, op: Op) {
        let give_up_at = now + self.config.command_timeout;
        self.effects.push_back(Effect::Send { round, node, op, give_up_at });
    }

    /// How long a term is valid after the start of a successful round with this TTL.
    pub fn validity(&self, ttl: Millis) -> Millis {
        if breaks!(self.rules, NoDriftMargin) { ttl } else { self.config.drift.least(ttl) }
    }

    /// TTL of the keys that an acquire sets.
    pub fn life(&self) -> Millis {
        self.config.ttl.max(self.least_life)
    }

    /// When the keys have ended that a request with this TTL sets, if it is executed at its deadline.
    pub fn keys_end(&self, now: Time, ttl: Millis) -> Time {
        now + self.config.command_timeout + self.config.drift.most(ttl)
    }
}
