//! The admission model: servers lose their memory, two processes admit them again, and two contenders take the lease
//! meanwhile.

use redislease_core::admission::{Admission, Config, Input, Standing};
use redislease_core::check::Mutant;
use redislease_core::check::reference::Node;
use redislease_core::invariants::{self, Claim, Violation};
use redislease_core::marker::Membership;
use redislease_core::op::{Op, Token, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::seed::{Allegiance, FenceReport, Fences};
use redislease_core::time::{Beat, Drift, Millis, Time};
use stateright::{Model, Property};

use crate::interned::Interned;
use crate::node::NOW;
use crate::server::{Admitter, Ballot, Server, run_id};
use crate::world::{NODES, attempt, holder};

/// What one run explores.
#[derive(Clone, Debug)]
pub struct AdmissionSetup {
    pub name: &'static str,
    /// The longest lease, which is the one that the contenders take.
    pub ttl: u64,
    /// The longest lease by the configuration of the second process that admits.
    pub other_longest: u64,
    /// How often a server loses its memory.
    pub losses: u8,
    /// A server loses its memory by a restart, with a new run id and broken connections, and not by a flush.
    pub restart: bool,
    /// The servers are new: none was ever admitted.
    pub new: bool,
    /// Tokens are explored as well: round 2 takes time, and the counters of the servers matter.
    pub tokens: bool,
    /// Number of processes that admit servers.
    pub admitters: usize,
    pub fences: [u64; NODES],
    pub mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Trying { since: Time, token: Option<Token> },
    Holding { until: Time },
    Over,
}

/// A process that wants to hold once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contender {
    phase: Phase,
    token: Option<Token>,
    /// It began after the other had completed.
    second: bool,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    servers: [Interned<Server>; NODES],
    contenders: [Contender; 2],
    losses: u8,
    flaw: Option<Violation>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Tick,
    Look { node: usize, admitter: usize },
    ReadFences { node: usize, admitter: usize },
    Admit { node: usize, admitter: usize },
    LoseMemory { node: usize },
    Want { contender: usize },
    Grant { node: usize, contender: usize },
    Confirm { node: usize, contender: usize },
    Extend { contender: usize },
}

impl AdmissionSetup {
    /// The configuration of one process, with its longest lease in the fingerprint.
    fn membership(&self, admitter: usize) -> Membership {
        let differ = self.longest(admitter) != self.ttl && self.mutant != Some(Mutant::LongestLeaseNotInFingerprint);
        Membership { generation: 1, fingerprint: if differ { "other" } else { "f" }.into() }
    }

    fn longest(&self, admitter: usize) -> u64 {
        if admitter == 0 { self.ttl } else { self.other_longest }
    }

    fn admitter(&self, index: usize) -> Admitter {
        let config = Config {
            membership: self.membership(index),
            quorum: Quorum::of(3).unwrap(),
            has_statuses: false,
            longest_lease: Millis(self.longest(index)),
            drift: Drift::NONE,
            heartbeat: Beat { every: Millis(0), phase: Time(0) },
        };
        let membership = config.membership.clone();
        Admitter { machine: Admission::new(config).with_mutant(self.mutant), membership, admit: None, reading: false }
    }
}

