//! The publication of a term: before anything else, with every outcome of its write, or never.

use super::*;
use crate::status::{NoticeReason, Obstacle};

#[test]
fn a_term_is_published_before_anything_else() {
    let mut story = Story::wanting_a();
    story.facts.stop_at = Some(story.now + Millis(18_000));
    story.view(publishing(term(1, 7, "a")));
    let write = story.status_write().unwrap();
    assert_eq!((write.priority, write.version.as_deref()), (Priority::Publication, Some("10")));
    assert_eq!((write.status.fencing_token, write.not_after.is_some()), (Some(7), true));
    assert_eq!(story.role_writes(), [], "no role is written before the status");
    story.write();
    assert!(story.wants(&Effect::Report(story.reported(NoticeReason::Acquired))));
    story.view(held(term(1, 7, "a")));
    let order = story.pods();
    let role = |pod: &str, role: &str| (pod.to_owned(), Some(role.to_owned()));
    assert_eq!(order, [role("b", "standby"), role("a", "active")]);
}

#[test]
fn the_keeper_gets_the_outcome_of_the_publication() {
    let mut story = Story::publishing_by_a();
    story.write();
    let published = Command::Published { attempt: Attempt(1), outcome: redislease_core::lease::Publication::Written };
    assert!(story.commands().contains(&published), "{:?}", story.effects);
}

#[test]
fn an_unanswered_publication_is_read_and_not_acted_on() {
    let mut story = Story::publishing_by_a();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    assert_eq!((story.status_write(), story.role_writes()), (None, Vec::new()));
    assert!(story.wants(&Effect::Read(Read::Lease)));
    // The write had succeeded: the read shows it, and only now are its events sent.
    story.is_published(7, "a", 1);
    story.read_lease();
    assert!(story.commands().iter().any(|command| matches!(command, Command::Published { .. })));
}

/// It would be taken for a write that was not stored, and the events of the write would be lost.
#[test]
fn the_answer_to_an_earlier_read_says_nothing_about_an_unanswered_write() {
    let mut story = Story::held_by_a();
    story.candidates(&[pod("a"), with_token(labelled(pod("b"), "standby"), "99")]);
    story.turn();
    assert!(story.wants(&Effect::Read(Read::Lease)), "a pod carries a later token");
    let earlier = story.facts.lease.clone();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let stored = story.status_to_write();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    assert!(!story.wants(&Effect::Read(Read::Lease)), "one read at a time");
    story.event(Event::LeaseRead(Ok(earlier)));
    assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
    story.watch_shows(stored);
    story.read_lease();
    assert_eq!(story.reported(NoticeReason::LeaseLost).reason, NoticeReason::LeaseLost);
}

#[test]
fn an_unpublished_term_ends_after_one_lease_whether_the_api_server_answers_or_not() {
    let outcomes = [
        (StatusOutcome::Unanswered("timeout".into()), false),
        (StatusOutcome::Unanswered("timeout".into()), true),
        (StatusOutcome::Refused("denied".into()), true),
    ];
    for (outcome, answers) in outcomes {
        let mut story = Story::publishing_by_a();
        story.event(Event::StatusWritten(outcome));
        story.pass(LEASE - 100);
        assert!(!story.ends_a_term());
        if answers {
            story.facts.api_answered_at = Some(story.now);
        }
        story.pass(1000);
        assert_eq!(story.commands(), [end(term(1, 7, "a"))], "answers: {answers}");
        story.view(idle(0));
        story.answer();
        story.pass(2 * LEASE - 1);
        story.answer();
        assert_eq!(story.wanted(), None, "no status was written: the cooldown lasts two lease durations");
        story.pass(1);
        story.answer();
        assert_eq!(story.wanted().as_deref(), Some("a"));
    }
}

#[test]
fn each_unpublished_term_has_one_lease_duration() {
    let mut story = Story::publishing_by_a();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    story.pass(LEASE - 100);
    story.view(publishing(term(2, 8, "a")));
    story.pass(LEASE - 100);
    assert!(!story.ends_a_term(), "{:?}", story.effects);
    story.pass(1000);
    assert!(story.ends_a_term(), "{:?}", story.effects);
}

