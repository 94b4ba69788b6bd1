//! One Redis node with everything that is on its way to it.

use redislease_core::check::Mutant;
use redislease_core::check::Renumbering;
use redislease_core::check::reference::{Call, Node as Server};
use redislease_core::lease::Round;
use redislease_core::op::{Attempt, Grant, Op, Stage, Token, Vote};
use redislease_core::time::{Millis, Time};

use crate::interned::{Interned, Memo, Part, Pool, hash_of, remembered};

/// Every state is seen at this instant. A tick moves all other instants instead.
pub const NOW: Time = Time(100);

/// A request whose sender waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub process: usize,
    pub round: Round,
    pub give_up_at: Time,
    pub call: Interned<Call<u8>>,
    /// It was executed, and the answer is lost.
    pub done: bool,
}

/// A request that may still be executed, although its sender does not wait for the answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    /// It may be executed once.
    Acquire(Interned<Call<u8>>),
    /// It may be executed again and again: a process repeats its confirms.
    Confirm(Interned<Call<u8>>, Attempt, Grant, Token),
}

impl Late {
    pub const fn call(self) -> Interned<Call<u8>> {
        let (Self::Acquire(call) | Self::Confirm(call, ..)) = self;
        call
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub server: Server<u8>,
    pub requests: Vec<Request>,
    pub late: Vec<Late>,
}

/// What happens at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Execute(Interned<Call<u8>>),
    Sent(Request),
    /// The request was answered.
    Answered(usize),
    /// The request was executed, and its sender does not know.
    Done(usize),
    /// The sender was told that the request failed. It may still be executed.
    Failed(usize),
    /// The late request was executed for the last time.
    Gone(usize),
    /// A machine numbered its rounds again. Requests whose answers do not matter to it any more are late.
    Renumbered(usize, Interned<Renumbering>),
    /// The process crashed, and nothing of it waits for an answer.
    Crashed(usize),
    /// A key ended before its time.
    Vanished(u8),
    /// One millisecond passed. Keys that may vanish at any time do not age.
    Tick {
        keys_age: bool,
    },
}

static NODES: Pool<Node> = Pool::new();
static CALLS: Pool<Call<u8>> = Pool::new();
static VOTES: Pool<Vote> = Pool::new();
static ROUNDS: Pool<Renumbering> = Pool::new();

thread_local! {
    static CHANGES: Memo<(Interned<Node>, Change), (Interned<Node>, Option<Interned<Vote>>)> = Memo::default();
}

impl Part for Node {
    fn pool() -> &'static Pool<Self> {
        &NODES
    }
}

impl Part for Call<u8> {
    fn pool() -> &'static Pool<Self> {
        &CALLS
    }
}

impl Part for Vote {
    fn pool() -> &'static Pool<Self> {
        &VOTES
    }
}

impl Part for Renumbering {
    fn pool() -> &'static Pool<Self> {
        &ROUNDS
    }
}

/// The node after the change, and the answer if something was executed.
pub fn change(node: Interned<Node>, change: Change) -> (Interned<Node>, Option<Interned<Vote>>) {
    remembered(&CHANGES, (node, change), |(node, change)| {
        let mut node = (**node).clone();
        let vote = node.apply(change);
        (Interned::new(node), vote.map(Interned::new))
    })
}

impl Node {
    pub fn new(server: Server<u8>) -> Self {
        Self { server, requests: Vec::new(), late: Vec::new() }
    }

    fn apply(&mut self, change: &Change) -> Option<Vote> {
        let mut vote = None;
        match *change {
            Change::Execute(call) => vote = Some(self.server.vote(NOW.0, &call)),
            Change::Sent(request) => self.send(request),
            Change::Answered(place) => drop(self.requests.remove(place)),
            Change::Done(place) => self.requests[place].done = true,
            Change::Failed(place) => {
                let request = self.requests.remove(place);
                self.lose(request);
            }
            Change::Gone(place) => drop(self.late.remove(place)),
            Change::Renumbered(process, rounds) => {
                for mut request in std::mem::take(&mut self.requests) {
                    let round = if request.process == process { rounds.of(request.round) } else { Some(request.round) };
                    match round {
                        Some(round) => {
                            request.round = round;
                            self.requests.push(request);
                        }
                        None => self.lose(request),
                    }
                }
            }
            Change::Crashed(process) => {
                let requests = std::mem::take(&mut self.requests);
                let (lost, kept): (Vec<_>, Vec<_>) = requests.into_iter().partition(|one| one.process == process);
                self.requests = kept;
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
            let call = Call { deadline: u64::MAX, ..(*request.call).clone() };
            self.late.push(Late::Confirm(Interned::new(call), attempt, grant, token));
        }
        self.requests.push(request);
    }

    /// An acquire may be executed later. A confirm became a late request when it was sent, and the world keeps account of
    /// extensions, seals and releases.
    fn lose(&mut self, request: Request) {
        if matches!(request.call.op, Op::Acquire { .. }) && !request.done {
            self.late.push(Late::Acquire(request.call));
        }
    }

    fn tick(&mut self, keys_age: bool) {
        let earlier = |call: &mut Interned<Call<u8>>| {
            if call.deadline != u64::MAX {
                *call = Interned::new(Call { deadline: call.deadline - 1, ..(**call).clone() });
            }
        };
        self.server.keys.values_mut().for_each(|entry| entry.ends -= u64::from(keys_age));
        for request in &mut self.requests {
            request.give_up_at = request.give_up_at - Millis(1);
            earlier(&mut request.call);
        }
        for late in &mut self.late {
            let (Late::Acquire(call) | Late::Confirm(call, ..)) = late;
            earlier(call);
        }
    }

    /// Drops what has no effect any more, and orders the rest.
    fn tidy(&mut self) {
        self.server.purge(NOW.0);
        let server = &self.server;
        let granted = |attempt, grant: Grant| {
            server.keys.values().any(|entry| {
                let value = &entry.value;
                (value.stage, value.attempt, value.number) == (grant.stage(), attempt, grant.number())
            })
        };
        self.late.retain(|late| match late {
            Late::Acquire(call) => NOW.0 <= call.deadline,
            // A node grants no number twice: a grant that is not there now will not be there again.
            Late::Confirm(_, attempt, grant, _) => {
                server.mutant == Some(Mutant::NoGrantNumber) || granted(*attempt, *grant)
            }
        });
        self.late.sort_by_cached_key(hash_of);
        self.late.dedup_by(|a, b| a == b && matches!(a, Late::Confirm(..)));
        self.requests.sort_by_key(|request| (request.process, request.round));
    }

    /// Stage and end of each key of an attempt.
    pub fn values(&self, attempt: Attempt) -> impl Iterator<Item = (Stage, u64)> {
        let ours = self.server.keys.values().filter(move |entry| entry.value.attempt == attempt);
        ours.map(|entry| (entry.value.stage, entry.ends))
    }

    /// The least remaining life of the keys of an attempt, if the node holds all `keys`.
    pub fn life(&self, attempt: Attempt, keys: &[u8]) -> Option<Millis> {
        let ends =
            |key| self.server.keys.get(key).filter(|entry| entry.value.attempt == attempt).map(|entry| entry.ends);
        let ends: Option<Vec<u64>> = keys.iter().map(ends).collect();
        ends?.into_iter().min().map(|ends| Millis(ends - NOW.0))
    }
}
