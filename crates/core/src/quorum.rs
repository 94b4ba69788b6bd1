//! The majority of the *configured* nodes, and the decisions that votes of three values allow.

/// The largest number of nodes a quorum may have.
pub const MAX_NODES: u8 = 9;

/// A configured node, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u8);

impl Node {
    /// The place as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The size of a majority of this number of nodes: `q = N/2 + 1`.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The number of configured nodes.
///
/// A majority counts all configured nodes, never only the reachable ones: two majorities of one set share a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: u8,
}

/// The result of a round, as far as the votes allow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A majority voted yes.
    Yes,
    /// N-q+1 nodes voted no: a majority cannot vote yes any more.
    No,
    /// Neither, and votes are outstanding.
    Open,
    /// Neither, and no vote is outstanding. Silence is not a no.
    Unknown,
}

impl Quorum {
    /// One node, which is its own majority.
    pub const ONE: Self = Self { nodes: 1 };

    /// A quorum over `nodes` configured nodes, between 1 and [`MAX_NODES`].
    pub const fn of(nodes: u8) -> Option<Self> {
        if nodes >= 1 && nodes <= MAX_NODES { Some(Self { nodes }) } else { None }
    }

    /// The number of configured nodes: N.
    pub const fn size(self) -> usize {
        self.nodes as usize
    }

    /// The size of a majority: see [`majority`].
    pub const fn majority(self) -> usize {
        majority(self.size())
    }

    /// Whether attempts propose tokens. With an even number of nodes, two attempts that each half of them takes would fail, and each would
    /// be refused by as many nodes as a term needs to refuse it.
    pub const fn has_proposals(self) -> bool {
        self.majority() == self.blocking()
    }

    /// The number of nodes without which there is no majority: `N - q + 1`.
    pub const fn blocking(self) -> usize {
        self.size() - self.majority() + 1
    }

    /// Every node, in order.
    pub fn nodes(self) -> impl Iterator<Item = Node> + Clone {
        (0..self.nodes).map(Node)
    }

    /// The result after `yes`, `no` and `outstanding` votes. All other votes are unknown and stay so.
    pub const fn decide(self, yes: usize, no: usize, outstanding: usize) -> Decision {
        if yes >= self.majority() {
            Decision::Yes
        } else if no >= self.blocking() {
            Decision::No
        } else if outstanding > 0 {
            Decision::Open
        } else {
            Decision::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majorities() {
        for (nodes, majority, blocking) in [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 3, 2), (5, 3, 3), (9, 5, 5)] {
            let quorum = Quorum::of(nodes).unwrap();
            assert_eq!((quorum.majority(), quorum.blocking()), (majority, blocking), "of {nodes}");
        }
        assert_eq!((Quorum::of(0), Quorum::of(10)), (None, None));
    }

    #[test]
    fn three_valued_decisions_of_three_nodes() {
        let of = |yes, no, outstanding| Quorum::of(3).unwrap().decide(yes, no, outstanding);
        assert_eq!(of(2, 0, 1), Decision::Yes);
        assert_eq!(of(0, 2, 1), Decision::No);
        assert_eq!(of(1, 1, 1), Decision::Open);
        assert_eq!(of(1, 1, 0), Decision::Unknown, "silence of the third is not a no");
        assert_eq!(of(1, 0, 0), Decision::Unknown);
    }

    #[test]
    fn an_even_quorum_decides_no_on_a_split() {
        assert_eq!(Quorum::of(4).unwrap().decide(2, 2, 0), Decision::No);
    }
}
