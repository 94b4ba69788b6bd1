//! When the keys are read because no attempt can begin.

use redislease_core::op::{Stage, Stored};

use super::*;
use crate::api::conditions::LeaseReady;

/// The keys were read: a pod of this cluster holds them, or nobody does.
fn read(holder: Option<&str>) -> View {
    let value = |cluster: &str| Stored {
        stage: Stage::Term,
        attempt: Attempt(5),
        number: 99,
        metadata: format!("{cluster}/uid-{cluster}/jobs/billing/x/uid-x"),
    };
    View { refused_by: holder.map(value).map(Box::new), keys_read: true, retry_at: Some(Time(0)), ..View::default() }
}

impl Story {
    fn reads(&self) -> bool {
        self.commands().contains(&Command::ReadKeys)
    }

    /// How often the keys are read in this time.
    fn reads_within(&mut self, millis: u64) -> usize {
        let reads = |_: &u64| {
            self.pass(100);
            self.reads()
        };
        (0..millis / 100).filter(reads).count()
    }
}

#[test]
fn without_a_candidate_the_keys_are_read_at_once_and_once_a_lease_duration() {
    let mut story = Story::without_candidates();
    assert!(story.opens() && story.reads());
    assert_eq!(story.reads_within(LEASE), 1);
    assert_eq!(story.reads_within(10 * LEASE), 10);
    story.candidates(&[pod("a")]);
    assert_eq!(story.reads_within(10 * LEASE), 0, "an attempt tells more");
}

#[test]
fn the_keys_are_not_read_without_authority_a_quorum_or_pods() {
    let prevent: [fn(&mut Facts); 4] = [
        |facts| facts.authority = Authority::End,
        |facts| facts.pods_listed = false,
        |facts| facts.candidates = CandidateFacts::Unknown,
        |facts| facts.quorum = Arc::new(QuorumFacts { up: 1, ..quorum(1, "f00d") }),
    ];
    for prevent in prevent {
        let mut story = Story::new();
        story.candidates(&[]);
        prevent(&mut story.facts);
        story.turn();
        assert_eq!((story.opens(), story.reads(), story.reads_within(2 * LEASE)), (true, false, 0));
    }
}

#[test]
fn the_keys_are_read_while_the_last_term_keeps_an_attempt_from_beginning() {
    let mut story = Story::held_by_a();
    assert_eq!(story.reads_within(LEASE), 0);
    let lost = ending(term(1, 7, "a"), EndReason::Misses);
    story.view(lost.clone());
    assert!(story.reads());
    story.write();
    let mut sealed = story.clone();
    story.view(View { ending: lost.ending, retry_at: lost.retry_at, ..read(Some("there")) });
    story.write();
    assert_eq!((story.is_unheld(), story.wanted()), (Some(false), None), "the other cluster holds the lease");

    let mut lost = ending(term(1, 7, "a"), EndReason::Misses);
    lost.ending.as_mut().unwrap().sealed = true;
    sealed.view(lost);
    assert_eq!(sealed.reads_within(2 * LEASE), 0, "an attempt can begin");
}

#[test]
fn the_time_without_a_holder_follows_what_was_read() {
    let mut story = Story::without_candidates();
    story.write();
    for (holder, is_unheld) in [(Some("there"), false), (None, true), (Some("there"), false)] {
        story.view(read(holder));
        story.write();
        assert_eq!(story.is_unheld(), Some(is_unheld), "{holder:?}");
    }
}

/// It is not Ready here, and an alert tells so of leases that are held.
#[test]
fn the_lease_of_another_cluster_counts_as_held_unless_it_is_suspended_here() {
    for suspended in [false, true] {
        let mut story = Story::without_candidates();
        story.write();
        if suspended {
            story.store(&json!({"suspend": true}), &story.status_value());
            story.turn();
            story.write();
        }
        story.view(read(Some("there")));
        let mut held = story.is_held();
        story.write();
        held = story.is_held().or(held);
        if !suspended {
            let why = (LeaseReady::InvalidReference, "its secret is gone".into());
            Arc::make_mut(&mut story.facts.quorum).obstacle = Some(why);
            story.turn();
            held = story.is_held().or(held);
        }
        let shown = [ConditionType::Ready, ConditionType::Active].map(|type_| story.shown(type_).reason);
        let ready = if suspended { "Suspended" } else { "InvalidReference" };
        assert_eq!(shown, [ready, "HeldByPeerCluster"]);
        assert_eq!(held.unwrap_or(false), !suspended, "an update tells of changes");
    }
}

/// Without an answer of the keys, what the status says about them is the best that is known, until nothing will read them.
#[test]
fn the_status_says_that_another_cluster_holds_the_lease_only_while_the_keys_will_be_read() {
    let mut story = Story::without_candidates();
    story.write();
    story.view(read(Some("there")));
    story.write();
    let is_held_by_peer = |story: &Story| story.shown(ConditionType::Active).reason == "HeldByPeerCluster";
    story.view(idle(0));
    assert!(is_held_by_peer(&story), "{:?}", story.effects);
    story.facts.quorum = Arc::new(QuorumFacts { open: None, ..quorum(1, "f00d") });
    story.turn();
    assert!(!is_held_by_peer(&story), "{:?}", story.effects);
    story.write();
    story.pass(60_000);
    assert_eq!(story.is_unheld(), None, "nothing shows that the other cluster has lost it: {:?}", story.effects);
}
