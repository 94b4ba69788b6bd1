//! The admission model: servers forget, two processes admit them again, two others take the lease meanwhile.

use redislease_core::admission::{Admission, Config, Effect, Input, Standing};
use redislease_core::check::Mutant;
use redislease_core::check::reference::{Call, Node as Server};
use redislease_core::invariants::{self, Claim, Violation};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::op::{Grant, Op, Token, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::seed::{self, Allegiance, FenceReport};
use redislease_core::time::{Drift, Millis, Time};
use stateright::{Model, Property};

use crate::interned::{Interned, Part, Pool, hash_of};
use crate::world::{NODES, NOW, attempt, holder};

/// What one run explores.
#[derive(Clone, Debug)]
pub struct Hall {
    pub name: &'static str,
    /// The longest lease, and the one that everybody takes.
    pub ttl: u64,
    /// So many times a server forgets everything.
    pub forgets: u8,
    /// It forgets by a restart, with a new run id and broken connections, and not by a flush.
    pub restart: bool,
    /// The servers are new: nothing was ever admitted.
    pub new: bool,
    /// How tokens come about as well: round 2 takes time, and what the servers count matters.
    pub tokens: bool,
    /// So many processes admit servers.
    pub admitters: usize,
    pub fences: [u64; NODES],
    pub mutant: Option<Mutant>,
}

/// One server, and how far it is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    server: Server<u8>,
    desks: Vec<Desk>,
    ballots: [Ballot; 2],
    forgotten: u8,
}

/// One process that admits, at one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Desk {
    machine: Admission,
    /// An admission that was sent and may be carried out at any time.
    admit: Option<(Marker, Token)>,
    reading: bool,
}

/// What a claimant knows of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ballot {
    None,
    Granted(Grant),
    Confirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Trying { since: Time, token: Option<Token> },
    Holding { until: Time },
    Over,
}

/// One process that wants to hold, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claimant {
    phase: Phase,
    token: Option<Token>,
    /// It began after the other had completed.
    second: bool,
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    places: [Interned<Place>; NODES],
    claimants: [Claimant; 2],
    forgets: u8,
    flaw: Option<Violation>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Tick,
    Look { node: usize, desk: usize },
    ReadFences { node: usize, desk: usize },
    Admit { node: usize, desk: usize },
    Forget { node: usize },
    Want { claimant: usize },
    Grant { node: usize, claimant: usize },
    Confirm { node: usize, claimant: usize },
    Extend { claimant: usize },
}

static POOL: Pool<Place> = Pool::new();

impl Part for Place {
    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn hash_node(&self, _: usize) -> u64 {
        hash_of(self)
    }
}

fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "f".into() }
}

/// The identity of a server after so many restarts.
fn run_id(start: u8) -> RunId {
    ["r0", "r1", "r2", "r3"][usize::from(start)].into()
}

