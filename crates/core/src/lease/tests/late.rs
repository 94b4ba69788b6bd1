//! Deadlines that are noticed late, and deadlines of a process that does not lead.

use super::*;

fn unconfirming() -> Config {
    Config { deadline: OnDeadline::Unconfirm, ..config() }
}

/// A process that does not lead, and holds a term.
fn follower() -> (Scenario, TermId) {
    let mut scenario = Scenario::with(unconfirming(), None);
    let id = scenario.held();
    (scenario, id)
}

/// A term that is held, last extended now, and the process paused until `late` ms after its deadline.
fn paused(late: u64) -> (Scenario, TermId) {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.sent.clear();
    scenario.shown.clear();
    scenario.now += STOP + late;
    (scenario, id)
}

#[test]
fn a_single_process_paused_for_less_than_the_keys_live_continues_the_same_term() {
    let (mut scenario, id) = paused(5000);
    scenario.give(Input::Wake);
    assert_eq!(
        scenario.shown.first().map(|view| &view.standing).map(is_unconfirmed),
        Some(true),
        "{:?}",
        scenario.shown
    );
    let Standing::Held(term) = scenario.standing() else { panic!("{:?}", scenario.standing()) };
    assert_eq!((&term.id, term.valid_until), (&id, Some(Time(scenario.now + VALID))));
    assert!(!scenario.has_sent("seal"));
    scenario.pass(60_000);
    assert!(scenario.is_held());
}

/// Adopting or uncertain, and nobody may believe.
fn is_unconfirmed(standing: &Standing) -> bool {
    match standing {
        Standing::Adopting(term) | Standing::Uncertain(term) => (term.valid_until, term.stop_at) == (None, None),
        _ => false,
    }
}

/// A process that runs all the time, without an answer of any node, until `late` ms after its deadline: its last wake was
/// just before that deadline.
fn unanswered(late: u64) -> Scenario {
    let (mut scenario, _) = Scenario::holding();
    scenario.pass(5000);
    scenario.links = [Link::Silent; 3];
    let stop_at = scenario.now + STOP;
    scenario.pass_to(stop_at - 1);
    scenario.sent.clear();
    scenario.shown.clear();
    scenario.now = stop_at + late;
    scenario
}

#[test]
fn a_deadline_noticed_up_to_one_second_late_seals() {
    for (late, seals) in [(0, true), (1000, true), (1001, false), (3000, false)] {
        let mut scenario = unanswered(late);
        scenario.give(Input::Wake);
        let ended = scenario.end_reason();
        assert_eq!(ended, seals.then_some(EndReason::Deadline), "{late} ms late");
        assert_eq!(is_unconfirmed(scenario.standing()), !seals, "{late} ms late");
        assert_eq!(!scenario.has_sent("seal"), !seals, "{late} ms late");
    }
}

#[test]
fn a_renewal_noticed_late_shows_the_pause_before_its_deadline_is_late() {
    let (mut scenario, _) = paused(0);
    scenario.give(Input::Wake);
    assert!(scenario.is_held() && !scenario.has_sent("seal"), "{:?}", scenario.standing());
}

#[test]
fn a_renewal_that_gets_a_turn_after_a_pause_still_shows_the_pause() {
    let (mut scenario, _) = paused(500);
    let now = Time(scenario.now);
    scenario.lease.hold(now);
    scenario.give(Input::Wake);
    assert!(!scenario.has_sent("seal") && is_unconfirmed(&scenario.shown[0].standing), "{:?}", scenario.shown);
}

#[test]
fn belief_ends_before_the_first_request_of_a_process_that_wakes_late() {
    let (mut scenario, _) = paused(5000);
    scenario.lease.handle(Time(scenario.now), Input::Wake);
    let first = scenario.lease.poll_effect();
    let Some(Effect::Changed(view)) = first else { panic!("{first:?}") };
    assert!(is_unconfirmed(&view.standing), "{view:?}");
    assert!(matches!(scenario.lease.poll_effect(), Some(Effect::Send { op: Op::Extend { .. }, .. })));
}

#[test]
fn after_a_late_wake_only_misses_are_a_loss() {
    let (mut scenario, id) = paused(5000);
    scenario.links = [Link::Down, Link::Down, Link::Up];
    scenario.give(Input::Wake);
    scenario.pass(200_000);
    assert!(is_unconfirmed(scenario.standing()), "silence is no loss: {:?}", scenario.standing());
    assert!(!scenario.has_sent("seal"));
    scenario.links = [Link::Up; 3];
    scenario.pass(3000);
    let ending = scenario.lease.view().ending.clone().expect("the keys of two nodes ended long ago");
    assert_eq!((ending.id, ending.reason), (id, EndReason::Misses));
}