/// Otherwise no alert tells of a lease that cannot be published.
#[test]
fn the_time_without_a_holder_counts_on_while_publications_are_refused() {
    let mut story = Story::publishing_by_a();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    let mut shown = Vec::new();
    for step in 0..4 {
        match step {
            0 => story.pass(LEASE + 1000),
            1 => story.view(idle(0)),
            2 => story.read_lease(),
            _ => story.pass(1000),
        };
        shown.extend(story.is_unheld());
    }
    assert!(!shown.is_empty() && shown.iter().all(|waiting| *waiting), "{shown:?}");
}

/// The write may have succeeded without an answer. The replica that leads then keeps the term, and a seal would end it.
#[test]
fn a_replica_that_does_not_lead_stops_renewing_an_unpublished_term_and_does_not_end_it() {
    let mut story = Story::publishing_by_a();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    story.facts.authority = Authority::Renew;
    story.pass(LEASE - 100);
    assert!(!story.commands().contains(&Command::Close), "{:?}", story.commands());
    story.now = story.reconciler.next_deadline().expect("the end of the lease duration");
    story.turn();
    assert_eq!(story.commands(), [Command::Close]);
    story.facts.authority = Authority::Lead;
    story.turn();
    story.answer();
    assert_eq!(story.wanted(), None, "the cooldown lasts");
}

/// The cooldown must not last two lease durations (60 s by default) if the API server is back after a second.
#[test]
fn after_a_status_write_the_cooldown_ends_one_second_after_the_keys() {
    let mut story = Story::publishing_by_a();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    story.pass(LEASE + 1000);
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
    let given_up = story.now;
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    story.read_lease();
    let written = story.status_write().expect("the status says why no attempt begins").status;
    assert!(written.conditions.iter().any(|one| one.message == Obstacle::NOT_PUBLISHED.message), "{written:?}");
    story.write();
    story.now = given_up + Millis(LEASE);
    story.view(idle(0));
    story.answer();
    assert_eq!(story.wanted(), None, "other clusters can acquire the lease first");
    assert_eq!(story.reconciler.next_deadline(), Some(given_up + Millis(LEASE + 1000)));
    story.pass(1000);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
}

#[test]
fn a_publication_that_is_overtaken_is_never_sent() {
    let mut story = Story::publishing_by_a();
    story.is_published(9, "b", 2);
    story.event(Event::StatusWritten(StatusOutcome::Conflict));
    story.read_lease();
    let superseded =
        Command::Published { attempt: Attempt(1), outcome: redislease_core::lease::Publication::Superseded };
    assert_eq!((story.commands(), story.status_write()), (vec![superseded], None));
}

#[test]
fn a_waiting_publication_is_withdrawn_when_its_term_is_lost() {
    let mut story = Story::publishing_by_a();
    assert!(story.status_write().is_some());
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(story.wants(&Effect::WithdrawStatus));
    story.turn();
    assert!(!story.wants(&Effect::WithdrawStatus), "once");
}

