//! Which node of a quorum votes with which server.
//!
//! Two addresses can lead to one server, for example after a typing error. If both nodes voted, one server would have two votes. So a
//! server votes for the node of which this process reached it first, and the other node has no vote: the quorum keeps its majority of
//! the other servers. Votes that a server gave for one node count for up to the longest lease, so for as long it votes for no other one.

use alloc::vec::Vec;

use crate::marker::RunId;
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// The servers that the nodes of a quorum have reached.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    claims: Vec<Claim>,
    waiting: Vec<Waiting>,
}

/// A node without a vote. A server that restarts is another one: the node lets the one that had the vote reach it first, so that the vote
/// stays with that one.
#[derive(Clone, Debug)]
struct Waiting {
    node: Node,
    by: Node,
    /// Until when, once it has reached another server.
    until: Option<Time>,
}

/// How long a node lets another one reach a server first.
const RETURNS: Millis = Millis(5000);

#[derive(Clone, Debug)]
struct Claim {
    server: RunId,
    node: Node,
    /// When the node no longer led to this server.
    left: Option<Time>,
}

/// The server votes for another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// That node.
    pub by: Node,
    /// Whether that node leads to another server now. Its votes from this one may still count.
    pub has_left: bool,
}

impl Servers {
    /// The node leads to this server now.
    ///
    /// # Errors
    /// The server votes for another node: this one has no vote.
    pub fn reached(&mut self, now: Time, node: Node, server: &RunId, longest: Millis) -> Result<(), Taken> {
        let is_claimed = self.claims.iter().any(|claim| claim.server == *server);
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.node == node && !is_claimed)
            && now < *waiting.until.get_or_insert(now + RETURNS)
        {
            return Err(Taken { by: waiting.by, has_left: false });
        }
        self.leaves(now, node, Some(server));
        self.claims.retain(|claim| claim.left.is_none_or(|left| now < left + longest));
        match self.claims.iter_mut().find(|claim| claim.server == *server) {
            Some(Claim { node: by, left, .. }) if *by != node => {
                let by = *by;
                let taken = Taken { by, has_left: left.is_some() };
                self.waiting.push(Waiting { node, by, until: None });
                Err(taken)
            }
            Some(claim) => {
                claim.left = None;
                Ok(())
            }
            None => {
                self.claims.push(Claim { server: server.clone(), node, left: None });
                Ok(())
            }
        }
    }

    /// The node does not lead to any server but this one any more.
    fn leaves(&mut self, now: Time, node: Node, but: Option<&RunId>) {
        let mut has_left = false;
        for claim in self.claims.iter_mut().filter(|claim| claim.node == node && Some(&claim.server) != but) {
            has_left |= claim.left.is_none();
            claim.left.get_or_insert(now);
        }
        self.waiting.retain(|waiting| waiting.node != node && !(has_left && waiting.by == node));
    }

    /// The address of the node was changed.
    pub fn moved(&mut self, now: Time, node: Node) {
        self.leaves(now, node, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Millis = Millis(60_000);
    const A: Node = Node(0);
    const B: Node = Node(1);

    fn at(servers: &mut Servers, now: u64, node: Node, server: &str) -> Result<(), Taken> {
        servers.reached(Time(now), node, &server.into(), LONGEST)
    }

    const fn taken(by: Node, has_left: bool) -> Result<(), Taken> {
        Err(Taken { by, has_left })
    }

    #[test]
    fn a_server_votes_for_the_node_that_reached_it_first() {
        let mut servers = Servers::default();
        assert_eq!(at(&mut servers, 0, B, "s"), Ok(()));
        assert_eq!(at(&mut servers, 1, A, "s"), taken(B, false));
        // The connection breaks, and the other node is the first to connect again.
        assert_eq!(at(&mut servers, 90_000, A, "s"), taken(B, false));
        assert_eq!(at(&mut servers, 90_001, B, "s"), Ok(()));
        servers.moved(Time(90_002), A);
        assert_eq!(at(&mut servers, 90_003, A, "t"), Ok(()), "its address is corrected");
    }

    #[test]
    fn votes_that_may_still_count_are_not_given_again() {
        let mut servers = Servers::default();
        assert_eq!(at(&mut servers, 0, A, "s"), Ok(()));
        assert_eq!(at(&mut servers, 5, B, "s"), taken(A, false));
        assert_eq!(at(&mut servers, 10, A, "t"), Ok(()));
        assert_eq!(at(&mut servers, 20, A, "t"), Ok(()));
        assert_eq!(at(&mut servers, 60_009, B, "s"), taken(A, true));
        assert_eq!(at(&mut servers, 60_010, B, "s"), Ok(()));
        assert_eq!(at(&mut servers, 60_011, A, "s"), taken(B, false));
        assert_eq!(servers.claims.len(), 2);

        // The new address cannot be reached.
        servers.moved(Time(70_000), B);
        servers.moved(Time(80_000), B);
        assert_eq!(at(&mut servers, 129_999, A, "s"), taken(B, true));
        assert_eq!(at(&mut servers, 130_000, A, "s"), Ok(()));
    }

    #[test]
    fn the_vote_stays_with_its_node_when_the_server_restarts() {
        let mut servers = Servers::default();
        assert_eq!(at(&mut servers, 0, A, "s"), Ok(()));
        assert_eq!(at(&mut servers, 1, B, "s"), taken(A, false));
        assert_eq!(at(&mut servers, 2, A, "s"), Ok(()), "its connection was lost");
        assert_eq!(at(&mut servers, 2, B, "s again"), taken(A, false));
        assert_eq!(at(&mut servers, 3, A, "s again"), Ok(()));
        assert_eq!(at(&mut servers, 4, B, "s again"), taken(A, false));
        assert_eq!(at(&mut servers, 4, A, "s again"), Ok(()), "its connection was lost");
        assert_eq!(at(&mut servers, 4, B, "a third time"), taken(A, false));
        // Whoever reaches another server, or whose address is changed, has nothing more to do with that one.
        assert_eq!(at(&mut servers, 5, A, "t"), Ok(()));
        assert_eq!(at(&mut servers, 6, B, "u"), Ok(()));
        assert_eq!(at(&mut servers, 7, A, "u"), taken(B, false));
        servers.moved(Time(8), A);
        assert_eq!(at(&mut servers, 9, A, "v"), Ok(()));
        assert_eq!(at(&mut servers, 10, A, "u"), taken(B, false));
        servers.moved(Time(11), B);
        assert_eq!(at(&mut servers, 12, A, "w"), Ok(()));
        assert!(servers.waiting.is_empty());

        // The name of its address leads to another server without a change here: it need not wait for long.
        assert_eq!(at(&mut servers, 13, B, "w"), taken(A, false));
        assert_eq!(at(&mut servers, 14, B, "x"), taken(A, false));
        assert_eq!(at(&mut servers, 5013, B, "x"), taken(A, false));
        assert_eq!(at(&mut servers, 5014, B, "x"), Ok(()));
    }

    #[test]
    fn a_node_that_comes_back_keeps_its_server() {
        let mut servers = Servers::default();
        assert_eq!(at(&mut servers, 0, A, "s"), Ok(()));
        servers.moved(Time(1), A);
        assert_eq!(at(&mut servers, 2, A, "s"), Ok(()), "the same server under another address");
        assert_eq!(at(&mut servers, 3, B, "t"), Ok(()));
        assert_eq!(at(&mut servers, 100_000, B, "s"), taken(A, false));
    }
}
