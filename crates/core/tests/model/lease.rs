//! The lease model: every order in which messages, time, crashes and decisions can meet.

use redislease_core::check::Mutant;
use redislease_core::invariants::{self, Claim, Violation};
use redislease_core::lease::{Publication, Standing, View};
use redislease_core::op::{Op, Stage, Stored};
use redislease_core::time::Millis;
use stateright::{Model, Property};

use crate::site::{Ghost, Site};
use crate::step::Step;
use crate::world::{Flaw, NODES, NOW, Process, Setup, World, Write, attempt, index};

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Tick,
    Want { process: usize, of: usize },
    Deliver { node: usize, place: usize },
    Mute { node: usize, place: usize },
    Fail { node: usize, place: usize },
    Ghost { node: usize, place: usize },
    Vanish { node: usize, key: u8 },
    Stray { node: usize, op: Op },
    Write { of: usize },
    Published { process: usize, of: usize, outcome: Publication },
    Adopt { process: usize, of: usize },
    Crash { process: usize },
    End { process: usize, of: usize, proof: bool },
    Word { process: usize, of: usize },
    Death { of: usize },
}

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        self.fences.iter().map(|fences| World::new(self, *fences)).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.flaw.is_some() || (0..2).any(|of| self.is_over(world, of)) {
            return;
        }
        if !self.tokens_only {
            actions.push(Action::Tick);
        }
        for (process, of) in [(0, 0), (1, 1), (0, 1)] {
            let idle = *world.standing(process) == Standing::Idle;
            let first = &world.tales[0];
            let turn = of == 0 || self.rival && first.begun && (first.token.is_some() || !self.in_turn);
            if idle && turn && !world.tales[of].begun && (process == of || self.relay) {
                actions.push(Action::Want { process, of });
            }
        }
        for node in 0..NODES {
            self.at_node(world, node, actions);
        }
        for of in 0..2 {
            self.about_term(world, of, actions);
        }
        for process in 0..1 {
            if world.crashes > 0 && world.processes[process].lease.view() != &View::default() {
                actions.push(Action::Crash { process });
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut step = Step { setup: self, world: world.clone() };
        match action {
            Action::Tick => step.tick(),
            Action::Want { process, of } => step.want(process, of),
            Action::Deliver { node, place } => step.deliver(node, place),
            Action::Mute { node, place } => step.mute(node, place),
            Action::Fail { node, place } => step.fail(node, place),
            Action::Ghost { node, place } => step.ghost(node, place),
            Action::Vanish { node, key } => step.vanish(node, key),
            Action::Stray { node, op } => step.stray(node, op),
            Action::Write { of } => step.write(of),
            Action::Published { process, of, outcome } => step.published(process, of, outcome),
            Action::Adopt { process, of } => step.adopt(process, of),
            Action::Crash { process } => step.crash(process),
            Action::End { process, of, proof } => step.end(process, of, proof),
            Action::Word { process, of } => step.word(process, of),
            Action::Death { of } => step.death(of),
        }
        let mut world = step.world;
        world.sort_nodes();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let sound = Property::always("sound", |setup: &Self, world: &World| setup.violation(world).is_none());
        if self.mutant.is_some() {
            return vec![sound];
        }
        let mut all: Vec<Property<Self>> = vec![sound];
        if self.rival {
            all.push(Property::sometimes("both terms complete", |_, world: &World| {
                world.tales.iter().all(|tale| tale.token.is_some())
            }));
        }
        if !self.tokens_only {
            all.push(Property::sometimes("a term has its third node", |_, world: &World| has_every_node(world)));
        }
        if self.rival && self.two_believe() {
            all.push(Property::sometimes("a round of extension begins after a later term", |_, world: &World| {
                world.processes.iter().any(|process| process.across)
            }));
        }
        if self.adopt {
            all.push(Property::sometimes(
                "an adopted term is confirmed",
                |_, world: &World| matches!(world.standing(1), Standing::Held(term) if index(term.id.attempt) == 0),
            ));
        }
        if self.crashes > 0 && self.adopt {
            all.push(Property::sometimes(
                "a restarted process confirms its term again",
                |setup: &Self, world: &World| {
                    world.crashes < setup.crashes && matches!(world.standing(0), Standing::Held(_))
                },
            ));
        }
        if self.joins > 0 {
            all.push(Property::sometimes("a join is confirmed", |setup: &Self, world: &World| {
                world.joins < setup.joins && has_every_node(world)
            }));
        }
        if self.end.is_some() {
            all.push(Property::sometimes("a seal is effective", |_, world: &World| {
                sealed(world, 0) || sealed(world, 1)
            }));
            if self.rival {
                all.push(Property::sometimes("a term follows the holder's word", |_, world: &World| {
                    world.tales[0].stopped && world.tales[1].token.is_some()
                }));
            }
        }
        if self.death {
            all.push(Property::sometimes("a term follows the proof of death", |_, world: &World| {
                world.tales[0].dead && world.tales[1].token.is_some()
            }));
        }
        if self.unanswered {
            all.push(Property::sometimes("a write that was not answered is carried out", |_, world: &World| {
                world.tales[0].write == Write::Done && matches!(world.standing(0), Standing::Publishing(_))
            }));
        }
        all
    }
}

