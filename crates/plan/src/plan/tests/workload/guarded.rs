//! The back-off of writes to a workload, and the read that confirms a start.

use super::*;

impl Story {
    /// The workload runs, its term is not confirmed, and the status says so: the write of the label is due.
    fn doubted() -> Self {
        let mut story = Self::running();
        story.view(uncertain(held_by_here()));
        story.write();
        story.pass(2000);
        assert_eq!(story.switches().len(), 1);
        story
    }
}

/// A pipeline that creates the workload again and again must not cost memory for each.
#[test]
fn nothing_is_remembered_about_a_workload_that_was_replaced() {
    let mut story = Story::of_cluster(2).asked();
    story.view(refused_by(ELSEWHERE, story.now));
    assert_eq!(story.switches().len(), 1);
    story.workload_answered(refusal("a webhook"));
    assert_eq!(story.switches(), [], "a back-off");
    story.workload_is(WorkloadFacts { uid: "uid-other".into(), ..deployment(2) });
    story.turn();
    story.workload_is(deployment(2));
    story.turn();
    assert_eq!(story.switches().len(), 1);
}

/// An admission webhook hangs, or a policy refuses the stop.
#[test]
fn a_stop_that_is_refused_or_never_answered_is_told() {
    let hangs =
        "the API server answers other calls, and this one not, as if an admission webhook hangs: no answer within 31 s";
    for (outcome, why, again) in [
        (RoleOutcome::AtFault("no answer within 31 s".into()), hangs, vec![STOP]),
        (refusal("the policy"), "the policy", vec![]),
    ] {
        let mut story = Story::running();
        story.view(ending(held_by_here(), EndReason::Deadline));
        story.workload_answered(outcome);
        let note = story.reported(NoticeReason::ActivationRefused).note;
        let says = "billing does not hold the lease and runs on, because it cannot be stopped";
        assert_eq!((note, story.switches()), (format!("{says}: {why}"), again));
    }
}

/// The event is gone after an hour.
#[test]
fn a_suspended_lease_says_that_its_workload_runs_on() {
    let mut story = Story::running();
    story.suspend();
    story.write();
    story.workload_answered(RoleOutcome::Written(None));
    story.view(ending(held_by_here(), EndReason::Decided));
    story.write();
    let ready = |story: &Story| story.shown(ConditionType::Ready).message;
    let suspension = "spec.suspend is true: no pod is elected until it is false.";
    assert_eq!(ready(&story), suspension);
    story.workload_answered(refusal("a policy"));
    let says = format!("{suspension} The workload runs on, because it cannot be stopped: a policy.");
    assert_eq!(ready(&story), says);
    // Another cluster holds the lease meanwhile.
    let mut lost = story.clone();
    lost.write();
    lost.edit(&spec());
    lost.view(refused_by(ELSEWHERE, lost.now));
    let says = "This cluster does not hold the lease. The workload runs on, because it cannot be stopped: a policy.";
    assert_eq!(ready(&lost), says);
    let mut replaced = story.clone();
    replaced.write();
    replaced.workload_is(WorkloadFacts { uid: "uid-other".into(), ..deployment(2) });
    replaced.turn();
    let says = ready(&replaced);
    assert!(says.contains("has not started it"), "it is another one: {says}");
    story.write();
    story.pass(10_000);
    story.finish();
    assert_eq!((ready(&story).as_str(), story.run().1), (suspension, Run::Replicas(0)));
}

#[test]
fn a_refused_label_of_a_doubt_does_not_delay_the_stop() {
    let mut story = Story::doubted();
    for _ in 0..6 {
        story.workload_answered(refusal("a webhook"));
        let until = story.reconciler.next_deadline().unwrap();
        story.now = story.now.max(until);
        story.turn();
    }
    story.workload_answered(refusal("a webhook"));
    assert_eq!(story.switches(), [], "the back-off lasts");
    story.view(ending(held_by_here(), EndReason::Deadline));
    assert_eq!(story.switches(), [STOP]);
}

