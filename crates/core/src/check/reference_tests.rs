//! The planted bugs of a node, each with requests that find it. Without the bug the same requests find nothing.
//!
//! That the node without a bug answers as a real server does is shown by a test with real servers.

use alloc::string::String;
use alloc::vec::Vec;

use super::Mutant;
use super::reference::{Call, Node};
use crate::marker::{Marker, Membership};
use crate::op::{Attempt, Grant, Holder, Op, Stages, Token, Vote};
use crate::time::Millis;

const TTL: Millis = Millis(10_000);
const OURS: Attempt = Attempt(1);
const OTHER: Attempt = Attempt(2);

pub(crate) struct Server {
    node: Node<&'static str>,
    marker: Marker,
    now: u64,
}

impl Server {
    fn new(mutant: Option<Mutant>) -> Self {
        let mut node = Node { mutant, ..Node::new("r0".into()) };
        let marker = Membership { generation: 1, fingerprint: "f".into() }.marker(node.run_id.clone());
        (node.marker, node.fence) = (Some(marker.clone()), Some(0));
        Self { node, marker, now: 1000 }
    }

    fn ask(&mut self, keys: &[&'static str], op: Op) -> Vote {
        let call = Call { keys: Vec::from(keys), marker: self.marker.clone(), deadline: u64::MAX, op };
        self.node.vote(self.now, &call)
    }

    fn granted(&mut self, keys: &[&'static str], attempt: Attempt, proposal: Option<Token>) -> Option<Grant> {
        match self.ask(keys, Op::Acquire { attempt, proposal, ttl: TTL, holder: Holder("pod".into()) }) {
            Vote::Granted(grant) => Some(grant),
            _ => None,
        }
    }

    fn acquire(&mut self, keys: &[&'static str], attempt: Attempt) -> Option<Grant> {
        self.granted(keys, attempt, None)
    }

    fn propose(&mut self, key: &'static str, token: u64) -> Option<Grant> {
        self.granted(&[key], OURS, Some(Token(token)))
    }

    fn confirm(&mut self, keys: &[&'static str], grant: Grant, token: u64) -> bool {
        let confirm = Op::Confirm { attempt: OURS, grant, token: Token(token) };
        matches!(self.ask(keys, confirm), Vote::Confirmed { .. })
    }

    fn extend(&mut self, ttl: Millis) -> bool {
        self.ask(&["a"], Op::Extend { attempt: OURS, token: Token(7), ttl }) == Vote::Extended
    }

    /// The key `a` holds our term with token 7.
    fn with_a_term(&mut self) {
        let grant = self.acquire(&["a"], OURS);
        assert!(grant.is_some_and(|grant| self.confirm(&["a"], grant, 7)));
    }

    fn lives(&self, key: &'static str) -> Option<u64> {
        self.node.entry(&key, self.now).map(|entry| entry.ends - self.now)
    }
}

/// Whether the node behaves as it must.
type Case = fn(&mut Server) -> bool;

pub(crate) const FOUND: [(Mutant, Case); 12] = [
    (Mutant::ConfirmFirstKeyOnly, |server| {
        let grant = server.acquire(&["a", "b"], OURS);
        server.node.keys.remove("b");
        server.acquire(&["b"], OTHER);
        grant.is_some_and(|grant| !server.confirm(&["a", "b"], grant, 7))
    }),
    (Mutant::NoGrantNumber, |server| {
        let first = server.acquire(&["a"], OURS);
        server.node.keys.clear();
        let again = server.acquire(&["a"], OURS);
        first != again && first.is_some_and(|first| !server.confirm(&["a"], first, 7))
    }),
    (Mutant::CounterPerLease, |server| server.acquire(&["a"], OURS) < server.acquire(&["b"], OTHER)),
    (Mutant::CounterLossIgnored, |server| {
        server.node.fence = None;
        let voted = server.acquire(&["a"], OURS).is_some() || server.node.marker.is_some();
        server.node.marker = Some(server.marker.clone());
        !voted && server.node.observe(&"r0".into(), 1, None) != server.marker
    }),
    (Mutant::ProposalNotAbove, |server| {
        server.node.fence = Some(7);
        server.propose("a", 7) == Some(Grant::Numbered(8)) && server.propose("b", 9) == Some(Grant::Proposed(Token(9)))
    }),
    (Mutant::ProposalNotCounted, |server| {
        server.propose("a", 7) == Some(Grant::Proposed(Token(7)))
            && server.acquire(&["b"], OTHER) == Some(Grant::Numbered(8))
    }),
    (Mutant::ExtendSets, |server| !server.extend(TTL)),
    (Mutant::ExtendShortens, |server| {
        server.with_a_term();
        server.extend(Millis(1000)) && server.lives("a") == Some(TTL.0)
    }),
    (Mutant::SealShortens, |server| {
        server.with_a_term();
        server.ask(&["a"], Op::Seal { attempt: OURS }) == Vote::Sealed { ttl_left: TTL }
    }),
    (Mutant::ExtendUnseals, |server| {
        server.with_a_term();
        server.ask(&["a"], Op::Seal { attempt: OURS });
        !server.extend(TTL)
    }),
    (Mutant::ReleaseIgnoresAttempt, |server| {
        server.with_a_term();
        server.ask(&["a"], Op::Release { attempt: OTHER, stages: Stages::All }) == Vote::Released(0)
    }),
    (Mutant::AdoptByAttemptOnly, |server| {
        server.acquire(&["a"], OURS);
        !server.extend(TTL)
    }),
];

#[test]
fn each_planted_bug_of_a_node_is_found_by_its_requests() {
    let wrong: Vec<String> = (FOUND.iter())
        .filter(|(mutant, case)| !case(&mut Server::new(None)) || case(&mut Server::new(Some(*mutant))))
        .map(|(mutant, _)| alloc::format!("{mutant:?}"))
        .collect();
    assert_eq!(wrong, [""; 0], "found without the bug, or not found with it");
}