impl Setup {
    fn at_node(&self, world: &World, node: usize, actions: &mut Vec<Action>) {
        let site = &world.sites[node];
        let possible = |call| !world.is_join_too_many(call);
        let requests = site.wire.iter().enumerate();
        for (place, request) in requests.filter(|(_, request)| !request.done && possible(&request.call)) {
            actions.push(Action::Deliver { node, place });
            if self.lossy && matches!(request.call.op, Op::Acquire { .. }) {
                actions.push(Action::Mute { node, place });
            }
            if self.broken {
                actions.push(Action::Fail { node, place });
            }
        }
        for (place, _) in site.ghosts.iter().enumerate().filter(|(_, ghost)| possible(ghost.call())) {
            actions.push(Action::Ghost { node, place });
        }
        if self.vanish {
            actions.extend(site.server.keys.keys().map(|&key| Action::Vanish { node, key }));
            return;
        }
        for of in 0..2 {
            let tale = &world.tales[of];
            let values = || site.values(attempt(of));
            if tale.extended
                && let Some(token) = tale.token
            {
                let lenient = self.mutant.is_some();
                let longer = values().any(|(stage, ends)| (stage == Stage::Term || lenient) && ends < NOW.0 + self.ttl);
                if longer || self.mutant == Some(Mutant::ExtendSets) && site.server.keys.is_empty() {
                    let op = Op::Extend { attempt: attempt(of), token, ttl: Millis(self.ttl) };
                    actions.push(Action::Stray { node, op });
                }
            }
            if tale.sealed && values().any(|(stage, _)| stage != Stage::Sealed) {
                actions.push(Action::Stray { node, op: Op::Seal { attempt: attempt(of) } });
            }
            if let Some(stages) = tale.released
                && (values().any(|(stage, _)| stages.holds(stage))
                    || self.mutant == Some(Mutant::ReleaseIgnoresAttempt))
            {
                actions.push(Action::Stray { node, op: Op::Release { attempt: attempt(of), stages } });
            }
        }
    }

    /// A machine may go on with a term that is over for others.
    fn two_believe(&self) -> bool {
        let other = self.adopt || self.crashes > 0 || self.death || self.end == Some(1);
        other || self.vanish && !self.tokens_only
    }

    /// The rule that is broken in this state.
    pub fn violation(&self, world: &World) -> Option<Flaw> {
        let machines = || world.processes.iter().map(|process| invariants::lease(&process.lease));
        let two_holders = || one_holder(world).err().filter(|_| !self.vanish);
        let broken = || two_holders().or_else(|| machines().find_map(Result::err));
        world.flaw.or_else(|| broken().map(Flaw::Invariant))
    }

