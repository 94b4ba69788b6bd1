//! The admission and the connection of one node.

use super::*;
use crate::admission::Standing;

fn changed(standing: Standing) -> Outcome {
    Effect::Admission(admission::Effect::Changed(standing))
}

#[test]
fn requests_are_sent_while_the_marker_is_the_one_of_the_configuration() {
    let mut wired = Wired::open(Limits::STANDARD, None);
    assert_eq!(wired.take(), [changed(Standing::Observing)]);
    wired.ask(confirm(1));
    assert!(wired.flush().is_empty());
    assert_eq!(wired.take(), [Effect::Vote(1, Vote::Abstained)]);
    wired.mark(Some(marker()));
    assert_eq!(wired.take(), [changed(Standing::Admitted)]);
    wired.ask(confirm(2));
    assert_eq!(wired.flush(), ["confirm-2"]);
    assert_eq!(wired.take(), []);
}

#[test]
fn a_call_that_found_another_marker_takes_the_vote_away_and_reads_the_marker() {
    let mut wired = standard();
    wired.ask(confirm(1));
    wired.flush();
    let observe = wired.observe;
    wired.reply(&[text("not_admitted")]);
    let failed = Effect::Failed(Why::NotAdmitted, 1);
    assert_eq!(wired.take(), [Effect::Vote(1, Vote::Abstained), failed, changed(Standing::Observing)]);
    assert!(wired.observe > observe);
    wired.ask(confirm(2));
    wired.flush();
    assert_eq!(wired.take(), [Effect::Vote(2, Vote::Abstained)]);
}

#[test]
fn another_server_or_no_marker_ends_the_connection() {
    let other = Marker::Wait { run_id: "s".into(), nonce: 1 };
    for (marker, effect) in [(Some(other.clone()), Effect::AnotherServer(other)), (None, Effect::Flushed)] {
        let mut wired = Wired::open(Limits::STANDARD, None);
        wired.take();
        wired.mark(marker);
        assert_eq!(wired.take(), [effect]);
    }
}

#[test]
fn the_end_of_a_connection_answers_everything_on_it_before_the_standing_changes() {
    let mut wired = standard();
    wired.ask(confirm(1));
    wired.ask(extend(2));
    wired.flush();
    wired.give(NOW, Input::Own("info"));
    wired.give(NOW, Input::Closed);
    let unknown = [1, 2].map(|attempt| Effect::Vote(attempt, Vote::Unknown));
    assert_eq!(wired.take(), [&unknown[..], &[Effect::Lost("info"), changed(Standing::Offline)]].concat());
    assert_eq!(wired.wire.next_deadline(), None);
    wired.ask(confirm(3));
    wired.give(NOW, Input::Own("info"));
    let not_executed = Effect::Vote(3, Vote::Abstained);
    assert_eq!(wired.take(), [not_executed, Effect::Lost("info")]);
}

#[test]
fn the_last_votes_of_a_connection_are_unknown() {
    let mut wired = standard();
    wired.ask(confirm(1));
    wired.give(NOW, Input::Own("observe"));
    wired.flush();
    assert!(matches!(wired.wire.oldest().map(|sent| &sent.call), Some(Call::Own("observe"))));
    wired.not_run();
    wired.not_run();
    wired.ask(extend(2));
    wired.give(NOW, Input::Closed);
    assert_eq!(wired.voted(), [(1, Vote::Unknown), (2, Vote::Unknown)]);
    assert_eq!(wired.effects.iter().filter(|effect| matches!(effect, Effect::Lost(_))).count(), 1);
    assert!(wired.effects.contains(&Effect::Lost("observe")));
}

#[test]
fn a_new_timeout_counts_for_the_calls_in_flight() {
    let mut wired = standard();
    wired.give(NOW, Input::Own("observe"));
    assert_eq!(wired.wire.next_deadline(), Some(NOW + TIMEOUT));
    wired.wire.set_timeout(Millis(200));
    assert_eq!(wired.wire.next_deadline(), Some(NOW + Millis(200)));
    wired.give(NOW + Millis(199), Input::Wake);
    assert!(!wired.effects.contains(&Effect::Overdue));
    wired.give(NOW + Millis(200), Input::Wake);
    assert!(wired.effects.contains(&Effect::Overdue));
}

#[test]
fn an_answered_call_that_is_not_for_votes_is_not_in_flight_any_more() {
    let mut wired = standard();
    wired.give(NOW, Input::Own("observe"));
    wired.ask(confirm(1));
    wired.flush();
    assert_eq!((wired.wire.take_own(1), wired.wire.take_own(1)), (Some("observe"), None));
    assert_eq!(wired.wire.take_own(2), None, "a call for votes");
    assert_eq!(wired.wire.oldest().map(|sent| sent.id), Some(2));
}
