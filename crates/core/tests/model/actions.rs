//! The lease model: what can happen next in a state.

use redislease_core::check::Mutant;
use redislease_core::lease::{Command, Publication, Standing, View};
use redislease_core::op::{Op, Stage};
use redislease_core::time::Millis;
use stateright::{Model, Property};

use crate::node::{Change, Late, NOW, Node};
use crate::step::Step;
use crate::world::{NODES, Process, Setup, World, Write, attempt, index};

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Tick,
    Want { process: usize, of: usize },
    Deliver { node: usize, place: usize },
    LoseAnswer { node: usize, place: usize },
    Fail { node: usize, place: usize },
    ExecuteLate { node: usize, place: usize },
    Vanish { node: usize, key: u8 },
    ExecuteAgain { node: usize, op: Op },
    Write { of: usize },
    Published { process: usize, of: usize, outcome: Publication },
    // The write of a status that was not stored.
    SendAgain { process: usize, of: usize },
    Adopt { process: usize, of: usize },
    Crash { process: usize },
    Forget { process: usize },
    // A process learns that a node votes again.
    NodeReturned { process: usize },
    // The first process gets its new TTL.
    Configure,
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
            let first = &world.attempts[0];
            let turn = of == 0 || self.contend && first.begun && (first.token.is_some() || !self.in_turn);
            if idle && turn && !world.attempts[of].begun && (process == of || self.one_process) {
                actions.push(Action::Want { process, of });
            }
        }
        for node in 0..NODES {
            self.at_node(world, node, actions);
        }
        for of in 0..2 {
            self.about_term(world, of, actions);
        }
        if world.crashes > 0 && world.processes[0].lease.view() != &View::default() {
            actions.push(Action::Crash { process: 0 });
        }
        if self.forget && matches!(world.standing(0), Standing::Acquiring(..) | Standing::Publishing(_)) {
            actions.push(Action::Forget { process: 0 });
        }
        if world.returns > 0 {
            let concerned = |process: &usize| !matches!(world.standing(*process), Standing::Idle);
            actions.extend((0..2).filter(concerned).map(|process| Action::NodeReturned { process }));
        }
        if self.new_ttl > 0 && !world.configured {
            actions.push(Action::Configure);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut step = Step { setup: self, world: world.clone() };
        match action {
            Action::Tick => step.tick(),
            Action::Want { process, of } => step.want(process, of),
            Action::Deliver { node, place } => step.deliver(node, place),
            Action::LoseAnswer { node, place } => step.lose_answer(node, place),
            Action::Fail { node, place } => step.fail(node, place),
            Action::ExecuteLate { node, place } => step.execute_late(node, place),
            Action::Vanish { node, key } => _ = step.change(node, Change::Vanished(key)),
            Action::ExecuteAgain { node, op } => step.execute_again(node, op),
            Action::Write { of } => step.write(of),
            Action::Published { process, of, outcome } => step.published(process, of, outcome),
            Action::SendAgain { process, of } => step.world.attempts[of].write = Write::Sent(process),
            Action::Adopt { process, of } => step.adopt(process, of),
            Action::Crash { process } => step.crash(process),
            Action::Forget { process } => step.feed(process, Command::Forget),
            Action::NodeReturned { process } => step.node_returned(process),
            Action::Configure => step.configure(),
            Action::End { process, of, proof } => step.end(process, of, proof),
            Action::Word { process, of } => step.word(process, of),
            Action::Death { of } => step.death(of),
        }
        let mut world = step.world;
        world.sort_nodes();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.all_properties()
    }
}

impl Setup {
    fn at_node(&self, world: &World, at: usize, actions: &mut Vec<Action>) {
        let node = &world.nodes[at];
        let requests = node.requests.iter().enumerate();
        for (place, request) in requests.filter(|(_, one)| !one.done && !world.is_join_too_many(&one.call)) {
            actions.push(Action::Deliver { node: at, place });
            if self.lossy && matches!(request.call.op, Op::Acquire { .. }) {
                actions.push(Action::LoseAnswer { node: at, place });
            }
            if self.broken {
                actions.push(Action::Fail { node: at, place });
            }
        }
        for (place, _) in node.late.iter().enumerate().filter(|(_, late)| !world.is_join_too_many(&late.call())) {
            actions.push(Action::ExecuteLate { node: at, place });
        }
        if self.vanish {
            actions.extend(node.server.keys.keys().map(|&key| Action::Vanish { node: at, key }));
            return;
        }
        for of in 0..2 {
            self.again(world, at, of, actions);
        }
    }