impl Story {
    /// Another process has published a term.
    fn is_published(&mut self, token: i64, pod: &str, attempt: u128) {
        let holder = json!({"cluster": "here", "namespace": "jobs", "pod": pod, "podUID": format!("uid-{pod}")});
        let active = json!({"type": "Active", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let attempt = format!("{attempt:032x}");
        let status = json!({"attempt": attempt, "fencingToken": token, "holder": holder, "conditions": [active]});
        self.watch_shows(Arc::new(serde_json::from_value(status).unwrap()));
    }
}

/// A condition changes ten times a second, and says something else each time.
#[test]
fn a_condition_that_changes_causes_twenty_statuses_and_then_one_a_second() {
    let mut story = Story::held_by_a();
    while story.status_write().is_some() {
        story.write();
    }
    let mut serial = 0;
    let mut written = |story: &mut Story, seconds: u64| {
        let mut written = 0;
        for _ in 0..10 * seconds {
            Arc::make_mut(&mut story.facts.quorum).mismatch = Some(format!("node c has configuration {serial}"));
            serial += 1;
            story.pass(100);
            if story.status_write().is_some() {
                story.write();
                written += 1;
            }
        }
        written
    };
    let first = written(&mut story, 10);
    assert!((20..=31).contains(&first), "{first} statuses in the first ten seconds");
    let later = written(&mut story, 50);
    assert!((45..=51).contains(&later), "{later} statuses in the next 50 s");
    // The end of the term is written at once.
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    assert!(story.status_write().is_some_and(|write| write.priority == Priority::End));
}

/// What the nodes answer alternates, once a second for ten minutes.
#[test]
fn a_condition_that_alternates_is_written_with_growing_pauses() {
    let mut story = Story::held_by_a();
    let mut written = 0;
    for second in 0..600 {
        Arc::make_mut(&mut story.facts.quorum).mismatch =
            Some(format!("node {} has another configuration", second % 3));
        story.pass(1000);
        while story.status_write().is_some() {
            story.write();
            written += 1;
        }
    }
    assert!((15..60).contains(&written), "{written}");
}

/// A policy that refuses the status of each of 10,000 leases.
#[test]
fn a_status_that_is_refused_again_and_again_is_written_with_growing_pauses() {
    for (ends, at_most) in [(false, 18), (true, 66)] {
        let mut story = Story::held_by_a();
        while story.status_write().is_some() {
            story.write();
        }
        if ends {
            story.view(ending(term(1, 7, "a"), EndReason::Misses));
        } else {
            Arc::make_mut(&mut story.facts.quorum).mismatch = Some("node c has another configuration".into());
            story.turn();
        }
        let mut written = 0;
        for _ in 0..6000 {
            if story.status_write().is_some() {
                written += 1;
                story.event(Event::StatusWritten(StatusOutcome::Refused("a policy".into())));
                story.read_lease();
            }
            story.pass(100);
        }
        assert!((10..=at_most).contains(&written), "{written} writes in ten minutes");
    }
}

#[test]
fn an_event_tells_once_that_the_api_server_refuses_the_status() {
    let mut story = Story::held_by_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let mut notes = Vec::new();
    for _ in 0..5 {
        story.now += Millis(2000);
        story.event(Event::StatusWritten(StatusOutcome::Refused("a webhook".into())));
        notes.extend(story.reports(NoticeReason::WriteRefused).into_iter().map(|notice| notice.note));
        story.read_lease();
        story.pass(8000);
        assert!(story.status_write().is_some());
    }
    let note = "The API server has not accepted the status of this RedisLease for 20 s, so the status is out of date: a webhook";
    assert_eq!(notes, [note]);
    let mut story = Story::held_by_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    for _ in 0..2 {
        story.event(Event::StatusWritten(StatusOutcome::AtFault("late".into())));
        story.read_lease();
        story.pass(500);
    }
    story.event(Event::StatusWritten(StatusOutcome::AtFault("late".into())));
    assert!(story.reported(NoticeReason::WriteRefused).note.ends_with("late"));
}

#[test]
fn a_pending_status_is_withdrawn_only_if_it_contradicts_the_term() {
    let mut story = Story::publishing_by_a();
    assert!(story.status_write().is_some());
    story.candidates(&[pod("a")]);
    story.turn();
    assert!(!story.wants(&Effect::WithdrawStatus), "only the counts differ");
    story.view(publishing(term(2, 8, "a")));
    assert!(story.wants(&Effect::WithdrawStatus), "{:?}", story.effects);
}

#[test]
fn counts_are_written_every_five_seconds() {
    let mut story = Story::held_by_a();
    story.candidates(&[pod("a"), pod("b"), pod("c")]);
    story.turn();
    story.write();
    story.candidates(&[pod("a"), pod("b")]);
    story.turn();
    assert_eq!(story.status_write(), None);
    story.pass(4999);
    assert_eq!(story.status_write(), None);
    story.pass(1);
    assert!(story.status_write().is_some(), "{:?}", story.effects);
}
