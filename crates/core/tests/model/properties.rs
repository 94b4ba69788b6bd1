//! What must hold in every state of the lease model, and what must be seen in some state.

use redislease_core::invariants::{self, Claim, Violation};
use redislease_core::lease::Standing;
use redislease_core::op::{Stage, Stored};
use redislease_core::time::{Drift, Millis};
use redislease_core::{lease::TermView, quorum::Quorum};
use stateright::Property;

use crate::node::NOW;
use crate::world::{Flaw, Setup, World, Write, attempt, index};

impl Setup {
    pub fn all_properties(&self) -> Vec<Property<Self>> {
        let sound = Property::always("sound", |setup: &Self, world: &World| setup.violation(world).is_none());
        if self.mutant.is_some() {
            return vec![sound];
        }
        let mut all: Vec<Property<Self>> = vec![sound];
        let mut sometimes = |wanted: bool, name, condition: fn(&Self, &World) -> bool| {
            all.extend(wanted.then(|| Property::sometimes(name, condition)));
        };
        sometimes(self.contend, "both terms complete", |_, world| {
            world.attempts.iter().all(|facts| facts.token.is_some())
        });
        sometimes(!self.tokens_only, "a term has its third node", |_, world| has_every_node(world));
        sometimes(
            self.contend && self.two_processes_know_a_term(),
            "a round of extension begins after a later term",
            |_, world| world.processes.iter().any(|process| process.across),
        );
        sometimes(
            self.adopt,
            "an adopted term is confirmed",
            |_, world| matches!(world.standing(1), Standing::Held(term) if index(term.id.attempt) == 0),
        );
        sometimes(self.crashes > 0 && self.adopt, "a restarted process confirms its term again", |setup, world| {
            world.crashes < setup.crashes && matches!(world.standing(0), Standing::Held(_))
        });
        sometimes(self.joins > 0, "a join is confirmed", |setup, world| {
            world.joins < setup.joins && has_every_node(world)
        });
        sometimes(self.returns > 0, "a node that votes again is joined", |setup, world| {
            world.returns < setup.returns && world.joins < setup.joins && has_every_node(world)
        });
        sometimes(self.end.is_some(), "a seal is effective", |_, world| sealed(world, 0) || sealed(world, 1));
        sometimes(self.end.is_some() && self.contend, "a term follows the holder's word", |_, world| {
            world.attempts[0].stopped && world.attempts[1].token.is_some()
        });
        sometimes(self.death, "a term follows the proof of death", |_, world| {
            world.attempts[0].dead && world.attempts[1].token.is_some()
        });
        sometimes(self.unanswered, "a write that was not answered is carried out", |_, world| {
            world.attempts[0].write == Write::Done && matches!(world.standing(0), Standing::Publishing(_))
        });
        sometimes(self.unconfirm, "a term that became unconfirmed is held again", |_, world| {
            world.processes[0].unconfirmed && matches!(world.standing(0), Standing::Held(_))
        });
        sometimes(self.new_ttl > 0, "a term is held under the new duration", |_, world| {
            world.configured && matches!(world.standing(0), Standing::Held(_)) && world.attempts[0].extended[1]
        });
        all
    }

    /// A machine may continue a term that is over for others.
    fn two_processes_know_a_term(&self) -> bool {
        let other = self.adopt || self.crashes > 0 || self.death || self.end == Some(1);
        other || self.vanish && !self.tokens_only
    }

    /// The rule that is broken in this state.
    pub fn violation(&self, world: &World) -> Option<Flaw> {
        let two_holders = || one_holder(world).err().filter(|_| !self.vanish);
        let machine = |process| self.machine_violation(world, process).err();
        let broken = || two_holders().or_else(|| (0..2).find_map(machine));
        world.flaw.or_else(|| broken().map(Flaw::Invariant))
    }

    fn machine_violation(&self, world: &World, process: usize) -> Result<(), Violation> {
        if self.overlaps_only {
            return Ok(());
        }
        let lease = &world.processes[process].lease;
        invariants::local(NOW, lease.view())?;
        let Some(TermView { id, valid_until: Some(until), .. }) = lease.view().standing.term() else { return Ok(()) };
        let of = index(id.attempt);
        // On proof that the holder stopped another process may release the keys.
        if self.vanish || world.attempts[of].stopped {
            return Ok(());
        }
        let lives = world.nodes.iter().filter_map(|node| node.life(id.attempt, self.keys[of]));
        let drift = Drift::NONE;
        invariants::belief_within_keys(Quorum::of(3).unwrap(), drift, NOW, *until, lives)
    }
}

/// I1. A holder that was told believes until the instant that it was told; a process that shows a term as held believes.
fn one_holder(world: &World) -> Result<(), Violation> {
    let live = |of: usize| {
        let facts = &world.attempts[of];
        let shown = (0..2).any(|process| match world.standing(process) {
            Standing::Publishing(term) | Standing::Held(term) => index(term.id.attempt) == of,
            _ => false,
        });
        facts.believed_until > NOW || shown && !facts.stopped
    };
    if !live(0) || !live(1) {
        return Ok(());
    }
    let claim = |of: usize| {
        let token = world.attempts[of].token.unwrap_or_default();
        Claim { attempt: attempt(of), token, from: NOW, until: NOW + Millis(1) }
    };
    invariants::one_holder(&[claim(0), claim(1)])
}

fn has_every_node(world: &World) -> bool {
    (0..2).any(|of| {
        let confirmed = |value: &Stored| value.attempt == attempt(of) && value.stage == Stage::Term;
        world.nodes.iter().all(|node| node.server.keys.values().any(|entry| confirmed(&entry.value)))
    })
}

fn sealed(world: &World, of: usize) -> bool {
    world.processes.iter().any(|process| {
        let ending = process.lease.view().ending.as_ref();
        ending.is_some_and(|ending| ending.sealed && index(ending.id.attempt) == of)
    })
}