#[test]
fn the_stop_after_a_doubt_corrects_nothing() {
    let mut story = Story::doubted();
    story.pods();
    story.view(ending(held_by_here(), EndReason::Deadline));
    assert_eq!((story.switches().len(), story.corrected(DEPLOYMENT)), (1, 0));
}

#[test]
fn other_replicas_in_the_spec_of_the_lease_correct_nothing() {
    let mut story = Story::running();
    let mut more = spec();
    more["activation"]["scale"]["replicas"] = json!(5);
    story.edit(&more);
    story.turn();
    story.read_lease();
    assert_eq!((story.switches().len(), story.corrected(DEPLOYMENT)), (1, 0), "{:?}", story.effects);
    story.finish();
    // Somebody scales the workload: this is one.
    story.scale(4, "50");
    story.turn();
    story.read_lease();
    assert_eq!((story.switches().len(), story.corrected(DEPLOYMENT)), (1, 1), "{:?}", story.effects);
}

/// The API server was restored to a state from before the publication: the index keeps the newer lease that it knows.
#[test]
fn a_status_that_does_not_name_the_term_confirms_no_start() {
    let mut story = Story::published(0);
    story.pods();
    assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
    let known = story.facts.lease.clone().unwrap();
    let other = |change: fn(&mut RedisLeaseStatus)| {
        let mut lease = known.as_ref().clone();
        change(lease.status.as_mut().unwrap());
        Arc::new(lease)
    };
    let unnamed = other(|status| status.attempt = None);
    let ended = other(|status| {
        status.conditions.iter_mut().filter(|one| one.type_ == "Active").for_each(|one| one.status = "False".into());
    });
    for read in [unnamed, ended] {
        story.event(Event::LeaseRead(Ok(Some(read))));
        assert_eq!((story.switches(), story.wants(&Effect::Read(Read::Lease))), (vec![], false));
        story.pass(999);
        assert!(!story.wants(&Effect::Read(Read::Lease)), "the same read waits a second");
        story.pass(1);
        assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
    }
    story.read_lease();
    assert_eq!(story.switches()[0].0, Some(PodRole::Active));
}

/// Another cluster would start its workload beside this one, which the operator can not stop.
#[test]
fn a_right_that_is_withdrawn_ends_no_term_of_a_workload_that_runs() {
    let mut story = Story::running();
    story.scale(5, "40");
    story.turn();
    story.read_lease();
    assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(3)), "a correction");
    story.workload_answered(refusal(FORBIDDEN));
    assert_eq!(story.commands(), []);
    assert_eq!(story.ready().reason, "Forbidden");
}

/// Its controller stops no pod while a later one is not Ready.
#[test]
fn a_held_lease_says_that_a_stateful_set_may_not_stop_all_its_pods() {
    let mut story = Story::running();
    assert!(!story.shown(ConditionType::Ready).message.contains("OrderedReady"));
    story.change_workload("30", |workload| workload.stops_in_order = true);
    let ready = story.ready();
    assert!(ready.status == "True" && ready.message.contains("podManagementPolicy is OrderedReady"), "{ready:?}");
    // It hides no other risk.
    let mut short = spec();
    (short["leaseDuration"], short["renewInterval"], short["gracePeriod"]) = (json!("8s"), json!("2s"), json!("1s"));
    story.write();
    story.edit(&short);
    story.turn();
    let ready = story.ready();
    let both = ["podManagementPolicy is OrderedReady", "when one replica of the operator fails"];
    assert!(both.iter().all(|risk| ready.message.contains(risk)), "{ready:?}");
}

/// The lease is held, and its job runs nowhere.
#[test]
fn a_start_that_is_refused_is_shown_until_it_is_stored() {
    let mut story = Story::published(0);
    story.pods();
    story.read_lease();
    assert_eq!(story.switches()[0].0, Some(PodRole::Active));
    story.workload_answered(refusal("a policy"));
    assert_eq!(story.commands(), []);
    let ready = story.ready();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Forbidden"), "{}", ready.message);
    assert!(ready.message.contains("refuses the write that starts it: a policy"), "{}", ready.message);
    story.write();
    // Somebody else starts it.
    story.change_workload("40", |workload| {
        workload.run = Run::Replicas(3);
        workload.labels.insert(LABEL.into(), "active".into());
    });
    assert_eq!(story.ready().reason, "HeldHere");
}

