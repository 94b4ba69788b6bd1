//! Planted bugs of the driver, each with a scenario that finds it.

use super::*;

/// Whether a scenario ends as it should.
pub type Scenario = fn(Driven) -> bool;

/// The second attempt does not overtake the release of the first.
fn one_attempt_gives_way_to_the_next(mut driven: Driven) -> bool {
    driven.want(Time(900));
    driven.command(Time(901), Command::Forget);
    driven.want(Time(902));
    driven.requests().is_sorted_by_key(|(round, ..)| *round)
}

/// Its phase is not lost.
fn a_late_round_is_followed_by_one_at_the_phase(mut driven: Driven) -> bool {
    driven.command(Time(903), Command::Adopt(term()));
    driven.answer(Time(911), &Vote::Extended);
    driven.wake(Time(6311));
    let late = driven.driver.lease().next_round_at();
    driven.answer(Time(6311), &Vote::Extended);
    let phase = next_phase(Time(6311), CONFIG.renew_interval, Attempt(7));
    late.is_none() && driven.driver.lease().next_round_at() == Some(phase)
}

/// The votes of another lease do not count.
fn an_answer_for_an_earlier_lease_comes_late(mut driven: Driven) -> bool {
    driven.command(Time(903), Command::Adopt(term()));
    driven.answer_to(Time(911), LeaseId { generation: 0, ..ID }, &Vote::Extended);
    matches!(driven.driver.view().standing, Standing::Adopting(_))
}

/// Each with the planted bug that it finds.
pub const FOUND: [(Mutant, Scenario); 3] = [
    (Mutant::EndAfterVote, one_attempt_gives_way_to_the_next),
    (Mutant::PhaseNotRestored, a_late_round_is_followed_by_one_at_the_phase),
    (Mutant::AnotherIncarnation, an_answer_for_an_earlier_lease_comes_late),
];

#[test]
fn planted_bugs_are_found() {
    for (mutant, scenario) in FOUND {
        assert!(scenario(Driven::new()), "without {mutant:?}");
        assert!(!scenario(Driven::with(Some(mutant))), "{mutant:?}");
    }
}
