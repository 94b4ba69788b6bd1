//! The decisions of a replica that does not lead.

use super::*;

#[test]
fn a_follower_runs_and_writes_nothing() {
    let mut story = Story::new();
    story.facts.authority = Authority::Follow;
    story.turn();
    story.answer();
    assert_eq!(story.effects, []);
}

#[test]
fn a_replica_that_stops_leading_drops_the_term_without_ending_it() {
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::Follow;
    story.turn();
    assert_eq!(story.effects, [Effect::Keeper(Command::Close)]);
    story.turn();
    assert_eq!(story.effects, []);
}

#[test]
fn a_replica_that_only_renews_decides_nothing() {
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::Renew;
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.turn();
    assert!(!story.ends_a_term(), "{:?}", story.effects);
    assert_eq!((story.status_write(), story.role_writes()), (None, Vec::new()));
}

/// The clock can end the authority before the election does. If the lock is renewed in time after all, nothing tells the leases that
/// this process leads again.
#[test]
fn a_replica_that_only_renews_looks_once_again() {
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::Renew;
    let until = story.now + Millis(1000);
    for millis in [0, 400] {
        story.pass(millis);
        assert_eq!(story.reconciler.next_deadline(), Some(until), "also after another turn");
    }
    for millis in [600, 1000] {
        story.pass(millis);
        assert_eq!(story.reconciler.next_deadline(), None, "it does not lead for longer");
    }
    for authority in [Authority::Lead, Authority::Renew] {
        story.facts.authority = authority;
        story.turn();
    }
    assert_eq!(story.reconciler.next_deadline(), Some(story.now + Millis(1000)), "anew");
}

/// Meanwhile another replica may have elected a holder, or nobody.
#[test]
fn a_replica_that_leads_again_shows_the_lease_again() {
    let mut story = Story::held_by_a();
    story.turn();
    assert_eq!(story.is_unheld(), None, "nothing has changed");
    story.facts.authority = Authority::Renew;
    story.turn();
    story.facts.authority = Authority::Lead;
    story.turn();
    assert_eq!(story.is_unheld(), Some(false), "{:?}", story.effects);
}

#[test]
fn a_replica_that_may_only_end_terms_starts_none() {
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::End;
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(story.status_write().is_some(), "the loss is shown");
    story.write();
    story.view(idle(0));
    story.answer();
    assert_eq!((story.wanted(), story.wants(&Effect::Probe)), (None, false));
}

#[test]
fn a_term_that_stays_unconfirmed_for_one_lease_is_dropped_by_a_replica_that_does_not_lead() {
    let unconfirmed = uncertain(term(1, 7, "a"));
    for (authority, drops) in [(Authority::Renew, true), (Authority::Lead, false), (Authority::End, false)] {
        let mut story = Story::held_by_a();
        story.facts.authority = authority;
        story.view(unconfirmed.clone());
        story.pass(LEASE);
        assert!(!story.wants(&Effect::Keeper(Command::Close)), "{authority:?}: its keys may live");
        story.pass(LEASE / 10);
        assert_eq!(story.wants(&Effect::Keeper(Command::Close)), drops, "{authority:?}");
    }
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::Renew;
    story.view(unconfirmed.clone());
    story.pass(1000);
    story.now = story.reconciler.next_deadline().unwrap();
    story.turn();
    assert!(story.wants(&Effect::Keeper(Command::Close)), "at its deadline");
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::Renew;
    story.view(unconfirmed.clone());
    story.pass(LEASE - 1);
    story.view(held(term(1, 7, "a")));
    story.view(unconfirmed);
    story.pass(LEASE - 1);
    assert!(!story.wants(&Effect::Keeper(Command::Close)), "a majority confirmed it in between");
}

/// Otherwise a longer outage would give the term one more lease.
#[test]
fn a_term_that_was_dropped_is_adopted_as_overrun_by_a_replica_that_never_followed() {
    for (follows, overrun) in [(false, true), (true, false)] {
        let mut story = Story::held_by_a();
        story.facts.authority = Authority::Renew;
        story.view(uncertain(term(1, 7, "a")));
        story.pass(LEASE + LEASE / 10);
        assert!(story.wants(&Effect::Keeper(Command::Close)), "{:?}", story.effects);
        if follows {
            story.facts.authority = Authority::Follow;
            story.turn();
        }
        story.facts.authority = Authority::End;
        story.turn();
        let adopts = if overrun { Command::AdoptOverrun } else { Command::Adopt };
        assert!(story.wants(&Effect::Keeper(adopts(term(1, 7, "a")))), "{:?}", story.effects);
    }
}

/// Nobody could publish its term: it would be renewed for one lease and then be left to its TTL.
#[test]
fn a_replica_that_stops_leading_gives_up_its_attempt() {
    let mut story = Story::new();
    story.turn();
    story.view(acquiring(term(1, 7, "a")));
    story.facts.authority = Authority::Renew;
    story.turn();
    assert!(story.commands().contains(&Command::Forget), "{:?}", story.effects);
}

/// The machine may have begun to doubt anew while this process could write nothing. Then it waits to hear it again.
#[test]
fn a_replica_that_decides_again_says_again_that_a_term_is_unconfirmed() {
    let says = Effect::Keeper(Command::UnconfirmedShown(term(1, 7, "a").attempt));
    let mut story = Story::held_by_a();
    story.facts.authority = Authority::End;
    story.view(uncertain(term(1, 7, "a")));
    story.write();
    assert!(story.wants(&says), "{:?}", story.effects);
    story.turn();
    assert!(!story.wants(&says), "once");
    // It doubts anew, and two views come before one turn.
    story.reconciler.handle(story.now, Event::View(adopting(term(1, 7, "a"))));
    story.view(uncertain(term(1, 7, "a")));
    assert!(story.wants(&says), "{:?}", story.effects);
    for authority in [Authority::Renew, Authority::End] {
        story.facts.authority = authority;
        story.turn();
        assert_eq!(story.wants(&says), authority == Authority::End);
    }
}

/// A process that could not decide, or that has just started, does not count the gap from zero.
#[test]
fn a_gap_is_counted_from_the_loss_of_the_term_whoever_has_seen_it() {
    for returns in [true, false] {
        let mut story = Story::held_by_a();
        story.lose(term(1, 7, "a"));
        story.facts.wall += core::time::Duration::from_secs(42);
        story.view(idle(0));
        if returns {
            story.facts.authority = Authority::Renew;
            story.turn();
            story.facts.authority = Authority::Lead;
        } else {
            let lease = story.facts.lease.clone();
            story = Story::new();
            story.facts.wall += core::time::Duration::from_secs(42);
            story.spec.read(lease.as_ref().unwrap());
            story.facts.lease = lease;
        }
        story.turn();
        story.answer();
        story.view(publishing(term(2, 8, "b")));
        story.write();
        let leaderless = story.effects.iter().find_map(|effect| match effect {
            Effect::Measure(Measure::Handover { graceful: false, leaderless }) => Some(*leaderless),
            _ => None,
        });
        assert!(leaderless.is_some_and(|gap| gap.as_secs() == 42), "{returns}: {leaderless:?} {:?}", story.effects);
    }
}
