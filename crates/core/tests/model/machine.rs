//! One machine of the core, driven by one thing at a time.

use redislease_core::lease::{Effect, Input, Lease, Renumbering, Round};
use redislease_core::op::{Attempt, Op, Stages, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Millis;
use std::rc::Rc;

use crate::interned::{Interned, Memo, Mixer, Part, Pool, remembered};
use crate::world::NOW;
use std::hash::Hasher;

/// What is done to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stimulus {
    Input(Input),
    /// One millisecond passes; the machine is woken if it asked for it.
    Tick,
    /// The nodes are renamed.
    Permute([u8; 3]),
}

/// What comes of it, in the order of the effects.
#[derive(Debug)]
pub struct Reaction {
    pub lease: Interned<Lease>,
    pub rounds: Renumbering,
    pub orders: Vec<Order>,
}

/// An effect that concerns the world.
#[derive(Clone, Debug)]
pub enum Order {
    /// The round is numbered anew, as the machine is; `None` if it does not listen to the answer.
    Send {
        round: Option<Round>,
        node: usize,
        op: Op,
    },
    Release(Attempt, Stages),
    Effect(Effect),
}

static POOL: Pool<Lease> = Pool::new();

type Key = (Interned<Lease>, Stimulus);

thread_local! {
    static REACTIONS: Memo<Key, Rc<Reaction>> = Memo::default();
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

pub fn react(lease: Interned<Lease>, stimulus: Stimulus) -> Rc<Reaction> {
    remembered(&REACTIONS, (lease, stimulus), |(lease, stimulus)| {
        Rc::new(Driver { lease: (**lease).clone(), orders: Vec::new() }.react(stimulus))
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
            Stimulus::Tick => {
                now += Millis(1);
                if self.lease.next_deadline().is_some_and(|deadline| deadline <= now) {
                    self.handle(now, Input::Wake);
                }
            }
            Stimulus::Permute(order) => self.lease.permute(&order.map(Node)),
        }
        // When to try again is not what is checked here.
        if self.lease.view().retry_at.is_some_and(|at| at > now) {
            self.handle(now, Input::TryNow);
        }
        let rounds = self.lease.rebase(now, NOW);
        for order in &mut self.orders {
            if let Order::Send { round, .. } = order {
                *round = round.and_then(|round| rounds.of(round));
            }
        }
        Reaction { lease: Interned::new(self.lease), rounds, orders: self.orders }
    }

    fn handle(&mut self, now: redislease_core::time::Time, input: Input) {
        self.lease.handle(now, input);
        while let Some(effect) = self.lease.poll_effect() {
            match effect {
                // Answered as by a node with nothing to delete; from now on the deletion is about, at any time.
                Effect::Send { round, node, op: Op::Release { attempt, stages }, .. } => {
                    self.orders.push(Order::Release(attempt, stages));
                    self.lease.handle(now, Input::Vote { round, node, vote: Vote::Released(0) });
                }
                Effect::Send { round, node, op, .. } => {
                    self.orders.push(Order::Send { round: Some(round), node: node.index(), op });
                }
                effect @ (Effect::Publish(_) | Effect::Renewed(_)) => self.orders.push(Order::Effect(effect)),
                Effect::Changed(_) => {}
            }
        }
    }
}