#[test]
fn a_term_that_stays_unconfirmed_after_a_late_wake_is_lost_as_after_a_restart() {
    let (mut scenario, id) = paused(5000);
    scenario.links = [Link::Down; 3];
    scenario.give(Input::Wake);
    let start = scenario.now;
    scenario.is_lost_unconfirmed(start, id.attempt);
}

#[test]
fn answers_from_before_a_pause_do_not_decide_about_the_term() {
    let (mut scenario, id) = Scenario::holding();
    scenario.links = [Link::Silent; 3];
    scenario.pass(5000);
    scenario.now += 30_000;
    for node in [0, 1] {
        scenario.answer(node, Some(Vote::Miss(None)));
    }
    assert!(is_unconfirmed(scenario.standing()), "{:?}", scenario.standing());
    assert_eq!(scenario.term().map(|term| &term.id), Some(&id));
}

#[test]
fn a_process_paused_while_its_term_is_uncertain_asks_again_before_it_gives_the_term_up() {
    let (mut scenario, id) = Scenario::adopting_alone(config());
    scenario.pass(10_000);
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.now += 60_000;
    scenario.give(Input::Wake);
    assert!(matches!(scenario.standing(), Standing::Adopting(_)), "{:?}", scenario.standing());
    scenario.pass(5000);
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.pass(30_302 - 5000);
    assert_eq!(scenario.end_reason(), Some(EndReason::NeverConfirmed));
}

#[test]
fn a_loss_noticed_up_to_one_second_late_ends_the_term() {
    for (late, ends) in [(1000, true), (1001, false)] {
        let (mut scenario, id) = Scenario::adopting_alone(config());
        let lost_at = scenario.now + 30_302;
        scenario.pass(5000);
        scenario.give(Command::UnconfirmedShown(id.attempt));
        scenario.pass_to(lost_at - 1);
        scenario.now = lost_at + late;
        scenario.give(Input::Wake);
        assert_eq!(scenario.end_reason(), ends.then_some(EndReason::NeverConfirmed), "{late} ms late");
    }
}

#[test]
fn a_publication_that_is_not_answered_at_a_late_wake_is_sealed() {
    let mut scenario = Scenario::new();
    let attempt = scenario.want();
    scenario.give(Command::Published { attempt, outcome: Publication::Unknown });
    scenario.now += STOP + 5000;
    scenario.give(Input::Wake);
    assert_eq!(scenario.end_reason(), Some(EndReason::Deadline));
}

/// Its publication may have succeeded, and the replica that leads now may have adopted the term from the status.
#[test]
fn a_process_that_does_not_lead_gives_up_an_unanswered_publication_without_a_seal() {
    for late in [0, 500, 5000] {
        let mut scenario = Scenario::new();
        let attempt = scenario.want();
        scenario.give(Command::Published { attempt, outcome: Publication::Unknown });
        scenario.links = [Link::Silent; 3];
        scenario.pass(10);
        scenario.now += STOP - 10 + late;
        scenario.links = [Link::Up; 3];
        scenario.sent.clear();
        scenario.give(Command::Configure(Box::new(unconfirming())));
        assert_eq!(scenario.end_reason(), Some(EndReason::Deadline), "{late} ms late");
        scenario.pass(60_000);
        assert!(!scenario.has_sent("seal"), "{late} ms late");
    }
}

#[test]
fn a_process_that_does_not_lead_keeps_an_unconfirmed_term_after_its_deadline() {
    let (mut scenario, id) = follower();
    scenario.pass(5000);
    let last_good = scenario.now;
    scenario.pass(1);
    scenario.links = [Link::Down, Link::Down, Link::Up];
    scenario.pass_to(last_good + STOP - 1);
    assert!(scenario.is_held(), "one millisecond before");
    scenario.pass_to(last_good + STOP);
    assert!(is_unconfirmed(scenario.standing()), "{:?}", scenario.standing());
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.pass(500_000);
    assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "no deadline ends it");
    assert!(!scenario.has_sent("seal"));
}

#[test]
fn a_process_that_does_not_lead_holds_again_when_a_majority_confirms() {
    let (mut scenario, id) = follower();
    scenario.links = [Link::Down, Link::Down, Link::Up];
    scenario.pass(STOP);
    assert!(is_unconfirmed(scenario.standing()));
    scenario.links = [Link::Up; 3];
    scenario.pass(3000);
    let Standing::Held(term) = scenario.standing() else { panic!("{:?}", scenario.standing()) };
    assert_eq!(term.id, id);
}