impl Model for AdmissionSetup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = |fence| {
            let marker = Some(self.membership(0).marker(run_id(0))).filter(|_| !self.new);
            let node = Node { fence: Some(fence), marker, ..Node::new(run_id(0)) };
            let admitters = (0..self.admitters).map(|index| self.admitter(index)).collect();
            let mut server = Server { node, admitters, ballots: [Ballot::None; 2], losses: 0 };
            (0..self.admitters).for_each(|admitter| server.look(admitter, self.tokens));
            Interned::new(server)
        };
        let contender = Contender { phase: Phase::Idle, token: None, second: false };
        vec![State { servers: self.fences.map(server), contenders: [contender; 2], losses: self.losses, flaw: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.flaw.is_some() || state.is_over() {
            return;
        }
        actions.push(Action::Tick);
        for (node, server) in state.servers.iter().enumerate() {
            if state.losses > 0 {
                actions.push(Action::LoseMemory { node });
            }
            for (index, Admitter { machine, admit, reading, .. }) in server.admitters.iter().enumerate() {
                let offline = *machine.standing() == Standing::Offline;
                if offline || machine.next_deadline().is_some_and(|deadline| deadline <= NOW) {
                    actions.push(Action::Look { node, admitter: index });
                }
                if *reading {
                    actions.push(Action::ReadFences { node, admitter: index });
                }
                if admit.is_some() {
                    actions.push(Action::Admit { node, admitter: index });
                }
            }
            // Elsewhere the script abstains.
            for contender in (0..2).filter(|_| server.is_admitted()) {
                let ballot = server.ballots[contender];
                if state.contenders[contender].asks(ballot) {
                    actions.push(Action::Grant { node, contender });
                } else if state.contenders[contender].confirms(ballot) {
                    actions.push(Action::Confirm { node, contender });
                }
            }
        }
        for (contender, Contender { phase, .. }) in state.contenders.iter().enumerate() {
            match phase {
                Phase::Idle if contender == 0 || state.contenders[0].phase != Phase::Idle => {
                    actions.push(Action::Want { contender });
                }
                Phase::Holding { .. } => actions.push(Action::Extend { contender }),
                Phase::Idle | Phase::Trying { .. } | Phase::Over => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Tick => state.tick(self.ttl),
            Action::LoseMemory { node } => {
                state.losses -= 1;
                state.at(node, |server| server.lose_memory(self.restart, self.tokens));
            }
            Action::Look { node, admitter } => state.at(node, |server| server.look(admitter, self.tokens)),
            Action::ReadFences { node, admitter } => state.read_fences(node, admitter),
            Action::Admit { node, admitter } => state.at(node, |server| server.admit(admitter, self.tokens)),
            Action::Want { contender } => {
                state.contenders[contender].second = state.contenders[1 - contender].token.is_some();
                state.contenders[contender].phase = Phase::Trying { since: NOW, token: None };
            }
            Action::Grant { node, contender } => state.grant(node, contender, self.ttl),
            Action::Confirm { node, contender } => state.confirm(node, contender, self.ttl),
            Action::Extend { contender } => state.extend(contender, self.ttl),
        }
        if !self.tokens {
            state.stop_counting(self.ttl);
        }
        state.servers.sort_unstable_by_key(|server| server.by_node(0));
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
                state.contenders.iter().all(|contender| contender.token.is_some())
            }),
            Property::sometimes("a server that lost its memory votes again", |_, state: &State| {
                state.servers.iter().any(|server| server.losses > 0 && server.is_admitted())
            }),
        ];
        if self.losses > 1 {
            all.push(Property::sometimes("two servers that lost their memory carry a term", |_, state: &State| {
                let carries = |server: &&Interned<Server>| server.losses > 0 && !server.node.keys.is_empty();
                state.servers.iter().filter(carries).count() > 1
            }));
        }
        if self.losses > 1 && self.admitters > 1 {
            all.push(Property::sometimes(
                "a server loses its memory while two processes wait for it",
                |_, state: &State| {
                    let waits = |one: &Admitter| matches!(one.machine.standing(), Standing::Quarantined { .. });
                    state.servers.iter().any(|server| server.losses > 1 && server.admitters.iter().all(waits))
                },
            ));
        }
        if self.other_longest != self.ttl {
            all.push(Property::sometimes("a server votes under the other configuration", |_, state: &State| {
                let other = |one: &Admitter| matches!(one.machine.standing(), Standing::Mismatch(_));
                state.servers.iter().any(|server| server.admitters.iter().any(other))
            }));
        }
        all
    }
}

