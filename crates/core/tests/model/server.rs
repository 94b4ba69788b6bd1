//! The admission model: one server, and the processes that admit it.

use redislease_core::admission::{self, Admission, Effect, Input, Standing};
use redislease_core::check::reference::{Call, Node};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::op::{Grant, Op, Token, Vote};
use redislease_core::seed::{Allegiance, FenceReport, Fences};
use redislease_core::time::Millis;

use crate::interned::{Part, Pool};
use crate::node::NOW;

/// One server, and how far it is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub node: Node<u8>,
    pub admitters: Vec<Admitter>,
    /// What each contender knows of the server.
    pub ballots: [Ballot; 2],
    /// How often the server lost its memory.
    pub losses: u8,
}

/// The machine of one process for one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admitter {
    pub machine: Admission,
    /// The configuration under which the process votes and admits.
    pub membership: Membership,
    /// An admission that was sent: ticket, marker and seed. It may be carried out at any time.
    pub admit: Option<(Marker, Marker, Token)>,
    /// The process reads the fences of the other servers.
    pub reading: bool,
}

/// What a contender knows of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ballot {
    None,
    Granted(Grant),
    Confirmed,
}

static POOL: Pool<Server> = Pool::new();

impl Part for Server {
    fn pool() -> &'static Pool<Self> {
        &POOL
    }
}

/// The run id of a server after so many restarts.
pub fn run_id(start: u8) -> RunId {
    ["r0", "r1", "r2", "r3"][usize::from(start)].into()
}

/// The fences of servers that never gave a token.
fn no_tokens() -> Input {
    let target = FenceReport { allegiance: Allegiance::Nobody, fence: Token(0), clock: 0 };
    Input::Fences(Some(Fences { target, others: Vec::new(), floor: Token(0), own_clock: 0 }))
}

impl Server {
    /// Whether the server votes under the configuration of the contenders, which is that of the first admitter.
    pub fn is_admitted(&self) -> bool {
        self.node.marker == Some(self.marker())
    }

    fn marker(&self) -> Marker {
        self.admitters[0].membership.marker(self.node.run_id.clone())
    }

    pub fn tick(&mut self) {
        self.node.keys.values_mut().for_each(|entry| entry.ends -= 1);
        self.node.purge(NOW.0);
        for admitter in &mut self.admitters {
            admitter.machine.rebase(NOW + Millis(1), NOW);
        }
    }

    /// The server loses its memory, by a restart or by a flush.
    pub fn lose_memory(&mut self, restart: bool, tokens: bool) {
        self.losses += 1;
        let run_id = if restart { run_id(self.losses) } else { self.node.run_id.clone() };
        self.node = Node::new(run_id);
        if restart {
            (0..self.admitters.len()).for_each(|admitter| self.give(admitter, Input::Disconnected, tokens));
        }
    }

    /// A process connects, or its machine reads the marker again.
    pub fn look(&mut self, admitter: usize, tokens: bool) {
        let offline = *self.admitters[admitter].machine.standing() == Standing::Offline;
        let input = if offline { Input::Connected(self.node.run_id.clone()) } else { Input::Wake };
        self.give(admitter, input, tokens);
    }

    /// Gives one input to one machine. An observe is executed and answered at once: what it finds does not depend on
    /// when it was sent. Its nonce is drawn when it is written, and any nonce will do that was never there before.
    pub fn give(&mut self, index: usize, input: Input, tokens: bool) {
        let nonce = self.fresh_nonce(index);
        let admitter = &mut self.admitters[index];
        admitter.machine.handle(NOW, input);
        while let Some(effect) = admitter.machine.poll_effect() {
            match effect {
                Effect::Call(admission::Call::Observe { run_id, stepped }) => {
                    let marker = self.node.observe(&run_id, nonce, stepped.as_ref());
                    admitter.machine.handle(NOW, Input::Observed(marker));
                }
                Effect::ReadFences if tokens => admitter.reading = true,
                Effect::ReadFences => admitter.machine.handle(NOW, no_tokens()),
                Effect::ListStatuses { .. } => unreachable!("there are no statuses"),
                Effect::Call(admission::Call::Admit { ticket, marker, seed }) => {
                    admitter.admit = Some((ticket, marker, seed));
                }
                Effect::Changed(_) => {}
            }
        }
        admitter.machine.rebase(NOW, NOW);
    }

    fn fresh_nonce(&self, admitter: usize) -> u128 {
        u128::from(self.losses) * 2 + admitter as u128
    }

    /// The admission is carried out, and answered if the connection still exists.
    pub fn admit(&mut self, index: usize, tokens: bool) {
        let Some((ticket, marker, seed)) = self.admitters[index].admit.take() else { return };
        let run_id = ticket.run_id().clone();
        let present = self.node.admit(&ticket, &marker, seed);
        if *self.admitters[index].machine.standing() == Standing::Offline || run_id != self.node.run_id {
            return;
        }
        let nonce = self.fresh_nonce(index);
        let present = present.unwrap_or_else(|| self.node.observe(&run_id, nonce, None));
        self.give(index, Input::Observed(present), tokens);
    }

    /// Runs one script of a contender.
    pub fn vote(&mut self, op: Op) -> Vote {
        let marker = self.marker();
        self.node.vote(NOW.0, &Call { keys: vec![0], marker, deadline: u64::MAX, op })
    }
}
