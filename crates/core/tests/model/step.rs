//! What happens to the world when one thing happens.

use redislease_core::invariants::{Violation, tokens_grow};
use redislease_core::lease::{Effect, Input, Lease, Publication, Renewal, Standing, TermId, Want};
use redislease_core::op::{Op, Stages, Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};

use crate::shared::Shared;
use crate::world::{Flaw, Ghost, NODES, NOW, Process, Request, Setup, Tale, World, Write, attempt, holder, index};

/// A world on its way to the next.
pub struct Step<'a> {
    pub setup: &'a Setup,
    pub world: World,
}

impl Step<'_> {
    /// One millisecond passes; every machine acts on what is due by now.
    pub fn tick(&mut self) {
        let earlier = |instant: &mut Time| {
            if instant.0 != u64::MAX {
                *instant = *instant - Millis(1);
            }
        };
        for site in &mut self.world.sites {
            site.update(|site| {
                site.server.keys.values_mut().for_each(|entry| entry.ends -= 1);
                site.wire.iter_mut().for_each(|request| earlier(&mut request.give_up_at));
                for ghost in &mut site.ghosts {
                    if let Ghost::Acquire(_, deadline) = ghost {
                        earlier(deadline);
                    }
                }
                site.tidy(self.setup);
            });
        }
        for tale in &mut self.world.tales {
            tale.believed_until = (tale.believed_until - Millis(1)).max(NOW);
        }
        for process in 0..2 {
            let mut lease = (*self.world.processes[process].lease).clone();
            let rounds = lease.rebase(NOW + Millis(1), NOW);
            let due = lease.next_deadline().is_some_and(|deadline| deadline <= NOW);
            self.world.processes[process].lease = Shared::new(lease);
            self.world.renumber(self.setup, process, &rounds);
            if due {
                self.feed(process, Input::Wake);
            }
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

    fn take(&mut self, node: usize, place: usize) -> Request {
        self.world.sites[node].update(|site| site.wire.remove(place))
    }

    fn answer(&mut self, node: usize, request: &Request, vote: Vote) {
        let node = Node(u8::try_from(node).unwrap());
        self.feed(request.process, Input::Vote { round: request.round, node, vote });
    }

    fn execute(&mut self, node: usize, op: &Op, deadline: Time) -> Vote {
        let fence = self.world.sites[node].server.fence;
        let vote = self.world.execute(self.setup, node, op, deadline);
        let joined = self.world.sites[node].server.fence > fence && matches!(op, Op::Acquire { .. })
            && self.world.tales[index(op.attempt())].token.is_some();
        self.world.joins = self.world.joins.saturating_sub(u8::from(joined));
        vote
    }

    /// The request is executed and answered.
    pub fn deliver(&mut self, node: usize, place: usize) {
        let request = self.take(node, place);
        let vote = self.execute(node, &request.op, request.give_up_at);
        self.answer(node, &request, vote);
    }

    /// The request is executed, and the answer is lost.
    pub fn mute(&mut self, node: usize, place: usize) {
        let op = self.world.sites[node].update(|site| {
            site.wire[place].done = true;
            site.wire[place].op.clone()
        });
        self.execute(node, &op, NOW);
    }

    /// The sender is told that the request failed; it may be executed all the same, and later.
    pub fn fail(&mut self, node: usize, place: usize) {
        let request = self.take(node, place);
        self.world.sites[node].update(|site| {
            site.lose(self.setup, &request);
            site.tidy(self.setup);
        });
        self.answer(node, &request, Vote::Unknown);
    }

    /// A request that nobody waits for is executed.
    pub fn ghost(&mut self, node: usize, place: usize) {
        let ghost = self.world.sites[node].ghosts[place];
        let op = match ghost {
            Ghost::Acquire(attempt, _) => {
                Op::Acquire { attempt, ttl: Millis(self.setup.ttl), holder: holder(index(attempt)) }
            }
            Ghost::Confirm(attempt, grant, token) => Op::Confirm { attempt, grant, token },
        };
        if matches!(ghost, Ghost::Acquire(..)) {
            self.world.sites[node].update(|site| site.ghosts.remove(place));
        }
        self.execute(node, &op, Time(u64::MAX));
    }

    /// An extension, a seal or a release that is about is executed.
    pub fn stray(&mut self, node: usize, op: &Op) {
        self.execute(node, op, Time(u64::MAX));
    }

    pub fn want(&mut self, process: usize, of: usize) {
        let other = self.world.tales[1 - of].token.is_some();
        let tale = &mut self.world.tales[of];
        (tale.begun, tale.second) = (true, other);
        let floor = Token(self.setup.history);
        let want = Want { holder: holder(of), attempt: attempt(of), floor, entropy: Default::default() };
        self.feed(process, Input::Want(want));
    }

    pub fn adopt(&mut self, process: usize, of: usize) {
        if let Some(term) = self.world.term(of) {
            self.feed(process, Input::Adopt(term));
        }
    }

    pub fn crash(&mut self, process: usize) {
        self.world.crashes -= 1;
        let lease = Shared::new(Lease::new(self.setup.config()));
        self.world.processes[process] = Process { lease, across: false, before_word: false };
        for site in &mut self.world.sites {
            site.update(|site| {
                for request in site.wire.extract_if(.., |request| request.process == process).collect::<Vec<_>>() {
                    site.lose(self.setup, &request);
                }
                site.tidy(self.setup);
            });
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

    /// Gives one input to one machine and carries out what it asks for.
    pub fn feed(&mut self, process: usize, input: Input) {
        let mut lease = (*self.world.processes[process].lease).clone();
        lease.handle(NOW, input);
        self.carry_out(process, &mut lease);
        // When to try again is not what is checked here.
        if lease.view().retry_at.is_some_and(|at| at > NOW) {
            lease.handle(NOW, Input::TryNow);
            self.carry_out(process, &mut lease);
        }
        let rounds = lease.rebase(NOW, NOW);
        let running = lease.view().standing.term().is_some();
        let state = &mut self.world.processes[process];
        state.lease = Shared::new(lease);
        state.across &= running;
        state.before_word &= running;
        self.world.renumber(self.setup, process, &rounds);
        self.settle_writes();
    }

    fn carry_out(&mut self, process: usize, lease: &mut Lease) {
        while let Some(effect) = lease.poll_effect() {
            match effect {
                // Answered as by a node that has nothing to delete; the deletion itself is about from now on.
                Effect::Send { round, node, op: Op::Release { attempt, stages }, .. } => {
                    let released = &mut self.world.tales[index(attempt)].released;
                    *released = released.max_by(stages);
                    lease.handle(NOW, Input::Vote { round, node, vote: Vote::Released(0) });
                }
                Effect::Send { round, node, op, give_up_at } => {
                    self.send(process, lease, Request { process, round, give_up_at, op, done: false }, node);
                }
                Effect::Publish(id) => {
                    self.completed(&id);
                    self.believe(lease, &id);
                    self.world.tales[index(id.attempt)].write = Write::Sent(process);
                }
                Effect::Renewed(renewal) => self.renewed(process, lease, renewal),
                Effect::Changed(_) => {}
            }
        }
    }

    fn send(&mut self, process: usize, lease: &mut Lease, request: Request, node: Node) {
        let of = index(request.op.attempt());
        let joins_left = self.world.joins > 0;
        let tale = &mut self.world.tales[of];
        match request.op {
            Op::Acquire { .. } if tale.token.is_some() && !joins_left => {
                lease.handle(NOW, Input::Vote { round: request.round, node, vote: Vote::Unknown });
                return;
            }
            Op::Extend { token, .. } => {
                tale.extended = true;
                let across = self.world.tales[1 - of].token.is_some_and(|other| other > token);
                let state = &mut self.world.processes[process];
                (state.across, state.before_word) = (across, false);
            }
            Op::Seal { .. } => tale.sealed = true,
            _ => {}
        }
        self.world.sites[node.index()].update(|site| {
            if let Op::Confirm { attempt, grant, token } = request.op {
                site.ghosts.push(Ghost::Confirm(attempt, grant, token));
            }
            site.wire.push(request);
            site.tidy(self.setup);
        });
    }

    fn renewed(&mut self, process: usize, lease: &Lease, renewal: Renewal) {
        let state = &mut self.world.processes[process];
        let (across, before_word) = (state.across, state.before_word);
        (state.across, state.before_word) = (false, false);
        if !matches!(renewal, Renewal::Success { .. }) {
            return;
        }
        if across {
            self.world.flaw = Some(Flaw::Bridged);
        }
        if let Some(term) = lease.view().standing.term().filter(|_| !before_word) {
            let id = term.id.clone();
            self.believe(lease, &id);
        }
    }

    /// The holder learns that it holds, and until when.
    fn believe(&mut self, lease: &Lease, id: &TermId) {
        let tale = &mut self.world.tales[index(id.attempt)];
        let until = lease.view().standing.term().and_then(|term| term.valid_until);
        if let Some(until) = until.filter(|_| !tale.dead) {
            tale.believed_until = tale.believed_until.max(until);
        }
    }

    fn completed(&mut self, id: &TermId) {
        let of = index(id.attempt);
        let other = self.world.tales[1 - of].token;
        let tale: &mut Tale = &mut self.world.tales[of];
        if tale.token.is_some() {
            return;
        }
        let history = Some(Token(self.setup.history)).filter(|token| token.0 > 0);
        let before = if tale.second { other.max(history) } else { history };
        match tokens_grow(id.token, other, before) {
            Err(Violation::EqualTokens) => self.world.flaw = Some(Flaw::EqualTokens),
            Err(_) => self.world.flaw = Some(Flaw::TokenNotAbove),
            Ok(()) => {}
        }
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

trait Widest {
    fn max_by(self, stages: Stages) -> Self;
}

impl Widest for Option<Stages> {
    fn max_by(self, stages: Stages) -> Self {
        let wider = self.is_none_or(|known| known.letters().len() < stages.letters().len());
        if wider { Some(stages) } else { self }
    }
}