impl Model for Hall {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let config = Config {
            membership: membership(),
            longest_lease: Millis(self.ttl),
            drift: Drift { percent: 0, slack: Millis(0) },
            heartbeat: Millis(0),
        };
        let place = |fence| {
            let marker = Some(membership().marker(run_id(0))).filter(|_| !self.new);
            let server = Server { fence, marker, ..Server::new(run_id(0)) };
            let desk =
                Desk { machine: Admission::new(config.clone()).with_mutant(self.mutant), admit: None, reading: false };
            let desks = vec![desk; self.admitters];
            let mut place = Place { server, desks, ballots: [Ballot::None; 2], forgotten: 0 };
            (0..self.admitters).for_each(|desk| place.look(desk, self.tokens));
            Interned::new(place)
        };
        let claimant = Claimant { phase: Phase::Idle, token: None, second: false };
        vec![State { places: self.fences.map(place), claimants: [claimant; 2], forgets: self.forgets, flaw: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.flaw.is_some() || state.is_over() {
            return;
        }
        actions.push(Action::Tick);
        for (node, place) in state.places.iter().enumerate() {
            if state.forgets > 0 {
                actions.push(Action::Forget { node });
            }
            for (desk, Desk { machine, admit, reading }) in place.desks.iter().enumerate() {
                let offline = *machine.standing() == Standing::Offline;
                if offline || machine.next_deadline().is_some_and(|deadline| deadline <= NOW) {
                    actions.push(Action::Look { node, desk });
                }
                if *reading {
                    actions.push(Action::ReadFences { node, desk });
                }
                if admit.is_some() {
                    actions.push(Action::Admit { node, desk });
                }
            }
            // Elsewhere the script would abstain.
            for claimant in (0..2).filter(|_| place.is_admitted()) {
                let ballot = place.ballots[claimant];
                if state.claimants[claimant].asks(ballot) {
                    actions.push(Action::Grant { node, claimant });
                } else if state.claimants[claimant].confirms(ballot) {
                    actions.push(Action::Confirm { node, claimant });
                }
            }
        }
        for (claimant, Claimant { phase, .. }) in state.claimants.iter().enumerate() {
            match phase {
                Phase::Idle if claimant == 0 || state.claimants[0].phase != Phase::Idle => {
                    actions.push(Action::Want { claimant });
                }
                Phase::Holding { .. } => actions.push(Action::Extend { claimant }),
                Phase::Idle | Phase::Trying { .. } | Phase::Over => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Tick => state.tick(self.ttl),
            Action::Forget { node } => {
                state.forgets -= 1;
                state.at(node, |place| place.forget(self.restart, self.tokens));
            }
            Action::Look { node, desk } => state.at(node, |place| place.look(desk, self.tokens)),
            Action::ReadFences { node, desk } => state.read_fences(node, desk),
            Action::Admit { node, desk } => state.at(node, |place| place.admit(desk, self.tokens)),
            Action::Want { claimant } => {
                state.claimants[claimant].second = state.claimants[1 - claimant].token.is_some();
                state.claimants[claimant].phase = Phase::Trying { since: NOW, token: None };
            }
            Action::Grant { node, claimant } => state.grant(node, claimant, self.ttl),
            Action::Confirm { node, claimant } => state.confirm(node, claimant, self.ttl),
            Action::Extend { claimant } => state.extend(claimant, self.ttl),
        }
        if !self.tokens {
            state.stop_counting(self.ttl);
        }
        state.places.sort_unstable_by_key(|place| place.by_node(0));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let sound = Property::always("sound", |_, state: &State| state.violation().is_none());
        if self.mutant.is_some() {
            return vec![sound];
        }
        let mut all = vec![
            sound,
            Property::sometimes("both hold, one after the other", |_, state: &State| {
                state.claimants.iter().all(|claimant| claimant.token.is_some())
            }),
            Property::sometimes("a server that forgot votes again", |_, state: &State| {
                state.places.iter().any(|place| place.forgotten > 0 && place.is_admitted())
            }),
        ];
        if self.forgets > 1 {
            all.push(Property::sometimes("two servers that forgot carry a term", |_, state: &State| {
                let carries = |place: &&Interned<Place>| place.forgotten > 0 && !place.server.keys.is_empty();
                state.places.iter().filter(carries).count() > 1
            }));
        }
        if self.forgets > 1 && self.admitters > 1 {
            all.push(Property::sometimes("a server forgets while two processes wait for it", |_, state: &State| {
                let waits = |desk: &Desk| matches!(desk.machine.standing(), Standing::Quarantined { .. });
                state.places.iter().any(|place| place.forgotten > 1 && place.desks.iter().all(waits))
            }));
        }
        all
    }
}

impl Claimant {
    const fn asks(&self, ballot: Ballot) -> bool {
        matches!((self.phase, ballot), (Phase::Trying { token: None, .. }, Ballot::None))
    }

    const fn confirms(&self, ballot: Ballot) -> bool {
        matches!((self.phase, ballot), (Phase::Trying { token: Some(_), .. }, Ballot::Granted(_)))
    }
}

impl State {
    /// The rule that is broken in this state.
    pub fn violation(&self) -> Option<Violation> {
        let claims = self.claimants.iter().enumerate().filter_map(|(index, claimant)| match claimant.phase {
            Phase::Holding { until } if until > NOW => {
                Some(Claim { attempt: attempt(index), token: claimant.token?, from: NOW, until })
            }
            _ => None,
        });
        self.flaw.or_else(|| invariants::one_holder(&claims.collect::<Vec<_>>()).err())
    }

    fn at<R>(&mut self, node: usize, change: impl FnOnce(&mut Place) -> R) -> R {
        let mut place = (*self.places[node]).clone();
        let result = change(&mut place);
        self.places[node] = Interned::new(place);
        result
    }

    /// One of the two can neither hold nor complete any more, and the other has completed or cannot either.
    fn is_over(&self) -> bool {
        let over = |claimant: &Claimant| claimant.phase == Phase::Over;
        let settled = |claimant: &Claimant| over(claimant) || claimant.token.is_some();
        self.claimants.iter().any(over) && self.claimants.iter().all(settled)
    }

    /// Confirms at once what two servers granted, and lets every server count from where it began.
    fn stop_counting(&mut self, ttl: u64) {
        for (claimant, node) in (0..2).flat_map(|claimant| (0..NODES).map(move |node| (claimant, node))) {
            let place = &self.places[node];
            if self.claimants[claimant].confirms(place.ballots[claimant]) && place.is_admitted() {
                self.confirm(node, claimant, ttl);
            }
        }
        for node in 0..NODES {
            if self.places[node].server.fence > 0 {
                self.at(node, |place| place.server.fence = 0);
            }
        }
        self.flaw = None;
    }

    fn tick(&mut self, ttl: u64) {
        for node in 0..NODES {
            self.at(node, Place::tick);
        }
        for claimant in 0..2 {
            self.claimants[claimant].phase = match self.claimants[claimant].phase {
                Phase::Trying { since, token } if since + Millis(ttl) > NOW + Millis(1) => {
                    Phase::Trying { since: since - Millis(1), token }
                }
                Phase::Trying { .. } => {
                    for node in 0..NODES {
                        self.at(node, |place| place.ballots[claimant] = Ballot::None);
                    }
                    Phase::Over
                }
                Phase::Holding { until } if until > NOW + Millis(1) => Phase::Holding { until: until - Millis(1) },
                Phase::Holding { .. } => Phase::Over,
                other => other,
            };
        }
    }

    /// All others are asked, and answer at one moment.
    fn read_fences(&mut self, node: usize, desk: usize) {
        // However many tokens there were, time has outrun them.
        let clock = 100 + self.claimants.iter().filter_map(|claimant| claimant.token).map(|token| token.0).sum::<u64>();
        let report = |place: &Interned<Place>| FenceReport {
            allegiance: if place.is_admitted() { Allegiance::Ours } else { Allegiance::Nobody },
            fence: Token(place.server.fence),
            clock,
        };
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != node).map(|(_, place)| report(place));
        let others: Vec<FenceReport> = others.collect();
        let target = report(&self.places[node]);
        let seed = seed::seed(Quorum::of(3).unwrap(), target, &others, Token(0), clock);
        self.at(node, |place| {
            place.desks[desk].reading = false;
            place.give(desk, Input::Seed(seed), true);
        });
    }

    fn grant(&mut self, node: usize, claimant: usize, ttl: u64) {
        let op = Op::Acquire { attempt: attempt(claimant), ttl: Millis(ttl), holder: holder(claimant) };
        let vote = self.at(node, |place| place.vote(op));
        let Vote::Granted(grant) = vote else { return };
        self.at(node, |place| place.ballots[claimant] = Ballot::Granted(grant));
        let granted = |place: &Interned<Place>| match place.ballots[claimant] {
            Ballot::Granted(grant) => Some(grant.0),
            _ => None,
        };
        let grants: Vec<u64> = self.places.iter().filter_map(granted).collect();
        if let Phase::Trying { token, .. } = &mut self.claimants[claimant].phase
            && grants.len() == 2
        {
            *token = grants.into_iter().max().map(Token);
        }
    }

    fn confirm(&mut self, node: usize, claimant: usize, ttl: u64) {
        let Phase::Trying { since, token: Some(token) } = self.claimants[claimant].phase else { return };
        let Ballot::Granted(grant) = self.places[node].ballots[claimant] else { return };
        let op = Op::Confirm { attempt: attempt(claimant), grant, token };
        let vote = self.at(node, |place| place.vote(op));
        if !matches!(vote, Vote::Confirmed { .. }) {
            return;
        }
        self.at(node, |place| place.ballots[claimant] = Ballot::Confirmed);
        let confirmed = self.places.iter().filter(|place| place.ballots[claimant] == Ballot::Confirmed).count();
        let until = since + Millis(ttl);
        if confirmed == 2 && NOW < until {
            self.complete(claimant, token, until);
        }
    }

    fn complete(&mut self, index: usize, token: Token, until: Time) {
        let other = self.claimants[1 - index].token;
        let claimant = &mut self.claimants[index];
        let before = other.filter(|_| claimant.second);
        self.flaw = invariants::tokens_grow(token, other, before).err().or(self.flaw);
        *claimant = Claimant { phase: Phase::Holding { until }, token: Some(token), second: false };
        for node in 0..NODES {
            self.at(node, |place| place.ballots[index] = Ballot::None);
        }
    }

    /// One whole round at one moment.
    fn extend(&mut self, claimant: usize, ttl: u64) {
        let Some(token) = self.claimants[claimant].token else { return };
        let mut extended = 0;
        for node in 0..NODES {
            let op = Op::Extend { attempt: attempt(claimant), token, ttl: Millis(ttl) };
            extended += usize::from(self.at(node, |place| place.vote(op)) == Vote::Extended);
        }
        if extended > 1 {
            self.claimants[claimant].phase = Phase::Holding { until: NOW + Millis(ttl) };
        }
    }
}

impl Place {
    fn is_admitted(&self) -> bool {
        self.server.marker == Some(membership().marker(self.server.run_id.clone()))
    }

