//! When an attempt starts.

use super::*;

#[test]
fn an_attempt_waits_for_an_answer_of_the_api_server() {
    let mut story = Story::new();
    story.facts.api_answered_at = Some(story.now - Millis(1));
    story.turn();
    assert!(story.opens() && story.commands().is_empty(), "{:?}", story.effects);
    assert!(story.wants(&Effect::Probe), "an answer from before the reason to contend arose proves nothing");
    assert!(story.reconciler.awaits_api_answer());
    story.pass(60_000);
    assert_eq!((story.wanted(), story.wants(&Effect::Probe)), (None, false), "one probe is pending");
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
    assert!(!story.reconciler.awaits_api_answer());
}

#[test]
fn each_attempt_needs_an_answer_of_its_own() {
    let mut story = Story::wanting_a();
    story.view(acquiring(term(1, 7, "a")));
    assert_eq!(story.wanted(), None);
    let retry_at = story.now.0 + 5000;
    story.view(idle(retry_at));
    assert_eq!((story.wanted(), story.reconciler.next_deadline()), (None, Some(Time(retry_at))));
    story.pass(5000);
    assert!(story.wants(&Effect::Probe) && story.wanted().is_none(), "the last answer is 5 s old");
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
}

#[test]
fn an_attempt_that_the_keeper_dropped_is_requested_again_after_a_second() {
    let mut story = Story::new();
    story.turn();
    story.pass(250);
    story.write();
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
    // Nothing else happens: without a separate deadline the lease would stay free.
    assert_eq!(story.reconciler.next_deadline(), Some(story.now + Millis(1000)));
    story.answer();
    assert_eq!(story.wanted(), None);
    story.now += Millis(1000);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
}

#[test]
fn another_first_candidate_ends_the_attempt_and_the_pause() {
    let mut story = Story::wanting_a();
    story.view(idle(story.now.0 + 10_000));
    assert_eq!(story.commands(), []);
    story.candidates(&[pod("b")]);
    story.turn();
    assert_eq!(story.commands(), [Command::TryNow], "the backoff was for attempts for a");
    story.view(acquiring(term(2, 8, "b")));
    story.candidates(&[pod("c")]);
    story.turn();
    assert_eq!(story.commands(), [Command::Forget]);
}

#[test]
fn nothing_begins_without_candidates_quorum_or_list_of_pods() {
    type Change = fn(&mut Story);
    let cases: [(&str, Change); 6] = [
        ("no candidate", |story| story.candidates(&[])),
        ("candidates not known", |story| story.facts.candidates = CandidateFacts::Unknown),
        ("pods not listed", |story| story.facts.pods_listed = false),
        ("no quorum", |story| story.facts.quorum = Arc::new(QuorumFacts { read: true, ..QuorumFacts::default() })),
        ("suspended", |story| story.store(&json!({"suspend": true}), &json!(null))),
        ("invalid spec", |story| story.store(&json!({"leaseDuration": "1s"}), &json!(null))),
    ];
    for (what, change) in cases {
        let mut story = Story::new();
        change(&mut story);
        story.turn();
        story.answer();
        assert_eq!((story.wanted(), story.wants(&Effect::Probe)), (None, false), "{what}");
    }
}

#[test]
fn the_return_of_the_quorum_is_written_with_the_publication_if_the_attempt_comes_soon() {
    for (turn, waits) in [(2000, 2249), (60_000, 5249)] {
        let mut story = Story::new();
        let healthy = story.facts.quorum.clone();
        story.facts.quorum = Arc::new(QuorumFacts { up: 1, ..QuorumFacts::clone(&healthy) });
        story.turn();
        story.pass(250);
        story.write();
        story.facts.quorum = healthy;
        story.view(idle(story.now.0 + turn));
        assert_eq!(story.status_write(), None, "{turn}");
        story.pass(waits);
        assert_eq!(story.status_write(), None, "{turn}");
        story.pass(1);
        assert_eq!(story.status_write().map(|write| write.priority), Some(Priority::Counts), "{turn}");
    }
}

#[test]
fn a_status_that_shows_no_term_before_or_after_it_is_not_urgent() {
    let story = Story::without_candidates();
    let write = story.status_write().unwrap();
    assert_eq!((write.priority, write.status.fencing_token), (Priority::Counts, None));
    assert!(write.status.says(ConditionType::Active, ConditionStatus::False));
}

#[test]
fn an_edit_of_the_command_timeout_reaches_a_held_term() {
    let mut story = Story::held_by_a();
    for (timeout, expected) in [(500, None), (100, Some(100)), (700, Some(700)), (700, None), (5000, Some(2500))] {
        let open = Arc::make_mut(&mut story.facts.quorum).open.as_mut().unwrap();
        Arc::make_mut(open).command_timeout = Millis(timeout);
        story.turn();
        let sent = story.commands().iter().find_map(|command| match command {
            Command::Configure(config) => Some(config.command_timeout),
            _ => None,
        });
        assert_eq!(sent, expected.map(Millis), "{timeout} ms: at most half the renewal interval");
    }
}
