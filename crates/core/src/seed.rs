//! The counter with which a node that lost its memory may vote again.
//!
//! The counter must not be below any token that was ever confirmed. A majority of the others knows the greatest. Without
//! such a majority, Unix time in microseconds is greater than every token, if the clocks are right. A clock may have been
//! set back, so the counter must also exceed every token in a status, read after the wait: only then does no status show
//! a token that a later read would not show.

use alloc::vec::Vec;
use core::fmt;

use crate::op::Token;
use crate::quorum::{Node, Quorum};
use crate::rules::Rules;
use crate::time::Millis;

/// The largest difference between clocks from which a counter may be seeded.
pub const CLOCKS_AGREE_WITHIN: Millis = Millis::from_secs(10);

/// The configuration under which a node votes, by its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allegiance {
    /// Ours: the node has its memory.
    Ours,
    /// None: the node lost its data or was never admitted.
    Nobody,
    /// Another, under which another process admitted it.
    Others,
}

/// What one node answered when its fence was read, after the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceReport {
    /// The configuration under which it votes.
    pub allegiance: Allegiance,
    /// Its counter: no number that it has given or confirmed is greater. Zero if it has none.
    pub fence: Token,
    /// Its clock in microseconds of Unix time.
    pub clock: u64,
}

/// What the counter of a node is computed from, read after its wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fences {
    /// The answer of the node itself.
    pub target: FenceReport,
    /// The answers of the other nodes.
    pub others: Vec<FenceReport>,
    /// The highest token that any status of the quorum has shown.
    pub floor: Token,
    /// The clock of this process in microseconds of Unix time.
    pub own_clock: u64,
}

impl Fences {
    /// Those that the nodes have reported. `None` if `target` has not: it is asked again, whatever the others say.
    pub fn of(target: Node, mut reports: Vec<(Node, FenceReport)>, floor: Token, own_clock: u64) -> Option<Self> {
        let place = reports.iter().position(|(node, _)| *node == target)?;
        let (_, target) = reports.swap_remove(place);
        Some(Self { target, others: reports.into_iter().map(|(_, report)| report).collect(), floor, own_clock })
    }

    /// How many other nodes have their memory.
    pub fn remembering(&self) -> usize {
        self.others.iter().filter(|report| report.allegiance == Allegiance::Ours).count()
    }
}

/// Why no counter can be computed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unseedable {
    /// Too few admitted nodes answered, and the clocks disagree.
    ClocksDisagree {
        /// Difference between the first and the last clock.
        by: Millis,
    },
    /// Too few nodes vote under our configuration, and one votes under another, whose leases may be longer than ours.
    OtherConfiguration,
    /// Too few admitted nodes answered, and the statuses were not read after the wait.
    StatusesUnread,
    /// The counter would leave the range of tokens.
    Exhausted,
}

impl fmt::Display for Unseedable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClocksDisagree { by } => write!(
                f,
                "the counter of the tokens cannot start: too few nodes vote, and the clocks of the nodes and of this process \
                 differ by {} ms (at most {} ms): synchronize the clocks",
                by.0, CLOCKS_AGREE_WITHIN.0
            ),
            Self::OtherConfiguration => write!(
                f,
                "another node votes under another configuration, whose leases may be longer: restore the spec under \
                 which it was admitted, or choose another keyPrefix, or stop every operator that uses it for its \
                 longest lease and then delete the marker on every node"
            ),
            Self::StatusesUnread => write!(
                f,
                "too few nodes are admitted, and the API server has not yet listed the statuses of the leases, which show \
                 the highest token; this is tried again"
            ),
            Self::Exhausted => {
                write!(
                    f,
                    "the counter of the tokens would reach 2^53: a clock or a token is far in the future; correct the clock"
                )
            }
        }
    }
}

impl core::error::Error for Unseedable {}

/// The counter. `is_current`: all statuses were read after the wait of the node, or no status exists. A watch can be behind.
///
/// # Errors
/// [`Unseedable`] when neither a majority nor the clocks can be trusted. The node stays without a vote.
pub(crate) fn seed(rules: Rules, quorum: Quorum, fences: &Fences, is_current: bool) -> Result<Token, Unseedable> {
    let Fences { target, others, floor, own_clock } = fences;
    let known = others.iter().map(|report| report.fence).chain([target.fence, *floor]).max().unwrap_or(*floor);
    let remembering = if breaks!(rules, SeedFromUnadmitted) { others.len() } else { fences.remembering() };
    let seed = if remembering >= quorum.majority() {
        known
    } else if others.iter().any(|report| report.allegiance == Allegiance::Others) {
        return Err(Unseedable::OtherConfiguration);
    } else {
        let clocks = || others.iter().map(|report| report.clock).chain([target.clock, *own_clock]);
        let (first, last) = (clocks().min().unwrap_or(*own_clock), clocks().max().unwrap_or(*own_clock));
        let by = Millis((last - first).div_ceil(1000));
        if by > CLOCKS_AGREE_WITHIN {
            return Err(Unseedable::ClocksDisagree { by });
        }
        if !is_current && !breaks!(rules, SeedFromStaleStatuses) {
            return Err(Unseedable::StatusesUnread);
        }
        known.max(Token(last))
    };
    if seed.0 + 1 < Token::END { Ok(seed) } else { Err(Unseedable::Exhausted) }
}

