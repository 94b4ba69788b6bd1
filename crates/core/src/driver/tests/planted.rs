//! Planted bugs of the driver, each with a scenario that finds it.

use super::*;

type Finding = Result<(), String>;
type Scenario = fn(Driven) -> Finding;

/// Finds `what` unless the scenario `holds`.
fn expect(holds: bool, what: &str) -> Finding {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

fn one_attempt_gives_way_to_the_next(mut driven: Driven) -> Finding {
    driven.want(Time(900));
    driven.command(Time(901), Command::Forget);
    driven.want(Time(902));
    let sent: Vec<Round> = driven.requests().iter().map(|(round, ..)| *round).collect();
    expect(sent.is_sorted(), "the second attempt overtakes the release of the first")
}

fn a_late_round_is_followed_by_one_at_the_phase(driven: Driven) -> Finding {
    let mut driven = driven.adopts(Time(903));
    driven.answer(Time(911), &Vote::Extended);
    driven.wake(Time(6311));
    let late = driven.driver.lease().next_round_at();
    driven.answer(Time(6311), &Vote::Extended);
    let phase = next_phase(Time(6311), CONFIG.renew_interval, Attempt(7));
    expect(late.is_none() && driven.driver.lease().next_round_at() == Some(phase), "its phase is lost")
}

fn an_answer_for_an_earlier_lease_comes_late(driven: Driven) -> Finding {
    let mut driven = driven.adopts(Time(903));
    driven.answer_to(Time(911), LeaseId { generation: 0, ..ID }, &Vote::Extended);
    expect(matches!(driven.driver.view().standing, Standing::Adopting(_)), "another lease's votes count")
}

/// Each with the planted bug that it finds.
const FOUND: [(Mutant, Scenario); 3] = [
    (Mutant::EndAfterVote, one_attempt_gives_way_to_the_next),
    (Mutant::PhaseNotRestored, a_late_round_is_followed_by_one_at_the_phase),
    (Mutant::AnotherIncarnation, an_answer_for_an_earlier_lease_comes_late),
];

/// The planted bugs that are found here.
pub const PLANTED: [Mutant; 3] = [FOUND[0].0, FOUND[1].0, FOUND[2].0];

#[test]
fn planted_bugs_are_found() {
    for (mutant, scenario) in FOUND {
        assert_eq!(scenario(Driven::new()), Ok(()), "without {mutant:?}");
        assert!(scenario(Driven::with(Some(mutant))).is_err(), "{mutant:?}");
    }
}
