//! One node with all that is on its way to it.

use redislease_core::check::Mutant;
use redislease_core::check::reference::{Call, Node as Server};
use redislease_core::lease::{Renumbering, Round};
use redislease_core::op::{Attempt, Grant, Op, Stage, Token, Vote};
use redislease_core::time::{Millis, Time};

use crate::interned::{Interned, Memo, Part, Pool, hash_of, remembered};
use crate::world::NOW;

/// A request whose answer is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub process: usize,
    pub round: Round,
    pub give_up_at: Time,
    pub call: Call<u8>,
    /// It was executed, and the answer is lost.
    pub done: bool,
}

/// A request that may still be executed, without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ghost {
    /// Once.
    Acquire(Call<u8>),
    /// Again and again: a process repeats its confirms.
    Confirm(Call<u8>, Attempt, Grant, Token),
}

impl Ghost {
    pub const fn call(&self) -> &Call<u8> {
        let (Self::Acquire(call) | Self::Confirm(call, ..)) = self;
        call
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    pub server: Server<u8>,
    pub wire: Vec<Request>,
    pub ghosts: Vec<Ghost>,
}

/// What happens at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Execute(Call<u8>),
    Sent(Request),
    /// The request is off the wire: answered.
    Answered(usize),
    /// It was executed, and its sender does not know.
    Done(usize),
    /// Its sender was told that it failed; it may still be executed.
    Failed(usize),
    /// The ghost was executed for the last time.
    Gone(usize),
    /// A machine numbered its rounds again; what it does not listen to any more is lost.
    Renumbered(usize, Renumbering),
    /// The process is gone, and with it whoever waited.
    Crashed(usize),
    /// A key is gone before its time.
    Vanished(u8),
    /// Keys that may vanish at any time need no end of their own.
    Tick {
        keys_age: bool,
    },
}

static POOL: Pool<Site> = Pool::new();

thread_local! {
    static CHANGES: Memo<(Interned<Site>, Change), (Interned<Site>, Option<Vote>)> = Memo::default();
}

impl Part for Site {
    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn hash_node(&self, _: usize) -> u64 {
        hash_of(self)
    }
}

/// The site after the change, and the answer if something was executed.
pub fn change(site: Interned<Site>, change: Change) -> (Interned<Site>, Option<Vote>) {
    remembered(&CHANGES, (site, change), |(site, change)| {
        let mut site = (**site).clone();
        let vote = site.apply(change.clone());
        (Interned::new(site), vote)
    })
}

impl Site {
    pub fn new(server: Server<u8>) -> Self {
        Self { server, wire: Vec::new(), ghosts: Vec::new() }
    }

    fn apply(&mut self, change: Change) -> Option<Vote> {
        let mut vote = None;
        match change {
            Change::Execute(call) => vote = Some(self.server.vote(NOW.0, &call)),
            Change::Sent(request) => self.send(request),
            Change::Answered(place) => drop(self.wire.remove(place)),
            Change::Done(place) => self.wire[place].done = true,
            Change::Failed(place) => {
                let request = self.wire.remove(place);
                self.lose(request);
            }
            Change::Gone(place) => drop(self.ghosts.remove(place)),
            Change::Renumbered(process, rounds) => {
                for mut request in std::mem::take(&mut self.wire) {
                    let round = if request.process == process { rounds.of(request.round) } else { Some(request.round) };
                    match round {
                        Some(round) => {
                            request.round = round;
                            self.wire.push(request);
                        }
                        None => self.lose(request),
                    }
                }
            }
            Change::Crashed(process) => {
                let (lost, kept) = std::mem::take(&mut self.wire).into_iter().partition(|one| one.process == process);
                self.wire = kept;
                let lost: Vec<Request> = lost;
                for request in lost {
                    self.lose(request);
                }
            }
            Change::Vanished(key) => drop(self.server.keys.remove(&key)),
            Change::Tick { keys_age } => self.tick(keys_age),
        }
        self.tidy();
        vote
    }

    fn send(&mut self, request: Request) {
        if let Op::Confirm { attempt, grant, token } = request.call.op {
            let mut call = request.call.clone();
            call.deadline = u64::MAX;
            self.ghosts.push(Ghost::Confirm(call, attempt, grant, token));
        }
        self.wire.push(request);
    }

    /// Extensions, seals and releases are about in any case, and a confirm left its ghost when it was sent.
    fn lose(&mut self, request: Request) {
        if matches!(request.call.op, Op::Acquire { .. }) && !request.done {
            self.ghosts.push(Ghost::Acquire(request.call));
        }
    }

    fn tick(&mut self, keys_age: bool) {
        let earlier = |instant: &mut u64| {
            if *instant != u64::MAX {
                *instant -= 1;
            }
        };
        self.server.keys.values_mut().for_each(|entry| entry.ends -= u64::from(keys_age));
        for request in &mut self.wire {
            request.give_up_at = request.give_up_at - Millis(1);
            earlier(&mut request.call.deadline);
        }
        for ghost in &mut self.ghosts {
            let (Ghost::Acquire(call) | Ghost::Confirm(call, ..)) = ghost;
            earlier(&mut call.deadline);
        }
    }

    /// Drops what can have no effect any more, and orders the rest.
    fn tidy(&mut self) {
        self.server.purge(NOW.0);
        let server = &self.server;
        let pending = |attempt, grant: Grant| {
            server.keys.values().any(|entry| {
                let value = &entry.value;
                (value.stage, value.attempt, value.number) == (Stage::Pending, attempt, grant.0)
            })
        };
        self.ghosts.retain(|ghost| match ghost {
            Ghost::Acquire(call) => NOW.0 <= call.deadline,
            // A node grants no number twice: what is not pending now will never be.
            Ghost::Confirm(_, attempt, grant, _) => {
                server.mutant == Some(Mutant::NoGrantNumber) || pending(*attempt, *grant)
            }
        });
        self.ghosts.sort_by_cached_key(hash_of);
        self.ghosts.dedup_by(|a, b| a == b && matches!(a, Ghost::Confirm(..)));
        self.wire.sort_by_key(|request| (request.process, request.round));
    }

    /// How the keys of an attempt stand: stage and end of each.
    pub fn values(&self, attempt: Attempt) -> impl Iterator<Item = (Stage, u64)> {
        let ours = self.server.keys.values().filter(move |entry| entry.value.attempt == attempt);
        ours.map(|entry| (entry.value.stage, entry.ends))
    }
}