    /// Nothing is left of the attempt and nothing can bring it back, so nothing can go wrong between the two any more:
    /// what one attempt does alone is explored before the second begins.
    fn is_over(&self, world: &World, of: usize) -> bool {
        let tale = &world.tales[of];
        let settled = tale.token.is_none() || world.tales[1 - of].token.is_some();
        let named = world.status == Some(of) || matches!(tale.write, Write::Sent(_) | Write::Adrift);
        let adoptable = named && !self.vanish;
        let believed = tale.believed_until > NOW && !self.vanish;
        if !tale.begun || !settled || adoptable || believed {
            return false;
        }
        let known = |process: &Process| {
            let view = process.lease.view();
            let runs = match &view.standing {
                Standing::Idle => process.lease.next_deadline().is_some(),
                Standing::Acquiring(wanted, _) => *wanted == attempt(of),
                standing => standing.term().is_some_and(|term| term.id.attempt == attempt(of)),
            };
            runs || view.ending.as_ref().is_some_and(|ending| ending.id.attempt == attempt(of))
        };
        let stands = |site: &Site| {
            let ghost = |ghost: &Ghost| ghost.call().op.attempt() == attempt(of);
            site.values(attempt(of)).next().is_some()
                || site.wire.iter().any(|request| request.call.op.attempt() == attempt(of))
                || site.ghosts.iter().any(ghost)
        };
        !world.processes.iter().any(known) && !world.sites.iter().any(|site| stands(site))
    }

    fn about_term(&self, world: &World, of: usize, actions: &mut Vec<Action>) {
        let tale = &world.tales[of];
        if self.vanish {
            return;
        }
        if let Write::Sent(process) = tale.write {
            actions.push(Action::Write { of });
            if self.unanswered {
                actions.push(Action::Published { process, of, outcome: Publication::Unknown });
            }
        }
        if tale.write == Write::Adrift {
            actions.push(Action::Write { of });
        }
        let named = world.status == Some(of);
        for process in 0..2 {
            let standing = world.standing(process);
            let runs = standing.term().is_some_and(|term| index(term.id.attempt) == of);
            let ending = world.processes[process].lease.view().ending.as_ref();
            let ends = ending.is_some_and(|ending| index(ending.id.attempt) == of);
            if matches!(standing, Standing::Publishing(_)) && runs && !matches!(tale.write, Write::Sent(_)) {
                let newer = world.status.is_some_and(|other| world.tales[other].token > tale.token);
                let outcome = match (named, newer) {
                    (true, _) => Publication::Written,
                    (false, true) => Publication::Superseded,
                    (false, false) => Publication::NotWritten,
                };
                actions.push(Action::Published { process, of, outcome });
            }
            let may_adopt = of == 0 && if process == 1 { self.adopt } else { world.crashes < self.crashes };
            if may_adopt && named && *standing == Standing::Idle && !ends {
                actions.push(Action::Adopt { process, of });
            }
            let may_end = runs || named && *standing == Standing::Idle && !ends;
            if self.end == Some(process) && of == 0 && may_end {
                actions.push(Action::End { process, of, proof: false });
            }
            if tale.dead && (may_end || ends) {
                actions.push(Action::End { process, of, proof: true });
            }
            if self.end.is_some() && sealed_by(world, process, of) {
                actions.push(Action::Word { process, of });
            }
        }
        if self.death && of == 0 && !tale.dead && tale.token.is_some() {
            actions.push(Action::Death { of });
        }
    }
}

/// I1. Whoever was told believes until the instant it was told; a process that shows a term as held believes in it.
fn one_holder(world: &World) -> Result<(), Violation> {
    let live = |of: usize| {
        let tale = &world.tales[of];
        let shown = (0..2).any(|process| match world.standing(process) {
            Standing::Publishing(term) | Standing::Held(term) => index(term.id.attempt) == of,
            _ => false,
        });
        tale.believed_until > NOW || shown && !tale.stopped
    };
    let claims = [0, 1].map(|of| {
        let until = if live(of) { NOW + Millis(1) } else { NOW };
        let token = world.tales[of].token.unwrap_or_default();
        Claim { attempt: attempt(of), token, from: NOW.min(until), until }
    });
    let live: Vec<Claim> = claims.into_iter().filter(|claim| claim.from < claim.until).collect();
    invariants::one_holder(&live)
}

fn has_every_node(world: &World) -> bool {
    (0..2).any(|of| {
        let confirmed = |value: &Stored| value.attempt == attempt(of) && value.stage == Stage::Term;
        world.sites.iter().all(|site| site.server.keys.values().any(|entry| confirmed(&entry.value)))
    })
}

fn sealed_by(world: &World, process: usize, of: usize) -> bool {
    let ending = world.processes[process].lease.view().ending.as_ref();
    ending.is_some_and(|ending| ending.sealed && index(ending.id.attempt) == of)
}

fn sealed(world: &World, of: usize) -> bool {
    (0..2).any(|process| sealed_by(world, process, of))
}
