//! Writes to pods that are refused, changed on their way, or undone by others.

use super::*;

impl Story {
    /// Somebody removes the label from this pod.
    pub(super) fn unlabel(&mut self, name: &str) {
        let mut pods = self.known_pods();
        for pod in pods.iter_mut().filter(|pod| pod.name == name) {
            pod.labels.remove(LABEL);
        }
        self.candidates(&pods);
        self.turn();
    }
}

#[test]
fn a_write_that_the_api_server_changes_is_reported_and_waits_longer_each_time() {
    let mut story = Story::held_by_a();
    story.unlabel("b");
    let altered = Altered {
        path: ["metadata", "labels", LABEL].map(str::to_owned).into(),
        wanted: Some("standby".into()),
        stored: None,
        manager: None,
    };
    for (round, pause) in [1000, 2000, 4000, 8000].into_iter().enumerate() {
        assert_eq!(story.roles(), [("b".into(), Some(PodRole::Standby))]);
        story.role_answered("b", RoleOutcome::Written(Some(Box::new(altered.clone()))));
        assert_eq!(story.roles(), [], "the same write waits");
        assert!(story.reconciler.next_deadline().is_some_and(|at| at <= story.now + Millis(pause)));
        story.pass(pause - 1);
        assert_eq!(story.roles(), [], "round {round}");
        story.pass(1);
    }
}

#[test]
fn a_refusal_is_counted_each_time_and_reported_once() {
    let mut story = Story::held_by_a();
    story.unlabel("b");
    let mut events = 0;
    for round in 0..3 {
        story.role_answered("b", refusal("the policy forbids it"));
        assert!(story.wants(&Effect::Measure(Measure::WriteRefused { kind: None, altered: false })), "round {round}");
        events += story.reports(NoticeReason::WriteRefused).len();
        story.pass(5000);
    }
    assert_eq!(events, 1);
}

#[test]
fn a_fighter_is_corrected_and_slows_down_only_what_it_changes() {
    let mut story = Story::held_by_a();
    let (mut corrected, mut reported, mut writes) = (0, 0, 0);
    // Every 100 ms for a minute, somebody removes the label from both pods.
    for _ in 0..600 {
        story.now += Millis(100);
        story.unlabel("b");
        corrected += story.corrected(None);
        reported += story.reports(NoticeReason::ChangedByOthers).len();
        writes += story.pods().len();
    }
    assert_eq!((corrected, writes), (8, 8), "two at once, then after 1, 2, 4, 8, 16 and 32 s");
    assert_eq!(reported, 1);
    // The lease moves: `b` gets its label at once.
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.candidates(&[pod("b")]);
    story.turn();
    story.facts.holder = PodKnowledge::Unseen;
    story.view(idle(0));
    story.answer();
    story.holder(pod("b"));
    story.elect(term(2, 8, "b"));
    assert!(story.roles().contains(&("b".into(), Some(PodRole::Active))), "{:?}", story.effects);
}

/// A resource from before the rule of the schema.
#[test]
fn a_selector_on_a_label_of_the_operator_is_invalid_and_nothing_is_written() {
    let mut story = Story::new();
    let expression = json!({"key": LABEL, "operator": "DoesNotExist"});
    story.store(&json!({"candidates": {"selector": {"matchExpressions": [expression]}}}), &json!(null));
    // The index knows no candidates of an invalid spec.
    story.facts.candidates = CandidateFacts::Unknown;
    story.turn();
    let ready = story.ready();
    assert_eq!(ready.reason, "InvalidSpec");
    assert!(ready.message.contains("must not use a label key under redislease.io"), "{}", ready.message);
    story.write();
    story.answer();
    assert_eq!((story.roles(), story.wanted()), (vec![], None));
}
