//! What happens to the world when one thing happens.

use redislease_core::backoff::Entropy;
use redislease_core::check::reference::Call;
use redislease_core::invariants::tokens_grow;
use redislease_core::lease::{Effect, Input, Publication, Renewal, Round, Standing, TermId, Want};
use redislease_core::op::{Op, Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};

use crate::interned::Interned;
use crate::machine::{Order, Stimulus, react};
use crate::site::{self, Change, Ghost, Request};
use crate::world::{Flaw, NODES, NOW, Process, Setup, World, Write, attempt, holder, index};

/// A world on its way to the next.
pub struct Step<'a> {
    pub setup: &'a Setup,
    pub world: World,
}

impl Step<'_> {
    /// One millisecond passes; every machine acts on what is due by now.
    pub fn tick(&mut self) {
        for node in 0..NODES {
            self.change(node, Change::Tick { keys_age: !self.setup.vanish });
        }
        for tale in &mut self.world.tales {
            tale.believed_until = (tale.believed_until - Millis(1)).max(NOW);
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
            let place = self.world.sites[node].wire.iter().position(|request| request.give_up_at <= NOW)?;
            Some((node, place))
        })
    }

    fn change(&mut self, node: usize, change: Change) -> Option<Vote> {
        let (site, vote) = site::change(self.world.sites[node], change);
        self.world.sites[node] = site;
        vote
    }

    /// Runs one script on one node.
    fn execute(&mut self, node: usize, call: Call<u8>) -> Vote {
        let of = index(call.op.attempt());
        let (acquires, releases) = (matches!(call.op, Op::Acquire { .. }), matches!(call.op, Op::Release { .. }));
        let before = self.world.sites[node];
        let vote = self.change(node, Change::Execute(call)).unwrap();
        let after = self.world.sites[node];
        if acquires && self.world.tales[of].token.is_some() && after.server.fence > before.server.fence {
            self.world.joins = self.world.joins.saturating_sub(1);
        }
        if releases && after.values(attempt(1 - of)).count() < before.values(attempt(1 - of)).count() {
            self.world.flaw = Some(Flaw::Foreign);
        }
        vote
    }

    fn answer(&mut self, node: usize, request: &Request, vote: Vote) {
        let node = Node(u8::try_from(node).unwrap());
        self.feed(request.process, Input::Vote { round: request.round, node, vote });
    }

    /// The request is executed and answered.
    pub fn deliver(&mut self, node: usize, place: usize) {
        let request = self.world.sites[node].wire[place].clone();
        self.change(node, Change::Answered(place));
        let vote = self.execute(node, request.call.clone());
        self.answer(node, &request, vote);
    }

    /// The request is executed, and the answer is lost.
    pub fn mute(&mut self, node: usize, place: usize) {
        let call = self.world.sites[node].wire[place].call.clone();
        self.change(node, Change::Done(place));
        self.execute(node, call);
    }

    /// The sender is told that the request failed; it may be executed all the same, and later.
    pub fn fail(&mut self, node: usize, place: usize) {
        let request = self.world.sites[node].wire[place].clone();
        self.change(node, Change::Failed(place));
        self.answer(node, &request, Vote::Unknown);
    }

    /// A request that nobody waits for is executed.
    pub fn ghost(&mut self, node: usize, place: usize) {
        let call = match self.world.sites[node].ghosts[place].clone() {
            Ghost::Acquire(call) => {
                self.change(node, Change::Gone(place));
                call
            }
            Ghost::Confirm(call, ..) => call,
        };
        self.execute(node, call);
    }

    pub fn vanish(&mut self, node: usize, key: u8) {
        self.change(node, Change::Vanished(key));
    }

    /// An extension, a seal or a release that is about is executed.
    pub fn stray(&mut self, node: usize, op: Op) {
        self.execute(node, self.setup.call(op, Time(u64::MAX)));
    }

    pub fn want(&mut self, process: usize, of: usize) {
        let other = self.world.tales[1 - of].token.is_some();
        let tale = &mut self.world.tales[of];
        (tale.begun, tale.second) = (true, other);
        let floor = Token(self.setup.history);
        let want = Want { holder: holder(of), attempt: attempt(of), floor, entropy: Entropy(0) };
        self.feed(process, Input::Want(want));
    }

    pub fn adopt(&mut self, process: usize, of: usize) {
        if let Some(term) = self.world.term(of) {
            self.feed(process, Input::Adopt(term));
        }
    }

    pub fn crash(&mut self, process: usize) {
        self.world.crashes -= 1;
        self.vanish_process(process);
    }

    /// The machine is lost; its requests and its status write may still happen.
    fn vanish_process(&mut self, process: usize) {
        let lease = Interned::new(self.setup.machine());
        self.world.processes[process] = Process { lease, across: false, barred: false, before_word: false };
        for node in 0..NODES {
            self.change(node, Change::Crashed(process));
        }
        self.settle_writes();
    }

    /// The status write is carried out if its token is greater, and answered if somebody waits for the answer.
    pub fn write(&mut self, of: usize) {
        let current = self.world.status.map_or(Some(Token(self.setup.history)), |named| self.world.tales[named].token);
        let accepted = self.world.status == Some(of) || self.world.tales[of].token > current;
        let tale = &mut self.world.tales[of];
        let before = tale.write;
        tale.write = if accepted { Write::Done } else { Write::Refused };
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
            self.world.tales[of].write = Write::Adrift;
        }
        self.feed(process, Input::Published { attempt: attempt(of), outcome });
    }

    /// The holder has stopped and says so; it may be started again.
    pub fn word(&mut self, process: usize, of: usize) {
        self.world.tales[of].stopped = true;
        self.world.tales[of].believed_until = NOW;
        for process in 0..2 {
            let same = self.runs(process, of);
            self.world.processes[process].before_word |= same;
        }
        self.end(process, of, true);
    }

    pub fn death(&mut self, of: usize) {
        let tale = &mut self.world.tales[of];
        (tale.dead, tale.stopped, tale.believed_until) = (true, true, NOW);
    }

    pub fn end(&mut self, process: usize, of: usize, proof: bool) {
        if let Some(term) = self.world.term(of) {
            self.feed(process, Input::End { term, proof });
        }
    }

    fn runs(&self, process: usize, of: usize) -> bool {
        self.world.standing(process).term().is_some_and(|term| index(term.id.attempt) == of)
    }

    fn feed(&mut self, process: usize, input: Input) {
        self.give(process, Stimulus::Input(input));
    }

    /// Stimulates one machine and carries out what it asks for.
    fn give(&mut self, process: usize, stimulus: Stimulus) {
        let reaction = react(self.world.processes[process].lease, stimulus);
        self.world.processes[process].lease = reaction.lease;
        for node in 0..NODES {
            let renumbered = |request: &Request| {
                request.process == process && reaction.rounds.of(request.round) != Some(request.round)
            };
            if self.world.sites[node].wire.iter().any(renumbered) {
                self.change(node, Change::Renumbered(process, reaction.rounds.clone()));
            }
        }
        for order in &reaction.orders {
            self.carry_out(process, order);
        }
        let running = reaction.lease.view().standing.term().is_some();
        let state = &mut self.world.processes[process];
        state.across &= running;
        state.barred &= running;
        state.before_word &= running;
        if let Some(ending) = reaction.lease.view().ending.as_ref().filter(|ending| ending.sealed) {
            self.world.tales[index(ending.id.attempt)].barred = true;
        }
        self.settle_writes();
        if self.setup.vanish {
            self.retire();
        }
    }

    /// Where keys vanish on their own, two machines have said all they have to say: one that ends its term, and one
    /// whose term has the greater token. Whether the other is continued across it does not depend on them.
    fn retire(&mut self) {
        let [a, b] = self.world.tales.map(|tale| tale.token);
        let last = usize::from(b > a);
        for process in 0..2 {
            let ends = self.world.processes[process].lease.view().ending.is_some();
            let completed = self.world.standing(process).term().is_some();
            let superseding = a.is_some() && b.is_some() && self.runs(process, last);
            if ends || superseding || completed && self.setup.tokens_only {
                self.vanish_process(process);
            }
        }
    }

    fn carry_out(&mut self, process: usize, order: &Order) {
        match order {
            Order::Release(attempt, stages) => {
                let released = &mut self.world.tales[index(*attempt)].released;
                if released.is_none_or(|known| known.letters().len() < stages.letters().len()) {
                    *released = Some(*stages);
                }
            }
            Order::Send { round, node, op } => self.send(process, *round, *node, op),
            Order::Effect(Effect::Publish(id)) => {
                self.completed(id);
                self.believe(process, index(id.attempt));
                self.world.tales[index(id.attempt)].write = Write::Sent(process);
            }
            Order::Effect(Effect::Renewed(renewal)) => self.renewed(process, *renewal),
            Order::Effect(_) => {}
        }
    }

    fn send(&mut self, process: usize, round: Option<Round>, node: usize, op: &Op) {
        let of = index(op.attempt());
        let tale = &mut self.world.tales[of];
        if let Op::Extend { token, .. } = op {
            tale.extended = true;
            let barred = tale.barred;
            let across = self.world.tales[1 - of].token.is_some_and(|other| other > *token);
            let state = &mut self.world.processes[process];
            (state.across, state.barred, state.before_word) = (across, barred, false);
        } else if let Op::Seal { .. } = op {
            tale.sealed = true;
        }
        let give_up_at = NOW + Millis(self.setup.command_timeout);
        let latest = if self.setup.late_guard { give_up_at } else { Time(u64::MAX) };
        let call = self.setup.call(op.clone(), latest);
        let heard = round.is_some();
        let done = self.world.is_join_too_many(&call);
        let request = Request { process, round: round.unwrap_or_default(), give_up_at, call, done };
        self.change(node, Change::Sent(request.clone()));
        if !heard {
            let place = self.world.sites[node].wire.iter().position(|other| *other == request).unwrap();
            self.change(node, Change::Failed(place));
        }
    }

    fn renewed(&mut self, process: usize, renewal: Renewal) {
        let state = &mut self.world.processes[process];
        let (across, barred, before_word) = (state.across, state.barred, state.before_word);
        (state.across, state.barred, state.before_word) = (false, false, false);
        if !matches!(renewal, Renewal::Success { .. }) {
            return;
        }
        if across {
            self.world.flaw = Some(Flaw::Bridged);
        } else if barred {
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
        let tale = &mut self.world.tales[of];
        if let Some(until) = until.filter(|_| !tale.dead) {
            tale.believed_until = tale.believed_until.max(until);
        }
    }

    fn completed(&mut self, id: &TermId) {
        let of = index(id.attempt);
        let other = self.world.tales[1 - of].token;
        let tale = &mut self.world.tales[of];
        if tale.token.is_some() {
            return;
        }
        let history = Some(Token(self.setup.history)).filter(|token| token.0 > 0);
        let before = if tale.second { other.max(history) } else { history };
        self.world.flaw = tokens_grow(id.token, other, before).err().map(Flaw::Invariant).or(self.world.flaw);
        (tale.token, tale.second) = (Some(id.token), false);
    }

    /// A write whose sender does not wait for it any more is adrift.
    fn settle_writes(&mut self) {
        for of in 0..2 {
            if let Write::Sent(process) = self.world.tales[of].write {
                let waits = matches!(self.world.standing(process), Standing::Publishing(_)) && self.runs(process, of);
                if !waits {
                    self.world.tales[of].write = Write::Adrift;
                }
            }
        }
    }
}