/// The planted bugs that the tests below find.
#[cfg(test)]
pub(crate) const PLANTED: [crate::check::Mutant; 2] =
    [crate::check::Mutant::SeedFromUnadmitted, crate::check::Mutant::SeedFromStaleStatuses];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Mutant;

    const NOW: u64 = 1_795_238_400_000_000;

    fn report(admitted: bool, fence: u64, clock: u64) -> FenceReport {
        let allegiance = if admitted { Allegiance::Ours } else { Allegiance::Nobody };
        FenceReport { allegiance, fence: Token(fence), clock }
    }

    fn of_three(target: FenceReport, others: &[FenceReport], floor: u64) -> Result<Token, Unseedable> {
        seeded(None, 3, target, others, floor, true)
    }

    fn seeded(
        broken: Option<Mutant>,
        nodes: u8,
        target: FenceReport,
        others: &[FenceReport],
        floor: u64,
        is_current: bool,
    ) -> Result<Token, Unseedable> {
        let fences = Fences { target, others: others.to_vec(), floor: Token(floor), own_clock: NOW };
        seed(Rules { broken }, Quorum::of(nodes).unwrap(), &fences, is_current)
    }

    #[test]
    fn a_majority_of_the_others_needs_no_clock() {
        let others = [report(true, 70, 0), report(true, 80, u64::MAX / 2)];
        assert_eq!(of_three(report(false, 5, NOW), &others, 75), Ok(Token(80)));
    }

    #[test]
    fn with_fewer_the_clocks_seed() {
        let others = [report(true, 70, NOW + 3)];
        assert_eq!(of_three(report(false, 5, NOW), &others, 75), Ok(Token(NOW + 3)));
        assert_eq!(
            of_three(report(false, 5, NOW), &[], NOW + 9),
            Ok(Token(NOW + 9)),
            "a status showed a greater token"
        );
    }

    #[test]
    fn the_clocks_seed_only_after_the_statuses_were_read_again() {
        let others = [report(true, 70, NOW), report(true, 80, NOW)];
        let stale = |broken, others: &[FenceReport]| seeded(broken, 3, report(false, 5, NOW), others, NOW + 9, false);
        assert_eq!(stale(None, &others[..1]), Err(Unseedable::StatusesUnread));
        assert_eq!(stale(None, &others), Ok(Token(NOW + 9)), "a majority remembers every token");
        let planted = stale(Some(PLANTED[1]), &others[..1]);
        assert_eq!(planted, Ok(Token(NOW + 9)), "the planted bug seeds by a watch that may be behind");
        let error = stale(None, &[report(true, 70, NOW + 20_000_000)]);
        assert!(matches!(error, Err(Unseedable::ClocksDisagree { .. })), "nothing is read in vain: {error:?}");
    }

    #[test]
    fn nodes_that_lost_their_memory_are_no_majority() {
        let others = [report(false, 7, NOW + 1), report(false, 9, NOW + 2)];
        let target = report(false, 5, NOW);
        assert_eq!(of_three(target, &others, 0), Ok(Token(NOW + 2)), "their fences say nothing, the clocks seed");
        let planted = seeded(Some(PLANTED[0]), 3, target, &others, 0, true);
        assert_eq!(planted, Ok(Token(9)), "the planted bug seeds from them");
    }

    #[test]
    fn clocks_that_disagree_seed_nothing() {
        let error = of_three(report(false, 5, NOW + 10_001_000), &[], 0).unwrap_err();
        assert_eq!(error, Unseedable::ClocksDisagree { by: Millis(10_001) });
        assert!(alloc::format!("{error}").contains("10001 ms"));
    }

    #[test]
    fn clocks_do_not_seed_beside_a_node_of_another_configuration() {
        let foreign = FenceReport { allegiance: Allegiance::Others, ..report(false, 70, NOW) };
        let error = of_three(report(false, 5, NOW), &[foreign, report(false, 0, NOW)], 0).unwrap_err();
        assert_eq!(error, Unseedable::OtherConfiguration);
        assert!(alloc::format!("{error}").contains("delete the marker"));
        let majority = [report(true, 70, 0), report(true, 80, 0)];
        let five = [majority[0], majority[1], report(true, 60, 0), foreign];
        let seeded = seeded(None, 5, report(false, 5, NOW), &five, 0, true);
        assert_eq!(seeded, Ok(Token(80)), "a majority under our configuration needs no clock");
    }

    #[test]
    fn tokens_stay_below_two_to_the_53() {
        assert_eq!(of_three(report(false, 5, NOW), &[], Token::END - 1), Err(Unseedable::Exhausted));
    }
}
