//! One lease machine of the core, driven by one stimulus at a time.

use redislease_core::check::{Mixer, Renumbering};
use redislease_core::lease::{Command, Effect, Input, Lease, Round};
use redislease_core::op::{Attempt, Op, Stages, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};

use crate::interned::{Interned, Memo, Part, Pool, remembered};
use crate::node::NOW;
use std::hash::Hasher;

/// What happens to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stimulus {
    Input(Input),
    /// As [`Input::Vote`].
    Vote(Round, usize, Interned<Vote>),
    /// One millisecond passes. The machine is woken if it asked for it.
    Tick,
    /// The nodes are renamed.
    Permute([u8; 3]),
}

/// The result, with the effects in their order.
#[derive(Debug)]
pub struct Reaction {
    pub lease: Interned<Lease>,
    pub rounds: Interned<Renumbering>,
    pub orders: Vec<Order>,
}

/// An effect that concerns the world.
#[derive(Clone, Debug)]
pub enum Order {
    // The round has its new number. `None` if the answer does not matter to the machine any more.
    Send { round: Option<Round>, node: usize, op: Op },
    Release(Attempt, Stages),
    Effect(Effect),
}

static POOL: Pool<Lease> = Pool::new();

type Key = (Interned<Lease>, Stimulus);

thread_local! {
    static REACTIONS: Memo<Key, &'static Reaction> = Memo::default();
}

impl Part for Lease {
    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn hash_node(&self, node: usize) -> u64 {
        let mut hasher = Mixer::default();
        Self::hash_node(self, Node(u8::try_from(node).unwrap()), &mut hasher);
        hasher.finish()
    }
}

pub fn react(lease: Interned<Lease>, stimulus: Stimulus) -> &'static Reaction {
    remembered(&REACTIONS, (lease, stimulus), |(lease, stimulus)| {
        Box::leak(Box::new(Driver { lease: (**lease).clone(), orders: Vec::new() }.react(stimulus)))
    })
}

struct Driver {
    lease: Lease,
    orders: Vec<Order>,
}

impl Driver {
    fn react(mut self, stimulus: &Stimulus) -> Reaction {
        let mut now = NOW;
        match stimulus {
            Stimulus::Input(input) => self.handle(now, input.clone()),
            Stimulus::Vote(round, node, vote) => {
                let node = Node(u8::try_from(*node).unwrap());
                self.handle(now, Input::Vote { round: *round, node, vote: (**vote).clone() });
            }
            Stimulus::Tick => {
                now += Millis(1);
                if self.lease.next_deadline().is_some_and(|deadline| deadline <= now) {
                    self.handle(now, Input::Wake);
                }
            }
            Stimulus::Permute(order) => self.lease.permute(&order.map(Node)),
        }
        // The delay before the next attempt is not checked here.
        if self.lease.view().retry_at.is_some_and(|at| at > now) {
            self.handle(now, Command::TryNow.into());
        }
        let rounds = self.lease.rebase(now, NOW);
        for order in &mut self.orders {
            if let Order::Send { round, .. } = order {
                *round = round.and_then(|round| rounds.of(round));
            }
        }
        Reaction { lease: Interned::new(self.lease), rounds: Interned::new(rounds), orders: self.orders }
    }

    fn handle(&mut self, now: Time, input: Input) {
        self.lease.handle(now, input);
        while let Some(effect) = self.lease.poll_effect() {
            match effect {
                // It is answered as by a node with nothing to delete. From now on it may be executed at any time.
                Effect::Send { round, node, op: Op::Release { attempt, stages }, .. } => {
                    self.orders.push(Order::Release(attempt, stages));
                    self.lease.handle(now, Input::Vote { round, node, vote: Vote::Released(0) });
                }
                Effect::Send { round, node, op, .. } => {
                    self.orders.push(Order::Send { round: Some(round), node: node.index(), op });
                }
                effect @ (Effect::Publish(_) | Effect::Renewed(_)) => self.orders.push(Order::Effect(effect)),
                Effect::Changed(_) => {}
                Effect::Broken(broken) => panic!("{broken:?}"),
            }
        }
    }
}
