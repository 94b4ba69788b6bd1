//! Short stories with reference nodes that answer at once, unless the story says otherwise.

mod acquire;
mod adopt;
mod end;
mod keep;
mod schedule;

use super::*;
use crate::backoff::Strategy;
use crate::marker::Membership;
use crate::op::Grant;
use crate::reference::{Call, Node as Server};
use alloc::string::ToString;

const TTL: u64 = 30_000;
const VALID: u64 = 29_698;
const STOP: u64 = 18_698;

fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(TTL),
        renew_interval: Millis(5000),
        stop_budget: Millis(11_000),
        command_timeout: Millis(500),
        drift: Drift::STANDARD,
        backoff: Backoff {
            strategy: Strategy::Exponential,
            min: Millis(100),
            max: Millis(10_000),
            limit: None,
            jitter: 10,
        },
        mutant: None,
    }
}

/// How a node treats the requests of the story.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Up,
    /// Refuses at once.
    Down,
    /// Acts, but the answer is lost.
    Deaf,
    /// Not connected: nothing is sent.
    Away,
    /// Says nothing until the request is given up.
    Silent,
}

struct Story {
    lease: Lease,
    servers: Vec<Server<&'static str>>,
    links: [Link; 3],
    now: u64,
    /// Requests without an answer, with when they are given up.
    silent: Vec<(Time, Round, Node)>,
    published: Vec<TermId>,
    renewals: Vec<Renewal>,
    sent: Vec<(Node, Op)>,
    words: u64,
}

impl Story {
    fn new() -> Self {
        let membership = Membership { generation: 1, fingerprint: "f".into() };
        let servers = (0..3)
            .map(|index| {
                let mut server = Server::new(["r0", "r1", "r2"][index].into());
                server.marker = Some(membership.marker(server.run_id.clone()));
                server.fence = 1000;
                server
            })
            .collect();
        let lease = Lease::new(config());
        Self {
            lease,
            servers,
            links: [Link::Up; 3],
            now: 1_000_000,
            silent: Vec::new(),
            published: Vec::new(),
            renewals: Vec::new(),
            sent: Vec::new(),
            words: 0,
        }
    }

    fn want(&mut self) -> Attempt {
        self.words += 1;
        let attempt = Attempt(u128::from(self.words));
        let holder = Holder("pod".into());
        self.give(Input::Want(Want { holder, attempt, floor: Token(0), entropy: Entropy(u64::MAX / 2) }));
        attempt
    }

    fn give(&mut self, input: Input) {
        self.lease.handle(Time(self.now), input);
        while let Some(effect) = self.lease.poll_effect() {
            match effect {
                Effect::Send { round, node, op, give_up_at } => self.send(round, node, op, give_up_at),
                Effect::Publish(id) => self.published.push(id),
                Effect::Renewed(renewal) => self.renewals.push(renewal),
                Effect::Changed(_) => {}
            }
        }
    }

    fn send(&mut self, round: Round, node: Node, op: Op, give_up_at: Time) {
        self.sent.push((node, op.clone()));
        let server = &mut self.servers[node.index()];
        let marker = Membership { generation: 1, fingerprint: "f".into() }.marker(server.run_id.clone());
        let call = Call { keys: alloc::vec!["a", "b"], marker, deadline: give_up_at.0, op };
        let vote = match self.links[node.index()] {
            Link::Up => server.vote(self.now, &call),
            Link::Down => Vote::Unknown,
            Link::Away => Vote::Abstained,
            Link::Deaf => {
                server.vote(self.now, &call);
                Vote::Unknown
            }
            Link::Silent => return self.silent.push((give_up_at, round, node)),
        };
        self.give(Input::Vote { round, node, vote });
    }

    fn written(&mut self) -> TermId {
        let id = self.published.last().expect("a publication").clone();
        self.give(Input::Published { attempt: id.attempt, outcome: Publication::Written });
        id
    }

    /// Lets time pass to `until`, waking the machine when it asks for it.
    fn pass_to(&mut self, until: u64) {
        loop {
            let given_up = self.silent.iter().map(|(at, ..)| at.0).min();
            let next = [self.lease.next_deadline().map(|at| at.0), given_up].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if let Some(at) = self.silent.iter().position(|(at, ..)| at.0 <= now) {
                let (_, round, node) = self.silent.remove(at);
                self.give(Input::Vote { round, node, vote: Vote::Unknown });
            }
            self.give(Input::Wake);
        }
        self.now = until;
        self.give(Input::Wake);
    }

    fn pass(&mut self, span: u64) {
        self.pass_to(self.now + span);
    }

    fn held(&mut self) -> TermId {
        self.want();
        self.written()
    }

    fn standing(&self) -> &Standing {
        &self.lease.view().standing
    }

    fn values(&self, node: usize) -> Vec<alloc::string::String> {
        let value = |key| self.servers[node].entry(&key, self.now).map(|entry| entry.value.to_string());
        ["a", "b"].into_iter().filter_map(value).collect()
    }

    fn drop_keys(&mut self, node: usize) {
        self.servers[node].keys.clear();
    }

    fn is_held(&self) -> bool {
        matches!(self.standing(), Standing::Held(_))
    }
}

fn term_value(attempt: Attempt, token: u64) -> alloc::string::String {
    alloc::format!("t:{attempt}:{token}:pod")
}
