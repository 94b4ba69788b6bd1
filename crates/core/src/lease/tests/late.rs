//! Deadlines that are noticed late, and deadlines of a process that does not lead.

use super::*;

fn doubting() -> Config {
    Config { deadline: OnDeadline::Doubt, ..config() }
}

/// A term that is held, last extended now, and the process paused until `late` ms after its deadline.
fn paused(late: u64) -> (Story, TermId) {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.sent.clear();
    story.shown.clear();
    story.now += STOP + late;
    (story, id)
}

fn no_seal(story: &Story) -> bool {
    !story.sent.iter().any(|(_, op)| matches!(op, Op::Seal { .. }))
}

#[test]
fn a_single_process_paused_for_less_than_the_keys_live_continues_the_same_term() {
    let (mut story, id) = paused(5000);
    story.give(Input::Wake);
    assert_eq!(story.shown.first().map(|view| &view.standing).map(is_unconfirmed), Some(true), "{:?}", story.shown);
    let Standing::Held(term) = story.standing() else { panic!("{:?}", story.standing()) };
    assert_eq!((&term.id, term.valid_until), (&id, Some(Time(story.now + VALID))));
    assert!(no_seal(&story));
    story.pass(60_000);
    assert!(story.is_held());
}

/// Adopting or uncertain, and nobody may believe.
fn is_unconfirmed(standing: &Standing) -> bool {
    match standing {
        Standing::Adopting(term) | Standing::Uncertain(term) => (term.valid_until, term.stop_at) == (None, None),
        _ => false,
    }
}

#[test]
fn a_deadline_noticed_up_to_one_second_late_seals() {
    for (late, seals) in [(0, true), (1000, true), (1001, false)] {
        let (mut story, _) = paused(late);
        story.links = [Link::Silent; 3];
        story.give(Input::Wake);
        let ended = story.lease.view().ending.as_ref().map(|ending| ending.reason);
        assert_eq!(ended, seals.then_some(EndReason::Deadline), "{late} ms late");
        assert_eq!(is_unconfirmed(story.standing()), !seals, "{late} ms late");
        assert_eq!(no_seal(&story), !seals, "{late} ms late");
    }
}

#[test]
fn belief_ends_before_the_first_request_of_a_process_that_wakes_late() {
    let (mut story, _) = paused(5000);
    story.lease.handle(Time(story.now), Input::Wake);
    let first = story.lease.poll_effect();
    let Some(Effect::Changed(view)) = first else { panic!("{first:?}") };
    assert!(is_unconfirmed(&view.standing), "{view:?}");
    assert!(matches!(story.lease.poll_effect(), Some(Effect::Send { op: Op::Extend { .. }, .. })));
}

#[test]
fn after_a_late_wake_only_misses_are_a_loss() {
    let (mut story, id) = paused(5000);
    story.links = [Link::Down, Link::Down, Link::Up];
    story.give(Input::Wake);
    story.pass(200_000);
    assert!(is_unconfirmed(story.standing()), "silence is no loss: {:?}", story.standing());
    assert!(no_seal(&story));
    story.links = [Link::Up; 3];
    story.pass(3000);
    let ending = story.lease.view().ending.clone().expect("the keys of two nodes ended long ago");
    assert_eq!((ending.id, ending.reason), (id, EndReason::Misses));
}

