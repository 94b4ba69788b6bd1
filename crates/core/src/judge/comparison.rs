//! What explains the jumps of the nodes that have answered.

use alloc::vec::Vec;

use crate::clock::{Jump, Sample};
use crate::quorum::{Node, Quorum};
use crate::rules::Rules;
use crate::time::Drift;

/// A node that can be compared: its answer, and how far its offset has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub node: Node,
    pub answer: Sample,
    pub jump: Jump,
    /// Whether that is more than what is tolerated.
    pub is_moved: bool,
}

/// What explains the jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Explanation {
    /// The clock of this process jumped by this much.
    Own(Jump),
    /// The nodes that moved stepped.
    Nodes,
    /// The same, but more than one moved, and not alike: this process may have jumped again between two answers.
    Different,
    /// Either: the others answered so slowly, or were away for so long, that they may have moved or not.
    Open,
}

/// The nodes that have answered one comparison.
pub(super) struct Comparison {
    pub nodes: Vec<Compared>,
    /// The same with wider jumps: a small jump of the own clock that was tolerated before may be part of some of them.
    loose: Vec<Compared>,
    /// How many nodes must agree.
    needed: usize,
    rules: Rules,
}

impl Comparison {
    pub fn new(nodes: Vec<Compared>, quorum: Quorum, drift: Drift, rules: Rules) -> Self {
        let loosened = |one: &Compared| Compared { jump: one.jump.loosened(drift), ..*one };
        let loose = nodes.iter().map(loosened).collect();
        Self { nodes, loose, needed: quorum.majority().max(2), rules }
    }

    /// How many nodes moved.
    pub fn moved(&self) -> usize {
        self.nodes.iter().filter(|one| one.is_moved).count()
    }

    pub fn explanation(&self) -> Explanation {
        match self.explain(&self.nodes) {
            Explanation::Different if self.moved() > 1 => match self.explain(&self.loose) {
                Explanation::Own(lost) => Explanation::Own(lost),
                _ => Explanation::Different,
            },
            explanation => explanation,
        }
    }

    /// Whether every node moved, and enough for a decision.
    pub fn all_moved(&self) -> bool {
        let moved = self.moved();
        moved == self.nodes.len() && moved >= self.needed && !breaks!(self.rules, LargestSubsetDecides)
    }

    /// The value that explains the jumps of a majority, and the other nodes.
    pub fn of_a_majority(&self) -> Option<(Jump, Vec<Node>)> {
        let at = densest(&self.loose, None).filter(|at| agreeing(&self.loose, *at).count() >= self.needed)?;
        let lost = common_of(&self.loose, |one| one.jump.contains(at))?;
        let others = self.loose.iter().filter(|one| !one.jump.contains(at)).map(|one| one.node).collect();
        Some((lost, others))
    }

    /// Whether nothing can be decided yet, of `known` nodes whose offset is known. With fewer of these than needed, as with one node
    /// of one, nothing else can be compared.
    pub fn is_too_early(&self, known: usize) -> bool {
        let too_few = self.nodes.len() < self.needed.min(known);
        let alike = common_of(&self.loose, |one| one.is_moved).is_some();
        let may_yet_agree = alike && self.moved() + (known - self.nodes.len()) >= self.needed;
        (too_few || may_yet_agree) && !breaks!(self.rules, TicketWithoutMajority)
    }

    fn explain(&self, nodes: &[Compared]) -> Explanation {
        let common = self.common(nodes);
        let at = common.and_then(|common| densest(nodes, Some(common)));
        let Some((common, at)) = common.zip(at.filter(|at| agreeing(nodes, *at).count() >= self.needed)) else {
            let moved = nodes.iter().filter(|one| one.jump.excludes_zero()).count();
            return if moved > 1 { Explanation::Different } else { Explanation::Nodes };
        };
        if agreeing(nodes, at).filter(|one| one.jump.excludes_zero()).count() < 2 {
            let nobody_contradicts = agreeing(nodes, at).count() == nodes.len();
            return if nobody_contradicts { Explanation::Open } else { Explanation::Nodes };
        }
        let lost = agreeing(nodes, at).try_fold(common, |all, one| all.common(one.jump));
        Explanation::Own(lost.unwrap_or(common))
    }

    /// The values that lie in every jump beyond the tolerance.
    fn common(&self, nodes: &[Compared]) -> Option<Jump> {
        if breaks!(self.rules, NodeWithoutJumpContradicts) {
            return common_of(nodes, |_| true);
        }
        #[cfg(feature = "check")]
        if breaks!(self.rules, LargestSubsetDecides) {
            let allies = |one: &&Compared| nodes.iter().filter(|other| one.jump.common(other.jump).is_some()).count();
            let one = nodes.iter().filter(|one| one.is_moved).max_by_key(allies);
            return one.filter(|one| allies(one) >= self.needed).map(|one| one.jump);
        }
        common_of(nodes, |one| one.is_moved)
    }
}

/// The nodes whose jump may have this value.
fn agreeing(nodes: &[Compared], at: i128) -> impl Iterator<Item = &Compared> {
    nodes.iter().filter(move |one| one.jump.contains(at))
}

/// The value that most jumps allow: it lies at the start of one of them.
fn densest(nodes: &[Compared], within: Option<Jump>) -> Option<i128> {
    let least = within.map_or(i128::MIN, |within| within.low);
    let starts = nodes.iter().map(|one| one.jump.low.max(least));
    let inside = starts.filter(|at| within.is_none_or(|within| within.contains(*at)));
    inside.max_by_key(|at| agreeing(nodes, *at).count())
}

/// The values that lie in each of these jumps. `None` if there is no such value, or no such jump.
fn common_of(nodes: &[Compared], of: impl Fn(&Compared) -> bool) -> Option<Jump> {
    let mut jumps = nodes.iter().filter(|one| of(one)).map(|one| one.jump);
    let first = jumps.next()?;
    jumps.try_fold(first, Jump::common)
}