/// The operator lacks a right: the flag and the consent are there.
#[test]
fn a_cluster_that_may_not_write_to_its_workload_gives_the_lease_up_and_says_so() {
    let mut story = Story::published(0);
    story.workload_answered(refusal(FORBIDDEN));
    assert_eq!(story.commands(), [end(held_by_here())]);
    story.view(ending(held_by_here(), EndReason::Decided));
    let ready = story.ready();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Forbidden"), "{}", ready.message);
    assert!(ready.message.contains(FORBIDDEN), "{}", ready.message);
    story.write();
    story.view(idle(0));
    story.answer();
    assert_eq!(story.wanted(), None);
    // The refusal of a workload says nothing about another one of its name.
    let mut again = story.clone();
    again.workload_is(WorkloadFacts { uid: "uid-again".into(), ..story.workload() });
    again.answer();
    assert_eq!(again.wanted().as_deref(), Some("billing"), "{:?}", again.effects);
    // Nor can it write to the workload that was the candidate before.
    let other = WorkloadFacts { uid: "uid-other".into(), name: "other".into(), ..Story::running().workload() };
    story.facts.stray_workloads = vec![Arc::new(other)];
    story.turn();
    assert_eq!(story.role_writes().len(), 1);
    story.role_answered("other", refusal(FORBIDDEN));
    story.answer();
    assert_eq!(story.wanted(), None);
    story.facts.stray_workloads.clear();
    // It tries again.
    story.pass(300_000);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("billing"), "{:?}", story.effects);
    // A webhook that refuses is no missing right.
    let mut story = Story::published(0);
    story.workload_answered(refusal("a webhook"));
    assert_eq!(story.commands(), []);
}

/// As `kubectl replace` and tools that apply a manifest in this way do.
#[test]
fn a_workload_whose_marks_somebody_removes_is_stopped_when_its_term_ends() {
    let mut story = Story::running();
    let strip = |version: &str, story: &mut Story| {
        let WorkloadFacts { labels, annotations, .. } = deployment(3);
        story.change_workload(version, |workload| (workload.labels, workload.annotations) = (labels, annotations));
        story.read_lease();
    };
    for version in ["50", "60", "70", "80"] {
        strip(version, &mut story);
        story.finish();
    }
    strip("90", &mut story);
    assert_eq!(story.switches(), [], "the back-off of a fight lasts");
    story.view(ending(held_by_here(), EndReason::Decided));
    assert_eq!(story.switches(), [STOP]);
}

/// The template of other pods has the marks of the lease. Each of these pods is written once, and then goes.
#[test]
fn nothing_is_remembered_about_pods_that_are_gone() {
    let mut story = Story::running();
    story.lose(held_by_here());
    story.workload_answered(refusal("a webhook"));
    for number in 0..50 {
        let name = format!("stray-{number}");
        story.facts.strays = vec![Arc::new(with_token(labelled(pod(&name), "active"), "7"))];
        story.turn();
        assert_eq!(story.roles(), [(name.clone(), None)], "the write to the workload waits");
        story.facts.strays.clear();
        story.role_answered(&name, RoleOutcome::Written(None));
        assert_eq!(story.roles(), []);
    }
    let known = format!("{:?}", story.reconciler).matches("uid-stray").count();
    assert!(known < 20, "{known}");
}

/// A workload is no pod: what is known about it stays.
#[test]
fn the_pause_before_a_write_to_a_workload_of_an_earlier_spec_is_remembered_while_pods_go() {
    let mut story = Story::new();
    story.facts.stray_workloads = vec![Arc::new(Story::running().workload())];
    story.turn();
    story.workload_answered(refusal("a webhook"));
    for number in 0..50 {
        story.candidates(&[pod(&format!("p{number}"))]);
        story.view(idle(story.now.0 + 5000));
        assert!(story.role_writes().iter().all(|write| write.workload.is_none()), "{number} {:?}", story.role_writes());
        story.role_answered(&format!("p{number}"), RoleOutcome::Written(None));
    }
}
