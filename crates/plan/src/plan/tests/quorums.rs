//! The quorum of a term: replaced, not allowed, or not evaluated yet.

use super::*;
use crate::api::conditions::LeaseReady;

/// The term in the status was taken on another quorum, and its end is in the status. Also returns until when the keys may last.
fn on_a_replaced_quorum() -> (Story, Time) {
    let mut story = Story::new();
    story.store(&json!({}), &Story::held_by_a().status_value());
    story.facts.quorum = Arc::new(quorum(2, "0ther"));
    story.turn();
    assert_eq!(story.wanted(), None);
    let until = story.reconciler.next_deadline().unwrap();
    story.write();
    story.view(ending(term(1, 7, "a"), EndReason::NeverConfirmed));
    story.write();
    (story, until)
}

#[test]
fn a_term_on_a_replaced_quorum_blocks_until_its_keys_expire_and_a_restart_continues_the_wait() {
    let (story, until) = on_a_replaced_quorum();
    assert!(until.since(story.now) > Millis(3_600_000), "one hour and the drift of clocks");
    let message = &story.status().condition(ConditionType::Ready).unwrap().message;
    assert!(message.contains("f00d instead of 0ther") && message.contains(", until 2026-11-21T"), "{message}");
    // Another process starts twenty minutes later.
    let mut later = Story::new();
    later.facts = story.facts.clone();
    later.facts.wall = story.facts.wall + jiff::SignedDuration::from_mins(20);
    later.turn();
    let left = later.reconciler.next_deadline().unwrap().since(later.now);
    assert!(left < Millis(2_460_000) && left > Millis(2_380_000), "{left:?}");
}

#[test]
fn the_wait_for_a_term_on_a_replaced_quorum_is_not_extended_and_its_end_begins_an_attempt() {
    let (mut story, until) = on_a_replaced_quorum();
    story.view(idle(0));
    for _ in 0..3 {
        story.pass(600_000);
        story.answer();
        assert_eq!((story.wanted(), story.reconciler.next_deadline()), (None, Some(until)));
    }
    let mut restored = story.clone();
    // Another process began a term on a third configuration, whose nodes are not known either.
    let mut later = story.clone();
    let mut third = Story::held_by_a().status_value();
    (third["attempt"], third["quorum"]["fingerprint"]) = (json!(format!("{:032x}", 9)), json!("th1rd"));
    later.store(&json!({}), &third);
    later.now = until;
    later.answer();
    assert_eq!(later.wanted(), None, "{:?}", later.effects);
    assert!(later.reconciler.next_deadline().is_some_and(|at| at.since(until) > Millis(3_000_000)));
    story.now = until;
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"), "{:?}", story.effects);

    restored.facts.quorum = Arc::new(quorum(3, "f00d"));
    restored.answer();
    assert_eq!(restored.wanted().as_deref(), Some("a"), "{:?}", restored.effects);
}

#[test]
fn a_term_ends_without_proof_when_the_quorum_no_longer_allows_the_namespace() {
    let denied = || QuorumFacts {
        obstacle: Some((LeaseReady::InvalidReference, "no such quorum".into())),
        denied: true,
        ..quorum(1, "f")
    };
    let unknown =
        || QuorumFacts { obstacle: Some((LeaseReady::QuorumUnavailable, "not read".into())), ..quorum(1, "f") };
    let ends = |story: &Story| {
        story.commands().into_iter().any(|command| matches!(command, Command::End { proof: false, .. }))
    };
    let mut story = Story::held_by_a();
    story.facts.quorum = Arc::new(unknown());
    story.turn();
    assert_eq!(story.commands(), [], "labels that are not known end nothing");
    story.facts.quorum = Arc::new(denied());
    story.turn();
    assert!(ends(&story), "{:?}", story.commands());

    // When the term has ended, nothing stays open on a quorum that the namespace may not use.
    story.view(idle(1_000_000));
    story.turn();
    assert!(!story.commands().contains(&Command::Close), "the status still names the term");
    story.store(&json!({}), &json!(null));
    story.turn();
    assert_eq!(story.commands(), [Command::Close]);
    story.turn();
    assert_eq!(story.commands(), []);
    story.facts.quorum = Arc::new(quorum(1, "f"));
    story.turn();
    assert!(story.opens(), "{:?}", story.effects);

    // The next process finds the term in the status.
    let mut next = Story::held_by_a();
    next.restart();
    next.facts.quorum = Arc::new(denied());
    next.turn();
    assert!(ends(&next), "{:?}", next.commands());

    // A lease that never had a term opens nothing on the quorum.
    let mut new = Story::new();
    new.restart();
    new.facts.quorum = Arc::new(denied());
    new.turn();
    new.answer();
    assert_eq!(new.commands(), []);
}

/// One node may be slow. With another fingerprint the next process would not continue the term, for an hour.
#[test]
fn a_term_records_its_quorum_also_before_every_node_was_tried() {
    let mut story = Story::held_by_a();
    let known = story.status_mut().quorum.as_mut().unwrap();
    let before = std::mem::replace(&mut known.fingerprint, "0ther".to_owned());
    story.edit(&json!({}));
    story.facts.quorum = Arc::new(QuorumFacts { evaluated: false, ..QuorumFacts::clone(&story.facts.quorum) });
    story.turn();
    let quorum = story.status_write().expect("it is corrected").status.quorum.clone().expect("a quorum");
    assert_eq!(quorum.fingerprint, before);
}

/// Otherwise a tenant could find out that the quorum exists.
#[test]
fn a_quorum_that_does_not_allow_the_namespace_looks_like_a_missing_one() {
    let obstacle = Some((LeaseReady::InvalidReference, "no such quorum".to_owned()));
    let missing = QuorumFacts { read: true, obstacle: obstacle.clone(), ..QuorumFacts::default() };
    let shown = [missing, QuorumFacts { denied: true, obstacle, ..quorum(1, "f") }].map(|facts| {
        let mut story = Story::new();
        story.restart();
        story.facts.quorum = Arc::new(facts);
        story.turn();
        story.status_write().expect("a new lease").status.conditions.clone()
    });
    assert_eq!(shown[0], shown[1]);
}