impl Contender {
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
        let claims = self.contenders.iter().enumerate().filter_map(|(index, contender)| match contender.phase {
            Phase::Holding { until } if until > NOW => {
                Some(Claim { attempt: attempt(index), token: contender.token?, from: NOW, until })
            }
            _ => None,
        });
        self.flaw.or_else(|| invariants::one_holder(&claims.collect::<Vec<_>>()).err())
    }

    fn at<R>(&mut self, node: usize, change: impl FnOnce(&mut Server) -> R) -> R {
        let mut server = (*self.servers[node]).clone();
        let result = change(&mut server);
        self.servers[node] = Interned::new(server);
        result
    }

    /// One contender can neither hold nor complete any more, and the other has completed or cannot either.
    fn is_over(&self) -> bool {
        let over = |contender: &Contender| contender.phase == Phase::Over;
        let settled = |contender: &Contender| over(contender) || contender.token.is_some();
        self.contenders.iter().any(over) && self.contenders.iter().all(settled)
    }

    /// Confirms at once what two servers granted, and resets the counters.
    fn stop_counting(&mut self, ttl: u64) {
        for (contender, node) in (0..2).flat_map(|contender| (0..NODES).map(move |node| (contender, node))) {
            let server = &self.servers[node];
            if self.contenders[contender].confirms(server.ballots[contender]) && server.is_admitted() {
                self.confirm(node, contender, ttl);
            }
        }
        for node in 0..NODES {
            if self.servers[node].node.fence > Some(0) {
                self.at(node, |server| server.node.fence = Some(0));
            }
        }
        self.flaw = None;
    }

    fn tick(&mut self, ttl: u64) {
        for node in 0..NODES {
            self.at(node, Server::tick);
        }
        for contender in 0..2 {
            self.contenders[contender].phase = match self.contenders[contender].phase {
                Phase::Trying { since, token } if since + Millis(ttl) > NOW + Millis(1) => {
                    Phase::Trying { since: since - Millis(1), token }
                }
                Phase::Trying { .. } => {
                    for node in 0..NODES {
                        self.at(node, |server| server.ballots[contender] = Ballot::None);
                    }
                    Phase::Over
                }
                Phase::Holding { until } if until > NOW + Millis(1) => Phase::Holding { until: until - Millis(1) },
                Phase::Holding { .. } => Phase::Over,
                other => other,
            };
        }
    }

    /// All other servers are asked, and answer at one moment.
    fn read_fences(&mut self, node: usize, admitter: usize) {
        // However many tokens there were, the clocks show more.
        let clock =
            100 + self.contenders.iter().filter_map(|contender| contender.token).map(|token| token.0).sum::<u64>();
        let report = |server: &Interned<Server>| FenceReport {
            allegiance: if server.is_admitted() && server.node.fence.is_some() {
                Allegiance::Ours
            } else {
                Allegiance::Nobody
            },
            fence: Token(server.node.fence.unwrap_or(0)),
            clock,
        };
        let others = self.servers.iter().enumerate().filter(|(other, _)| *other != node);
        let others: Vec<FenceReport> = others.map(|(_, server)| report(server)).collect();
        let fences = Fences { target: report(&self.servers[node]), others, floor: Token(0), own_clock: clock };
        self.at(node, |server| {
            server.admitters[admitter].reading = false;
            server.give(admitter, Input::Fences(Some(fences)), true);
        });
    }

    fn grant(&mut self, node: usize, contender: usize, ttl: u64) {
        let op =
            Op::Acquire { attempt: attempt(contender), proposal: None, ttl: Millis(ttl), holder: holder(contender) };
        let vote = self.at(node, |server| server.vote(op));
        let Vote::Granted(grant) = vote else { return };
        self.at(node, |server| server.ballots[contender] = Ballot::Granted(grant));
        let granted = |server: &Interned<Server>| match server.ballots[contender] {
            Ballot::Granted(grant) => Some(grant.number()),
            _ => None,
        };
        let grants: Vec<u64> = self.servers.iter().filter_map(granted).collect();
        if let Phase::Trying { token, .. } = &mut self.contenders[contender].phase
            && grants.len() == 2
        {
            *token = grants.into_iter().max().map(Token);
        }
    }

    fn confirm(&mut self, node: usize, contender: usize, ttl: u64) {
        let Phase::Trying { since, token: Some(token) } = self.contenders[contender].phase else { return };
        let Ballot::Granted(grant) = self.servers[node].ballots[contender] else { return };
        let op = Op::Confirm { attempt: attempt(contender), grant, token };
        let vote = self.at(node, |server| server.vote(op));
        if !matches!(vote, Vote::Confirmed { .. }) {
            return;
        }
        self.at(node, |server| server.ballots[contender] = Ballot::Confirmed);
        let confirmed = self.servers.iter().filter(|server| server.ballots[contender] == Ballot::Confirmed).count();
        let until = since + Millis(ttl);
        if confirmed == 2 && NOW < until {
            self.complete(contender, token, until);
        }
    }

    fn complete(&mut self, index: usize, token: Token, until: Time) {
        let other = self.contenders[1 - index].token;
        let contender = &mut self.contenders[index];
        let before = other.filter(|_| contender.second);
        self.flaw = invariants::tokens_grow(token, other, before).err().or(self.flaw);
        *contender = Contender { phase: Phase::Holding { until }, token: Some(token), second: false };
        for node in 0..NODES {
            self.at(node, |server| server.ballots[index] = Ballot::None);
        }
    }

    /// One whole round at one moment.
    fn extend(&mut self, contender: usize, ttl: u64) {
        let Some(token) = self.contenders[contender].token else { return };
        let mut extended = 0;
        for node in 0..NODES {
            let op = Op::Extend { attempt: attempt(contender), token, ttl: Millis(ttl) };
            extended += usize::from(self.at(node, |server| server.vote(op)) == Vote::Extended);
        }
        if extended > 1 {
            self.contenders[contender].phase = Phase::Holding { until: NOW + Millis(ttl) };
        }
    }
}
