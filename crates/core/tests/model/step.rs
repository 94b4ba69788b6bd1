//! The transitions: what one action does to the world.

use redislease_core::backoff::Entropy;
use redislease_core::check::reference::Call;
use redislease_core::invariants::tokens_grow;
use redislease_core::lease::{Command, Effect, Fresh, Input, Publication, Renewal, Round, Standing, TermId};
use redislease_core::op::{Op, Token, Vote};
use redislease_core::time::{Millis, Time};

use crate::interned::Interned;
use crate::machine::{Order, Stimulus, react};
use crate::node::NOW;
use crate::node::{self, Change, Late, Request};
use crate::world::{Flaw, NODES, Setup, World, Write, attempt, holder, index};
use std::sync::LazyLock;

static UNKNOWN: LazyLock<Interned<Vote>> = LazyLock::new(|| Interned::new(Vote::Unknown));

/// A state on its way to the next.
pub struct Step<'a> {
    pub setup: &'a Setup,
    pub world: World,
}

impl Step<'_> {
    /// One millisecond passes. Every machine acts on what is due by now.
    pub fn tick(&mut self) {
        for node in 0..NODES {
            self.change(node, Change::Tick { keys_age: !self.setup.vanish });
        }
        for facts in &mut self.world.attempts {
            facts.believed_until = (facts.believed_until - Millis(1)).max(NOW);
        }
        for process in 0..2 {
            self.give(process, Stimulus::Tick);
        }
        while let Some((node, place)) = self.overdue() {
            self.fail(node, place);
        }
    }

    fn overdue(&self) -> Option<(usize, usize)> {
        (0..NODES).find_map(|node| {
            let place = self.world.nodes[node].requests.iter().position(|request| request.give_up_at <= NOW)?;
            Some((node, place))
        })
    }

    pub fn change(&mut self, node: usize, change: Change) -> Option<Interned<Vote>> {
        let (after, vote) = node::change(self.world.nodes[node], change);
        self.world.nodes[node] = after;
        vote
    }

    /// Runs one script on one node.
    fn execute(&mut self, node: usize, call: Interned<Call<u8>>) -> Interned<Vote> {
        let of = index(call.op.attempt());
        let before = self.world.nodes[node];
        let vote = self.change(node, Change::Execute(call)).unwrap();
        let after = self.world.nodes[node];
        match call.op {
            Op::Acquire { .. }
                if self.world.attempts[of].token.is_some() && after.server.fence > before.server.fence =>
            {
                self.world.joins = self.world.joins.saturating_sub(1);
            }
            Op::Release { .. } if after.values(attempt(1 - of)).count() < before.values(attempt(1 - of)).count() => {
                self.world.flaw = Some(Flaw::Foreign);
            }
            _ => {}
        }
        vote
    }

    fn answer(&mut self, node: usize, request: &Request, vote: Interned<Vote>) {
        self.give(request.process, Stimulus::Vote(request.round, node, vote));
    }

    /// The request is executed and answered.
    pub fn deliver(&mut self, node: usize, place: usize) {
        let request = self.world.nodes[node].requests[place];
        self.change(node, Change::Answered(place));
        let vote = self.execute(node, request.call);
        self.answer(node, &request, vote);
    }

    /// The request is executed, and the answer is lost.
    pub fn lose_answer(&mut self, node: usize, place: usize) {
        let call = self.world.nodes[node].requests[place].call;
        self.change(node, Change::Done(place));
        self.execute(node, call);
    }

    /// The sender is told that the request failed. The request may still be executed.
    pub fn fail(&mut self, node: usize, place: usize) {
        let request = self.world.nodes[node].requests[place];
        self.change(node, Change::Failed(place));
        self.answer(node, &request, *UNKNOWN);
    }

    /// A late request is executed.
    pub fn execute_late(&mut self, node: usize, place: usize) {
        let late = self.world.nodes[node].late[place];
        if let Late::Acquire(_) = late {
            self.change(node, Change::Gone(place));
        }
        self.execute(node, late.call());
    }

    /// An extension, a seal or a release that was sent at some time is executed.
    pub fn execute_again(&mut self, node: usize, op: Op) {
        self.execute(node, Interned::new(self.setup.call(op, Time(u64::MAX))));
    }

    pub fn want(&mut self, process: usize, of: usize) {
        let other = self.world.attempts[1 - of].token.is_some();
        let facts = &mut self.world.attempts[of];
        (facts.begun, facts.second) = (true, other);
        let (floor, proposal) = (Token(self.setup.history), self.setup.proposals[of]);
        let fresh = Fresh { attempt: attempt(of), floor, entropy: Entropy(0), jumped_at: None, proposal };
        self.feed(process, Input::Command(Command::Want(holder(of)), Some(fresh)));
    }

    pub fn node_returned(&mut self, process: usize) {
        self.world.returns -= 1;
        self.feed(process, Input::NodeReturned { ask_by: NOW });
    }

    pub fn configure(&mut self) {
        self.world.configured = true;
        self.feed(0, Command::Configure(Box::new(self.setup.new_config())));
    }

    pub fn adopt(&mut self, process: usize, of: usize) {
        if let Some(term) = self.world.term(of) {
            self.feed(process, Command::Adopt(term));
        }
    }

    pub fn crash(&mut self, process: usize) {
        self.world.crashes -= 1;
        self.lose_process(process);
    }

    /// The machine is lost. Its requests and its status write may still happen.
    fn lose_process(&mut self, process: usize) {
        self.world.processes[process] = self.setup.process();
        for node in 0..NODES {
            self.change(node, Change::Crashed(process));
        }
        self.settle_writes();
    }

    /// The status write is carried out if its token is greater, and answered if a process waits for the answer.
    pub fn write(&mut self, of: usize) {
        let history = Some(Token(self.setup.history));
        let current = self.world.status.map_or(history, |named| self.world.attempts[named].token);
        let accepted = self.world.status == Some(of) || self.world.attempts[of].token > current;
        let facts = &mut self.world.attempts[of];
        let before = facts.write;
        facts.write = if accepted { Write::Done } else { Write::Refused };
        if accepted {
            self.world.status = Some(of);
        }
        if let Write::Sent(process) = before {
            let outcome = if accepted { Publication::Written } else { Publication::Superseded };
            self.published(process, of, outcome);
        }
    }

    pub fn published(&mut self, process: usize, of: usize, outcome: Publication) {
        if outcome == Publication::Unknown {
            self.world.attempts[of].write = Write::Adrift;
        }
        self.feed(process, Command::Published { attempt: attempt(of), outcome });
    }

    /// The holder has stopped and says so. It may be started again.
    pub fn word(&mut self, process: usize, of: usize) {
        self.world.attempts[of].stopped = true;
        self.world.attempts[of].believed_until = NOW;
        for process in 0..2 {
            let same = self.runs(process, of);
            self.world.processes[process].before_word |= same;
        }
        self.end(process, of, true);
    }

    pub fn death(&mut self, of: usize) {
        let facts = &mut self.world.attempts[of];
        (facts.dead, facts.stopped, facts.believed_until) = (true, true, NOW);
    }

    pub fn end(&mut self, process: usize, of: usize, proof: bool) {
        if let Some(term) = self.world.term(of) {
            self.feed(process, Command::End { term, proof });
        }
    }

    fn runs(&self, process: usize, of: usize) -> bool {
        self.world.standing(process).term().is_some_and(|term| index(term.id.attempt) == of)
    }

    pub fn feed(&mut self, process: usize, input: impl Into<Input>) {
        self.give(process, Stimulus::Input(input.into()));
    }

    /// Stimulates one machine and carries out its effects.
    fn give(&mut self, process: usize, stimulus: Stimulus) {
        let held = matches!(self.world.standing(process), Standing::Held(_));
        let reaction = react(self.world.processes[process].lease, stimulus);
        self.world.processes[process].lease = reaction.lease;
        for node in 0..NODES {
            let renumbered = |request: &Request| {
                request.process == process && reaction.rounds.of(request.round) != Some(request.round)
            };
            if self.world.nodes[node].requests.iter().any(renumbered) {
                self.change(node, Change::Renumbered(process, reaction.rounds));
            }
        }
        for order in &reaction.orders {
            self.carry_out(process, order);
        }
        let standing = &reaction.lease.view().standing;
        let running = standing.term().is_some();
        let state = &mut self.world.processes[process];
        state.across &= running;
        state.after_seal &= running;
        state.before_word &= running;
        state.unconfirmed = running && (state.unconfirmed || held && matches!(standing, Standing::Adopting(_)));
        if let Some(ending) = reaction.lease.view().ending.as_ref().filter(|ending| ending.sealed) {
            self.world.attempts[index(ending.id.attempt)].sealed_once = true;
        }
        self.settle_writes();
        if self.setup.vanish {
            self.retire();
        }
    }

    /// Where keys may vanish, two machines matter no more: one that ends its term, and one whose term has the greater
    /// token. Whether the other term is continued across it does not depend on them.
    fn retire(&mut self) {
        let [a, b] = self.world.attempts.map(|facts| facts.token);
        let last = usize::from(b > a);
        for process in 0..2 {
            let ends = self.world.processes[process].lease.view().ending.is_some();
            let completed = self.world.standing(process).term().is_some();
            let superseding = a.is_some() && b.is_some() && self.runs(process, last);
            if ends || superseding || completed && self.setup.tokens_only {
                self.lose_process(process);
            }
        }
    }

    fn carry_out(&mut self, process: usize, order: &Order) {
        match order {
            Order::Release(attempt, stages) => {
                let released = &mut self.world.attempts[index(*attempt)].released;
                if released.is_none_or(|known| known.letters().len() < stages.letters().len()) {
                    *released = Some(*stages);
                }
            }
            Order::Send { round, node, op } => self.send(process, *round, *node, op),
            Order::Effect(Effect::Publish(id)) => {
                self.completed(id);
                self.believe(process, index(id.attempt));
                self.world.attempts[index(id.attempt)].write = Write::Sent(process);
            }
            Order::Effect(Effect::Renewed(renewal)) => self.renewed(process, *renewal),
            Order::Effect(_) => {}
        }
    }

    fn send(&mut self, process: usize, round: Option<Round>, node: usize, op: &Op) {
        let of = index(op.attempt());
        let facts = &mut self.world.attempts[of];
        if let Op::Extend { token, ttl, .. } = op {
            facts.extended[usize::from(ttl.0 != self.setup.ttl)] = true;
            let after_seal = facts.sealed_once;
            let across = self.world.attempts[1 - of].token.is_some_and(|other| other > *token);
            let state = &mut self.world.processes[process];
            (state.across, state.after_seal, state.before_word) = (across, after_seal, false);
        } else if let Op::Seal { .. } = op {
            facts.sealed = true;
        }
        let give_up_at = NOW + Millis(self.setup.command_timeout);
        let latest = if self.setup.late_guard { give_up_at } else { Time(u64::MAX) };
        let call = Interned::new(self.setup.call(op.clone(), latest));
        let heard = round.is_some();
        let done = self.world.is_join_too_many(&call);
        let request = Request { process, round: round.unwrap_or_default(), give_up_at, call, done };
        self.change(node, Change::Sent(request));
        if !heard {
            let place = self.world.nodes[node].requests.iter().position(|other| *other == request).unwrap();
            self.change(node, Change::Failed(place));
        }
    }

    fn renewed(&mut self, process: usize, renewal: Renewal) {
        let state = &mut self.world.processes[process];
        let (across, after_seal, before_word) = (state.across, state.after_seal, state.before_word);
        (state.across, state.after_seal, state.before_word) = (false, false, false);
        if !matches!(renewal, Renewal::Success { .. }) {
            return;
        }
        if across {
            self.world.flaw = Some(Flaw::Bridged);
        } else if after_seal {
            self.world.flaw = Some(Flaw::Unsealed);
        }
        let term = self.world.standing(process).term().map(|term| index(term.id.attempt));
        if let Some(of) = term.filter(|_| !before_word) {
            self.believe(process, of);
        }
    }

    /// The holder learns that it holds, and until when.
    fn believe(&mut self, process: usize, of: usize) {
        let until = self.world.standing(process).term().and_then(|term| term.valid_until);
        let facts = &mut self.world.attempts[of];
        if let Some(until) = until.filter(|_| !facts.dead) {
            facts.believed_until = facts.believed_until.max(until);
        }
    }

    fn completed(&mut self, id: &TermId) {
        let of = index(id.attempt);
        let other = self.world.attempts[1 - of].token;
        let facts = &mut self.world.attempts[of];
        if facts.token.is_some() {
            return;
        }
        let history = Some(Token(self.setup.history)).filter(|token| token.0 > 0);
        let before = if facts.second { other.max(history) } else { history };
        self.world.flaw = tokens_grow(id.token, other, before).err().map(Flaw::Invariant).or(self.world.flaw);
        (facts.token, facts.second) = (Some(id.token), false);
    }

    /// A write is adrift when its sender does not wait for it any more.
    fn settle_writes(&mut self) {
        for of in 0..2 {
            if let Write::Sent(process) = self.world.attempts[of].write {
                let waits = matches!(self.world.standing(process), Standing::Publishing(_)) && self.runs(process, of);
                if !waits {
                    self.world.attempts[of].write = Write::Adrift;
                }
            }
        }
    }
}
