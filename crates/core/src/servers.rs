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
pub struct Servers(Vec<Claim>);

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
        for claim in self.0.iter_mut().filter(|claim| claim.node == node && claim.server != *server) {
            claim.left.get_or_insert(now);
        }
        self.0.retain(|claim| claim.left.is_none_or(|left| now < left + longest));
        match self.0.iter_mut().find(|claim| claim.server == *server) {
            Some(Claim { node: by, left, .. }) if *by != node => Err(Taken { by: *by, has_left: left.is_some() }),
            Some(claim) => {
                claim.left = None;
                Ok(())
            }
            None => {
                self.0.push(Claim { server: server.clone(), node, left: None });
                Ok(())
            }
        }
    }

    /// The address of the node was changed.
    pub fn moved(&mut self, now: Time, node: Node) {
        for claim in self.0.iter_mut().filter(|claim| claim.node == node) {
            claim.left.get_or_insert(now);
        }
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
        assert_eq!(at(&mut servers, 90_002, A, "t"), Ok(()), "its address is corrected");
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
        assert_eq!(servers.0.len(), 2);

        // The new address cannot be reached.
        servers.moved(Time(70_000), B);
        servers.moved(Time(80_000), B);
        assert_eq!(at(&mut servers, 129_999, A, "s"), taken(B, true));
        assert_eq!(at(&mut servers, 130_000, A, "s"), Ok(()));
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