    /// Extensions, seals and releases that were sent, as far as they have an effect.
    fn again(&self, world: &World, at: usize, of: usize, actions: &mut Vec<Action>) {
        let (node, facts) = (&world.nodes[at], &world.attempts[of]);
        let values = || node.values(attempt(of));
        for (ttl, _) in self.ttls().into_iter().zip(facts.extended).filter(|(_, sent)| *sent) {
            let Some(token) = facts.token else { continue };
            let lenient = self.mutant.is_some();
            let changes = |ends: u64| ends < NOW.0 + ttl || self.plants(Mutant::ExtendShortens) && ends > NOW.0 + ttl;
            let effect = values().any(|(stage, ends)| (stage == Stage::Term || lenient) && changes(ends));
            if effect || self.plants(Mutant::ExtendSets) && node.server.keys.is_empty() {
                let op = Op::Extend { attempt: attempt(of), token, ttl: Millis(ttl) };
                actions.push(Action::ExecuteAgain { node: at, op });
            }
        }
        if facts.sealed && values().any(|(stage, _)| stage != Stage::Sealed) {
            actions.push(Action::ExecuteAgain { node: at, op: Op::Seal { attempt: attempt(of) } });
        }
        if let Some(stages) = facts.released
            && (values().any(|(stage, _)| stages.holds(stage)) || self.plants(Mutant::ReleaseIgnoresAttempt))
        {
            actions.push(Action::ExecuteAgain { node: at, op: Op::Release { attempt: attempt(of), stages } });
        }
    }

    fn plants(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Nothing is left of the attempt and nothing can bring it back, so nothing can go wrong between the two attempts any
    /// more. What one attempt does alone is explored before the second begins.
    fn is_over(&self, world: &World, of: usize) -> bool {
        let facts = &world.attempts[of];
        let settled = facts.token.is_none() || world.attempts[1 - of].token.is_some();
        let named = world.status == Some(of) || matches!(facts.write, Write::Sent(_) | Write::Adrift);
        let adoptable = named && !self.vanish;
        let believed = facts.believed_until > NOW && !self.vanish;
        if !facts.begun || !settled || adoptable || believed {
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
        let exists = |node: &Node| {
            let late = |late: &Late| late.call().op.attempt() == attempt(of);
            node.values(attempt(of)).next().is_some()
                || node.requests.iter().any(|request| request.call.op.attempt() == attempt(of))
                || node.late.iter().any(late)
        };
        !world.processes.iter().any(known) && !world.nodes.iter().any(|node| exists(node))
    }

    fn about_term(&self, world: &World, of: usize, actions: &mut Vec<Action>) {
        let facts = &world.attempts[of];
        if self.vanish {
            return;
        }
        if let Write::Sent(process) = facts.write {
            actions.push(Action::Write { of });
            if self.unanswered {
                actions.push(Action::Published { process, of, outcome: Publication::Unknown });
            }
        }
        if facts.write == Write::Adrift {
            actions.push(Action::Write { of });
        }
        let named = world.status == Some(of);
        for process in 0..2 {
            let standing = world.standing(process);
            let runs = standing.term().is_some_and(|term| index(term.id.attempt) == of);
            let ending = world.processes[process].lease.view().ending.as_ref();
            let ending = ending.filter(|ending| index(ending.id.attempt) == of);
            if matches!(standing, Standing::Publishing(_)) && runs && !matches!(facts.write, Write::Sent(_)) {
                let newer = world.status.is_some_and(|other| world.attempts[other].token > facts.token);
                actions.push(match (named, newer) {
                    (true, _) => Action::Published { process, of, outcome: Publication::Written },
                    (false, true) => Action::Published { process, of, outcome: Publication::Superseded },
                    (false, false) => Action::SendAgain { process, of },
                });
            }
            let may_adopt = of == 0 && if process == 1 { self.adopt } else { world.crashes < self.crashes };
            if may_adopt && named && *standing == Standing::Idle && ending.is_none() {
                actions.push(Action::Adopt { process, of });
            }
            let may_end = runs || named && *standing == Standing::Idle && ending.is_none();
            if self.end == Some(process) && of == 0 && may_end {
                actions.push(Action::End { process, of, proof: false });
            }
            if facts.dead && (may_end || ending.is_some()) {
                actions.push(Action::End { process, of, proof: true });
            }
            let is_sealed = ending.is_some_and(|ending| ending.sealed || self.plants(Mutant::WordBeforeSeal));
            if self.end.is_some() && is_sealed {
                actions.push(Action::Word { process, of });
            }
        }
        if self.death && of == 0 && !facts.dead && facts.token.is_some() {
            actions.push(Action::Death { of });
        }
    }
}