    fn tick(&mut self) {
        self.server.keys.values_mut().for_each(|entry| entry.ends -= 1);
        self.server.purge(NOW.0);
        for desk in &mut self.desks {
            desk.machine.rebase(NOW + Millis(1), NOW);
        }
    }

    fn forget(&mut self, restart: bool, tokens: bool) {
        self.forgotten += 1;
        let run_id = if restart { run_id(self.forgotten) } else { self.server.run_id.clone() };
        self.server = Server::new(run_id);
        if restart {
            (0..self.desks.len()).for_each(|desk| self.give(desk, Input::Disconnected, tokens));
        }
    }

    /// A connection is made, or the machine looks again.
    fn look(&mut self, desk: usize, tokens: bool) {
        let offline = *self.desks[desk].machine.standing() == Standing::Offline;
        let input = if offline { Input::Connected(self.server.run_id.clone()) } else { Input::Wake };
        self.give(desk, input, tokens);
    }

    /// Gives one input to one machine. An observe is executed and answered at once: what it finds does not depend on
    /// when it was asked for, and its nonce is drawn when it is written: any will do that was never there before.
    fn give(&mut self, index: usize, input: Input, tokens: bool) {
        let fresh = u128::from(self.forgotten) * 2 + index as u128;
        let desk = &mut self.desks[index];
        desk.machine.handle(NOW, fresh, input);
        while let Some(effect) = desk.machine.poll_effect() {
            match effect {
                Effect::Observe { run_id, nonce, stepped } => {
                    let marker = self.server.observe(&run_id, nonce, stepped.as_ref());
                    desk.machine.handle(NOW, fresh, Input::Observed(marker));
                }
                Effect::ReadFences if tokens => desk.reading = true,
                Effect::ReadFences => desk.machine.handle(NOW, fresh, Input::Seed(Ok(Token(0)))),
                Effect::Admit { ticket, seed, .. } => desk.admit = Some((ticket, seed)),
                Effect::Changed(_) => {}
            }
        }
        desk.machine.rebase(NOW, NOW);
    }

    /// The admission is carried out, and answered if the connection still stands.
    fn admit(&mut self, desk: usize, tokens: bool) {
        let Some((ticket, seed)) = self.desks[desk].admit.take() else { return };
        let run_id = ticket.run_id().clone();
        let stands = self.server.admit(&ticket, &membership().marker(run_id.clone()), seed);
        if *self.desks[desk].machine.standing() == Standing::Offline || run_id != self.server.run_id {
            return;
        }
        let fresh = u128::from(self.forgotten) * 2 + desk as u128;
        let stands = stands.unwrap_or_else(|| self.server.observe(&run_id, fresh, None));
        self.give(desk, Input::Observed(stands), tokens);
    }

    fn vote(&mut self, op: Op) -> Vote {
        let marker = membership().marker(self.server.run_id.clone());
        self.server.vote(NOW.0, &Call { keys: vec![0], marker, deadline: u64::MAX, op })
    }
}