#[test]
fn a_term_that_stays_unconfirmed_after_a_late_wake_is_lost_as_after_a_restart() {
    let (mut story, id) = paused(5000);
    story.links = [Link::Down; 3];
    story.give(Input::Wake);
    let start = story.now;
    story.pass_to(start + 4999);
    assert!(matches!(story.standing(), Standing::Adopting(_)));
    story.pass_to(start + 5000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.give(Input::DoubtShown(id.attempt));
    story.pass_to(start + 30_301);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.pass_to(start + 30_302);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}

#[test]
fn answers_from_before_a_pause_do_not_decide_about_the_term() {
    let mut story = Story::new();
    let id = story.held();
    story.links = [Link::Silent; 3];
    story.pass(5000);
    let round = story.silent[0].1;
    story.silent.clear();
    story.now += 30_000;
    for node in [0, 1] {
        story.give(Input::Vote { round, node: Node(node), vote: Vote::Miss(None) });
    }
    assert!(is_unconfirmed(story.standing()), "{:?}", story.standing());
    assert_eq!(story.standing().term().map(|term| &term.id), Some(&id));
}

#[test]
fn a_process_paused_while_its_term_is_uncertain_asks_again_before_it_gives_the_term_up() {
    let mut story = Story::new();
    let id = story.held();
    story.lease = Lease::new(config());
    story.links = [Link::Down; 3];
    story.give(Input::Adopt(id.clone()));
    story.pass(10_000);
    story.give(Input::DoubtShown(id.attempt));
    story.now += 60_000;
    story.give(Input::Wake);
    assert!(matches!(story.standing(), Standing::Adopting(_)), "{:?}", story.standing());
    story.pass(5000);
    story.give(Input::DoubtShown(id.attempt));
    story.pass(30_302 - 5000);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}

#[test]
fn a_publication_that_is_not_answered_at_a_late_wake_is_sealed() {
    let mut story = Story::new();
    let attempt = story.want();
    story.give(Input::Published { attempt, outcome: Publication::Unknown });
    story.now += STOP + 5000;
    story.give(Input::Wake);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::Deadline));
}

#[test]
fn a_process_that_does_not_lead_doubts_at_its_deadline_and_ends_nothing() {
    let mut story = Story::new();
    story.lease = Lease::new(doubting());
    let id = story.held();
    story.pass(5000);
    let last_good = story.now;
    story.pass(1);
    story.links = [Link::Down, Link::Down, Link::Up];
    story.pass_to(last_good + STOP - 1);
    assert!(story.is_held(), "one millisecond before");
    story.pass_to(last_good + STOP);
    assert!(is_unconfirmed(story.standing()), "{:?}", story.standing());
    story.give(Input::DoubtShown(id.attempt));
    story.pass(500_000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)), "no deadline ends it");
    assert!(no_seal(&story));
}

#[test]
fn a_process_that_does_not_lead_holds_again_when_a_majority_confirms() {
    let mut story = Story::new();
    story.lease = Lease::new(doubting());
    let id = story.held();
    story.links = [Link::Down, Link::Down, Link::Up];
    story.pass(STOP);
    assert!(is_unconfirmed(story.standing()));
    story.links = [Link::Up; 3];
    story.pass(3000);
    let Standing::Held(term) = story.standing() else { panic!("{:?}", story.standing()) };
    assert_eq!(term.id, id);
}

#[test]
fn a_process_that_does_not_lead_drops_a_term_that_is_lost_by_misses_without_a_seal() {
    let mut story = Story::new();
    story.lease = Lease::new(doubting());
    let id = story.held();
    story.drop_keys(0);
    story.drop_keys(1);
    story.sent.clear();
    story.pass(5000);
    let ending = story.lease.view().ending.clone().unwrap();
    assert_eq!((ending.reason, ending.sealed), (EndReason::Misses, false));
    assert!(no_seal(&story));
    story.give(Input::End { term: id, proof: true });
    assert_eq!(story.lease.view().ending, None, "proof still releases");
}

#[test]
fn a_decision_to_end_seals_whether_this_process_leads_or_not() {
    let mut story = Story::new();
    story.lease = Lease::new(doubting());
    let id = story.held();
    story.give(Input::End { term: id, proof: false });
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.sealed), Some(true));
}

#[test]
fn what_happens_at_a_deadline_is_changed_at_the_very_instant_of_the_deadline() {
    let mut story = Story::new();
    story.held();
    story.links = [Link::Down; 3];
    story.pass(STOP - 1);
    assert!(story.is_held());
    story.now += 1;
    story.give(Input::Configure(doubting()));
    assert!(is_unconfirmed(story.standing()), "{:?}", story.standing());
}

#[test]
fn a_process_that_begins_to_lead_gives_an_unconfirmed_term_a_whole_lease_before_it_is_lost() {
    let mut story = Story::new();
    story.lease = Lease::new(doubting());
    let id = story.held();
    story.links = [Link::Down; 3];
    story.pass(STOP + 6000);
    story.give(Input::DoubtShown(id.attempt));
    story.pass(100_000);
    story.give(Input::Configure(config()));
    let start = story.now;
    story.pass_to(start + 5000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)), "{:?}", story.standing());
    story.give(Input::DoubtShown(id.attempt));
    story.pass_to(start + 30_301);
    assert!(story.lease.view().ending.is_none());
    story.pass_to(start + 30_302);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}