#[test]
fn a_process_that_does_not_lead_drops_a_term_that_is_lost_by_misses_without_a_seal() {
    let (mut scenario, id) = follower();
    scenario.drop_keys(0);
    scenario.drop_keys(1);
    scenario.sent.clear();
    scenario.pass(5000);
    let ending = scenario.lease.view().ending.clone().unwrap();
    assert_eq!((ending.reason, ending.sealed), (EndReason::Misses, false));
    assert!(!scenario.has_sent("seal"));
    scenario.give(Command::End { term: id, proof: true });
    assert_eq!(scenario.lease.view().ending, None, "proof still releases");
}

#[test]
fn a_decision_to_end_seals_whether_this_process_leads_or_not() {
    let (mut scenario, id) = follower();
    scenario.give(Command::End { term: id, proof: false });
    assert_eq!(scenario.sealed(), Some(true));
}

#[test]
fn what_happens_at_a_deadline_is_changed_at_the_very_instant_of_the_deadline() {
    let (mut scenario, _) = Scenario::holding();
    scenario.links = [Link::Down; 3];
    scenario.pass(STOP - 1);
    assert!(scenario.is_held());
    scenario.now += 1;
    scenario.give(Command::Configure(Box::new(unconfirming())));
    assert!(is_unconfirmed(scenario.standing()), "{:?}", scenario.standing());
}

/// The right comes and goes when replicas without a majority contradict each other. The doubt does not begin again each time.
#[test]
fn a_term_that_was_lost_unconfirmed_without_the_right_to_end_it_ends_one_round_after_the_right_is_there() {
    let (mut scenario, id) = Scenario::adopting_alone(unconfirming());
    scenario.pass(6000);
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.pass(100_000);
    assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "{:?}", scenario.standing());
    scenario.sent.clear();
    scenario.give(Command::Configure(Box::new(config())));
    assert!(scenario.has_sent("extend"), "the nodes are asked once more");
    scenario.pass(config().command_timeout.0);
    assert_eq!(scenario.end_reason(), Some(EndReason::Deadline));
}

#[test]
fn a_process_that_begins_to_lead_gives_an_adopted_term_a_whole_lease_before_it_is_lost() {
    let (mut scenario, id) = Scenario::adopting_alone(unconfirming());
    let start = scenario.now;
    scenario.pass(6000);
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.give(Command::Configure(Box::new(config())));
    scenario.pass_to(start + 30_301);
    assert!(scenario.lease.view().ending.is_none());
    scenario.pass_to(start + 30_302);
    assert_eq!(scenario.end_reason(), Some(EndReason::NeverConfirmed));
}

#[test]
fn the_keys_of_an_unconfirmed_term_may_live_for_a_whole_lease_that_another_process_has_added() {
    let (mut scenario, id) = paused(5000);
    scenario.lease.hold(Time(scenario.now + 10_000));
    scenario.give(Input::Wake);
    assert!(is_unconfirmed(scenario.standing()) && !scenario.has_sent("extend"), "the driver delays the round");
    scenario.give(Command::End { term: id, proof: false });
    let keys_until = scenario.keys_until();
    assert_eq!(keys_until, Some(Time(scenario.now + 30_302)));
}

/// A replica that could not decide for a moment, because its lock ended or another replica claimed to lead, while no node answered.
/// If a node answers when the right is back, another process may have kept the term.
#[test]
fn a_deadline_that_passed_without_the_right_to_end_the_term_counts_when_the_right_is_back() {
    for nodes_answer in [false, true] {
        let (mut scenario, _) = follower();
        scenario.pass(5000);
        scenario.links = [Link::Silent; 3];
        scenario.pass(STOP + 3300);
        assert!(is_unconfirmed(scenario.standing()), "{:?}", scenario.standing());
        scenario.sent.clear();
        if nodes_answer {
            scenario.links = [Link::Up; 3];
        }
        scenario.give(Command::Configure(Box::new(config())));
        assert!(scenario.has_sent("extend"), "it asks at once");
        scenario.pass(config().command_timeout.0);
        assert_eq!(scenario.end_reason(), (!nodes_answer).then_some(EndReason::Deadline), "{:?}", scenario.standing());
        assert_eq!((scenario.is_held(), !scenario.has_sent("seal")), (nodes_answer, nodes_answer));
    }
}

#[test]
fn a_right_that_is_lost_again_while_the_nodes_are_asked_does_not_end_the_term() {
    let (mut scenario, _) = follower();
    scenario.links = [Link::Silent; 3];
    scenario.pass(STOP + 3300);
    scenario.give(Command::Configure(Box::new(config())));
    scenario.pass(config().command_timeout.0 - 1);
    scenario.give(Command::Configure(Box::new(unconfirming())));
    scenario.pass(10_000);
    assert_eq!((scenario.end_reason(), !scenario.has_sent("seal")), (None, true));
    scenario.give(Command::Configure(Box::new(config())));
    scenario.pass(config().command_timeout.0);
    assert_eq!(scenario.end_reason(), Some(EndReason::Deadline), "it has the right for a whole round");
}
