//! Planted bugs, each with a scenario that finds it. The same scenario without the bug finds nothing.
//!
//! What a scenario finds is a broken invariant, which every step checks, or what it says itself.

use super::*;
use crate::check::Layer;

type Finding = Result<(), String>;

/// Finds `what` unless the scenario `holds`.
fn expect(holds: bool, what: &str) -> Finding {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

fn late_answers_in_round_one(scenario: &mut Scenario) -> Finding {
    scenario.links = [Link::Slow(400); 3];
    scenario.want();
    scenario.pass(400);
    scenario.links = [Link::Up; 3];
    scenario.pass(400);
    expect(scenario.published.len() == 1, "no term")
}

fn a_term_is_taken_and_renewed(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.pass(6000);
    expect(scenario.is_held(), "the term is lost")
}

/// The clocks of two nodes step forward by ten seconds between round 1 and round 2.
fn clocks_step_between_the_rounds(scenario: &mut Scenario) -> Finding {
    scenario.links = [Link::Slow(100); 3];
    scenario.want();
    for server in &mut scenario.servers[..2] {
        server.keys.values_mut().for_each(|entry| entry.ends -= 10_000);
    }
    scenario.links = [Link::Up, Link::Up, Link::Down];
    scenario.pass(100);
    expect(scenario.published.len() == 1, "no term")
}

fn new_durations_arrive_during_a_round(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.links = [Link::Slow(300); 3];
    scenario.pass(5000);
    scenario.give(Command::Configure(Box::new(Config { ttl: Millis(60_000), ..config() })));
    scenario.pass(300);
    expect(scenario.is_held(), "the term is lost")
}

/// The round under the shorter duration is executed and its answers are lost: the belief of the round before goes on.
fn the_lease_duration_becomes_shorter(scenario: &mut Scenario) -> Finding {
    scenario.give(Command::Configure(Box::new(Config { ttl: Millis(60_000), ..config() })));
    scenario.held();
    scenario.give(Command::Configure(Box::new(config())));
    scenario.links = [Link::Deaf; 3];
    scenario.pass(10_000);
    expect(scenario.is_held(), "the term is lost")
}

fn no_node_answers_until_the_deadline(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.links = [Link::Down; 3];
    scenario.pass(STOP + 500);
    scenario.links = [Link::Up; 3];
    scenario.pass(5000);
    expect(!scenario.has_sent("release"), "a term that another may believe in was released")
}

fn a_process_is_paused_past_its_deadline(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.now += STOP + 3000;
    scenario.give(Input::Wake);
    expect(!scenario.has_sent("seal"), "a process that was paused sealed a term that others may keep")
}

/// The keys ended while the clock of the process stood still, and no node answers when it is told.
fn the_clock_of_the_process_stood_still(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.links = [Link::Silent; 3];
    scenario.forgot = true;
    scenario.lose(TTL);
    scenario.give(Input::ClockJumped);
    expect(scenario.believed().is_none(), "a belief outlived a jump of the own clock")
}

fn two_nodes_abstain(scenario: &mut Scenario) -> Finding {
    scenario.held();
    scenario.links = [Link::Up, Link::Away, Link::Away];
    scenario.pass(6000);
    expect(scenario.is_held(), "an abstention was taken for a no")
}

fn the_first_seals_are_lost(scenario: &mut Scenario) -> Finding {
    let term = scenario.held();
    scenario.links = [Link::Down; 3];
    scenario.give(Command::End { term, proof: false });
    scenario.links = [Link::Up; 3];
    scenario.pass(5000);
    let sealed = scenario.sealed();
    expect(sealed == Some(true), "the seal is not repeated")
}

/// The answers to the seals arrive after the keys have ended. A node whose keys ended can be joined by another process,
/// so such a seal keeps nobody from extending.
fn seals_are_answered_after_the_keys_have_ended(scenario: &mut Scenario) -> Finding {
    let term = scenario.held();
    scenario.links = [Link::Down; 3];
    scenario.restart(Config { command_timeout: Millis(2000), ..config() });
    scenario.now += TTL - 300;
    scenario.links = [Link::Slow(400); 3];
    scenario.give(Command::End { term, proof: false });
    scenario.pass(500);
    let sealed = scenario.sealed() == Some(true);
    expect(!sealed, "a seal counts although its keys have ended")
}

fn one_node_of_three_is_sealed(scenario: &mut Scenario) -> Finding {
    let term = scenario.held();
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.give(Command::End { term, proof: false });
    let sealed = scenario.sealed() == Some(true);
    expect(!sealed, "a seal on one node of three counts")
}

fn a_lease_is_forgotten_while_its_publication_is_under_way(scenario: &mut Scenario) -> Finding {
    scenario.want();
    scenario.give(Command::Forget);
    expect(!scenario.has_sent("release"), "a term was released that the status may name")
}

fn a_publication_is_not_answered(scenario: &mut Scenario) -> Finding {
    let attempt = scenario.want();
    scenario.give(Command::Published { attempt, outcome: Publication::Unknown });
    expect(!scenario.has_sent("release"), "a term was released that the status may name")
}

fn the_third_node_is_joined(scenario: &mut Scenario) -> Finding {
    scenario.contend(2);
    scenario.held();
    scenario.drop_keys(2);
    scenario.pass(2500);
    let asked = scenario.sent_to(2);
    expect(
        asked.ends_with(&["acquire", "extend", "confirm"]),
        "a join was confirmed without a round begun after its grant",
    )
}

fn a_term_is_published(scenario: &mut Scenario) -> Finding {
    scenario.want();
    expect(scenario.has_sent("confirm"), "a term was published that no node confirmed")
}

/// Round 2 is under way when the third node grants.
fn the_third_grant_comes_after_the_first_round(scenario: &mut Scenario) -> Finding {
    scenario.links = [Link::Up, Link::Slow(100), Link::Slow(150)];
    scenario.want();
    scenario.pass(160);
    let confirmed = scenario.sent.iter().any(|(node, op)| node.0 == 2 && name(op) == "confirm");
    expect(!confirmed, "a grant from after the choice of the token was confirmed")
}

fn the_status_shows_a_greater_token_than_the_nodes(scenario: &mut Scenario) -> Finding {
    scenario.want_above(5000, None);
    let token = scenario.published.first().map(|id| id.token);
    expect(token == Some(Token(5001)), "the token is not above the floor")
}

/// The first node takes the proposed token, the second gives a greater number, and both have to confirm.
fn a_proposal_is_too_low_for_a_node(scenario: &mut Scenario) -> Finding {
    scenario.servers[1].fence = Some(2000);
    scenario.links[2] = Link::Down;
    scenario.want_above(0, Some(1001));
    let token = scenario.published.first().map(|id| id.token);
    expect(token == Some(Token(2001)), "the token is not above the counters of a majority")
}

fn a_try_fails(scenario: &mut Scenario) -> Finding {
    for node in 0..3 {
        scenario.contend(node);
    }
    scenario.want();
    (0..3).for_each(|node| scenario.drop_keys(node));
    scenario.pass(TTL + 1000);
    let acquires = scenario.count("acquire");
    expect(acquires == 3, "the try was repeated under its attempt id")
}

/// The grant of the third node arrives during a round that began before it.
fn a_round_is_under_way_when_a_join_is_granted(scenario: &mut Scenario) -> Finding {
    // The third node is asked every three seconds, and a round begins 200 ms after it was asked for the third time.
    scenario.give(Command::Configure(Box::new(Config { renew_interval: Millis(6200), ..config() })));
    scenario.contend(2);
    scenario.held();
    scenario.pass(5000);
    scenario.drop_keys(2);
    scenario.links = [Link::Up, Link::Up, Link::Slow(400)];
    scenario.pass(1000);
    scenario.links = [Link::Slow(300), Link::Slow(300), Link::Up];
    scenario.pass(250);
    scenario.links = [Link::Up; 3];
    scenario.pass(4000);
    let asked = scenario.sent_to(2);
    let confirm = asked.iter().position(|kind| *kind == "confirm");
    expect(
        confirm.is_some_and(|at| asked[..at].ends_with(&["acquire", "extend", "extend"])),
        &format!("a join was confirmed by a round that began before its grant: {asked:?}"),
    )
}

/// The first node was not extended for a while, so its keys end before the second node is sealed.
fn the_first_sealed_keys_end_before_the_second_are_sealed(scenario: &mut Scenario) -> Finding {
    let term = scenario.held();
    scenario.links = [Link::Down, Link::Up, Link::Up];
    scenario.pass(25_000);
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.give(Command::End { term, proof: false });
    scenario.links = [Link::Down; 3];
    scenario.pass(6000);
    scenario.links = [Link::Down, Link::Up, Link::Down];
    scenario.pass(3000);
    let sealed = scenario.sealed() == Some(true);
    expect(!sealed, "a seal counts although its keys have ended")
}

fn two_nodes_have_no_keys_to_seal(scenario: &mut Scenario) -> Finding {
    let term = scenario.held();
    scenario.drop_keys(0);
    scenario.drop_keys(1);
    scenario.links = [Link::Up, Link::Up, Link::Down];
    scenario.give(Command::End { term, proof: false });
    let sealed = scenario.sealed() == Some(true);
    expect(!sealed, "nodes without keys count as sealed")
}

/// Otherwise each jump that one node shows would give the term another lease, while the other nodes do not answer.
fn a_clock_jumps_while_one_node_answers(scenario: &mut Scenario) -> Finding {
    scenario.held();
    let stop_at = scenario.term().and_then(|term| term.stop_at).expect("it is held");
    scenario.links = [Link::Up, Link::Down, Link::Down];
    for _ in 0..3 {
        scenario.pass(4000);
        scenario.give(Input::ClockJumped);
    }
    scenario.pass(stop_at.0 - scenario.now - 1);
    expect(scenario.end_reason().is_none(), "a jump brings the end forward")?;
    scenario.pass(1);
    expect(scenario.end_reason() == Some(EndReason::NeverConfirmed), "a jump postpones the end")
}

fn a_dropped_term_is_adopted(scenario: &mut Scenario) -> Finding {
    let id = scenario.held();
    scenario.restart(config());
    scenario.links = [Link::Down; 3];
    scenario.give(Command::AdoptOverrun(id));
    scenario.pass(2 * config().command_timeout.0 + 1);
    expect(scenario.end_reason().is_some(), "the keys are known to have expired")
}

/// A planted bug and the scenario that finds it.
type Pair = (Mutant, fn(&mut Scenario) -> Finding);

const FOUND: [Pair; 27] = [
    (Mutant::OneRound, a_term_is_published),
    (Mutant::ConfirmOutsideFirstRound, the_third_grant_comes_after_the_first_round),
    (Mutant::NoStatusFloor, the_status_shows_a_greater_token_than_the_nodes),
    (Mutant::ProposalTakenByTooFew, a_proposal_is_too_low_for_a_node),
    (Mutant::ReusedAttempt, a_try_fails),
    (Mutant::JoinConfirmedByEarlierRound, a_round_is_under_way_when_a_join_is_granted),
    (Mutant::SealVotesExpired, the_first_sealed_keys_end_before_the_second_are_sealed),
    (Mutant::AbsentCountedAsSealed, two_nodes_have_no_keys_to_seal),
    (Mutant::DeadlineFromReply, late_answers_in_round_one),
    (Mutant::NoDriftMargin, a_term_is_taken_and_renewed),
    (Mutant::ConfirmLifeIgnored, clocks_step_between_the_rounds),
    (Mutant::ConfigureInFlight, new_durations_arrive_during_a_round),
    (Mutant::ExtendShortens, the_lease_duration_becomes_shorter),
    (Mutant::NoLocalDeadline, no_node_answers_until_the_deadline),
    (Mutant::ReleaseOnLocalDeadline, no_node_answers_until_the_deadline),
    (Mutant::ShownLast, no_node_answers_until_the_deadline),
    (Mutant::SealOnLateWake, a_process_is_paused_past_its_deadline),
    (Mutant::BeliefOutlivesClockJump, the_clock_of_the_process_stood_still),
    (Mutant::JumpPostponesEnd, a_clock_jumps_while_one_node_answers),
    (Mutant::OverrunForgotten, a_dropped_term_is_adopted),
    (Mutant::AbstentionIsNo, two_nodes_abstain),
    (Mutant::SealNotRepeated, the_first_seals_are_lost),
    (Mutant::SealLifeFromReply, seals_are_answered_after_the_keys_have_ended),
    (Mutant::SealOnTooFew, one_node_of_three_is_sealed),
    (Mutant::ForgetReleasesPublishing, a_lease_is_forgotten_while_its_publication_is_under_way),
    (Mutant::UnknownWriteReleased, a_publication_is_not_answered),
    (Mutant::JoinConfirmedAtOnce, the_third_node_is_joined),
];

#[test]
fn each_planted_bug_is_found_by_its_scenario() {
    for (mutant, scenario) in FOUND {
        let mut planted = Scenario::with(config(), Some(mutant));
        let finding = scenario(&mut planted);
        let found = planted.broken.or(finding.err());
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}

#[test]
fn the_unit_tests_find_the_bugs_that_the_table_gives_them() {
    let found: Vec<Mutant> = (FOUND.iter().map(|(mutant, _)| *mutant))
        .chain(crate::judge::tests::FOUND.iter().map(|(mutant, _)| *mutant))
        .chain(crate::driver::tests::FOUND.iter().map(|(mutant, _)| *mutant))
        .chain(crate::admission::tests::PLANTED)
        .chain(crate::seed::PLANTED)
        .chain(crate::wire::tests::PLANTED)
        .collect();
    for mutant in Mutant::ALL {
        let named = mutant.found_by().contains(&Layer::UnitTest);
        assert_eq!(found.contains(mutant), named, "{mutant:?}: the table names the unit tests: {named}");
    }
}

#[test]
fn the_same_scenarios_find_nothing_without_a_bug() {
    for (mutant, scenario) in FOUND {
        assert_eq!(scenario(&mut Scenario::new()), Ok(()), "the scenario for {mutant:?}");
    }
}

#[test]
fn belief_that_outlives_the_keys_is_found_by_the_invariant() {
    let outlives = Violation::BeliefOutlivesKeys.to_string();
    let bugs = [
        Mutant::DeadlineFromReply,
        Mutant::NoDriftMargin,
        Mutant::ConfirmLifeIgnored,
        Mutant::ConfigureInFlight,
        Mutant::ExtendShortens,
    ];
    for (mutant, scenario) in FOUND.into_iter().filter(|(mutant, _)| bugs.contains(mutant)) {
        let mut planted = Scenario::with(config(), Some(mutant));
        let _ = scenario(&mut planted);
        assert_eq!(planted.broken.as_ref(), Some(&outlives), "{mutant:?}");
    }
}
