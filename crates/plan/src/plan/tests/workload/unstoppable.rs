//! What ends the term of a workload that runs while the operator must not stop it: another cluster would start its own beside it.

use super::*;
use crate::api::lease_status::HandoverState;

impl Story {
    /// Somebody sets `spec.suspend`.
    pub(in super::super) fn suspend(&mut self) {
        let mut spec = serde_json::to_value(&self.facts.lease.as_ref().unwrap().spec).unwrap();
        spec["suspend"] = json!(true);
        self.edit(&spec);
        self.turn();
    }

    /// The RedisQuorum does not allow the namespace any more.
    fn deny(&mut self) {
        let obstacle = Some((LeaseReady::InvalidReference, "why".to_owned()));
        self.facts.quorum = Arc::new(QuorumFacts { denied: true, obstacle, ..quorum(1, "f00d") });
        self.turn();
    }
}

#[test]
fn a_running_workload_keeps_its_term_while_the_operator_must_not_stop_it() {
    for revoke in [Story::suspend, Story::deny] {
        let mut story = Story::running();
        story.facts.allowed = Allowed::default();
        revoke(&mut story);
        assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
        let mut next = story.clone().restarted();
        assert!(next.wants(&Effect::Keeper(Command::Adopt(held_by_here()))), "{:?}", next.effects);
        next.view(held(held_by_here()));
        next.facts.candidates = CandidateFacts::Unknown;
        next.turn();
        assert_eq!(next.commands(), [], "what is not known may run");

        let mut stopped = story.clone();
        stopped.workload_is(WorkloadFacts { run: Run::Replicas(0), ..story.workload() });
        stopped.turn();
        assert_eq!(stopped.commands(), [end(held_by_here())]);
        story.facts.allowed = Allowed { scale: true, ..Allowed::default() };
        story.turn();
        story.answer_test(RoleOutcome::Written(None));
        assert_eq!(story.commands(), [end(held_by_here())]);
    }
}

/// The term is not adopted yet.
#[test]
fn a_suspended_lease_says_why_its_term_goes_on_after_a_restart() {
    let mut story = Story::running();
    story.facts.allowed = Allowed::default();
    story.suspend();
    story.write();
    let before = story.shown(ConditionType::Ready).message;
    assert_eq!(story.restarted().shown(ConditionType::Ready).message, before);
}

#[test]
fn a_suspended_lease_says_why_its_term_goes_on() {
    let mut story = Story::running();
    story.facts.allowed = Allowed::default();
    story.suspend();
    let Condition { reason, message, .. } = story.shown(ConditionType::Ready);
    assert_eq!(reason, LeaseReady::ActivationNotAllowed.as_str());
    let ends = "The term goes on although spec.suspend is true, because the operator cannot stop what runs.";
    assert!(message.contains("rbac.allowScale in the chart") && message.ends_with(ends), "{message}");
    story.write();
    story.lose(held_by_here());
    story.view(idle(0));
    let message = story.shown(ConditionType::Ready).message;
    assert!(!message.contains("goes on"), "{message}");
    let runs_on = "The workload runs on, because it cannot be stopped: this operator runs without --allow-scale";
    assert!(message.starts_with("spec.suspend is true") && message.contains(runs_on), "{message}");
    story.write();
    story.workload_is(WorkloadFacts { run: Run::Replicas(0), ..story.workload() });
    story.turn();
    let message = story.shown(ConditionType::Ready).message;
    assert!(!message.contains("runs on"), "{message}");
}

impl Story {
    /// The API server answers to the only write to the workload, the dry run of its stop.
    fn answer_test(&mut self, outcome: RoleOutcome) {
        let [write] = &self.role_writes()[..] else { panic!("{:?}", self.effects) };
        let stopped = PodChange::Run(Run::Replicas(0));
        assert_eq!((write.role, write.change, write.dry_run), (Some(PodRole::Standby), stopped, true));
        if self.status_write().is_some() {
            self.write();
        }
        self.role_answered("billing-d", outcome);
    }
}

#[test]
fn a_term_ends_by_request_only_after_the_stop_of_its_workload_was_accepted_as_a_dry_run() {
    let end = [end(held_by_here())];
    for revoke in [Story::suspend, Story::deny] {
        let mut story = Story::running();
        revoke(&mut story);
        assert_eq!(story.commands(), [], "{:?}", story.effects);
        assert!(story.status_write().is_none_or(|write| !format!("{:?}", write.status).contains("no pod is elected")));
        let mut refused = story.clone();
        story.answer_test(RoleOutcome::Written(None));
        assert_eq!(story.commands(), end, "{:?}", story.effects);

        refused.answer_test(refusal(FORBIDDEN));
        assert_eq!(refused.commands(), [], "{:?}", refused.effects);
        let ready = refused.ready();
        assert_eq!(ready.reason, LeaseReady::Forbidden.as_str());
        assert!(ready.message.contains(FORBIDDEN), "{}", ready.message);
        refused.write();
        // Another process does not know it.
        let mut next = refused.clone().restarted();
        assert!(next.wants(&Effect::Keeper(Command::Adopt(held_by_here()))), "{:?}", next.effects);
        next.view(held(held_by_here()));
        assert_eq!(next.commands(), [], "{:?}", next.effects);
        // The right is granted again.
        refused.pass(1000);
        refused.answer_test(RoleOutcome::Written(None));
        assert_eq!(refused.commands(), end, "{:?}", refused.effects);
    }
}

#[test]
fn a_handover_of_a_workload_that_cannot_be_stopped_is_refused() {
    let mut story = Story::running();
    story.request("1", Some("cluster/there"));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
    story.answer_test(refusal(FORBIDDEN));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
    let handover = story.status_write().unwrap().status.handover.clone().unwrap();
    assert_eq!(handover.state, HandoverState::Refused);
    assert!(handover.message.contains(FORBIDDEN), "{handover:?}");
}

/// The corrections of what others change wait longer and longer.
#[test]
fn the_test_whether_a_workload_can_be_stopped_waits_for_no_back_off() {
    let mut story = Story::running();
    let mut replicas = 4;
    for _ in 0..8 {
        replicas += 1;
        let version = story.workload().resource_version.unwrap().parse::<u64>().unwrap() + 1;
        story.scale(replicas, &version.to_string());
        story.turn();
        story.finish();
    }
    assert_eq!(story.run().1, Run::Replicas(replicas), "the last correction waits");
    story.suspend();
    story.answer_test(RoleOutcome::Written(None));
    assert_eq!(story.commands(), [end(held_by_here())]);
}

/// A policy that lets the operator write, and keeps the replicas as they are.
#[test]
fn a_stop_that_the_api_server_would_store_otherwise_is_refused() {
    let mut story = Story::running();
    story.suspend();
    let [test] = &story.role_writes()[..] else { panic!("{:?}", story.effects) };
    let altered = |replicas| test.altered_in("billing", deployment(replicas).object());
    assert_eq!(altered(0), None, "it stops, whatever its label is");
    let altered = altered(3).unwrap();
    assert_eq!(altered.path, ["spec", "replicas"]);
    story.answer_test(RoleOutcome::Written(Some(Box::new(altered))));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
}

/// The API server finds a conflict before it asks policies and webhooks, so a conflict says nothing about them.
#[test]
fn a_conflict_does_not_show_that_a_workload_can_be_stopped() {
    let mut story = Story::running();
    story.suspend();
    story.answer_test(RoleOutcome::Conflict);
    assert_eq!(story.commands(), [], "{:?}", story.effects);
    story.answer_test(refusal(FORBIDDEN));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
}

#[test]
fn an_unconfirmed_term_of_a_workload_that_cannot_be_stopped_goes_on() {
    let mut story = Story::running();
    story.suspend();
    story.answer_test(refusal(FORBIDDEN));
    story.write();
    story.view(uncertain(held_by_here()));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
}

/// It may run.
#[test]
fn a_term_of_a_workload_that_cannot_be_read_goes_on() {
    let mut story = Story::running();
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::Forbidden, FORBIDDEN.to_owned());
    story.suspend();
    assert_eq!(story.commands(), [], "{:?}", story.effects);
    let ready = story.ready();
    assert!(ready.message.contains("goes on although spec.suspend is true"), "{ready:?}");
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "it does not exist".to_owned());
    story.turn();
    assert_eq!(story.commands(), [end(held_by_here())]);
}

#[test]
fn the_answer_to_a_write_to_a_copy_does_not_show_that_a_workload_can_be_stopped() {
    let mut story = Story::running();
    let copy = WorkloadFacts { uid: "uid-copy".into(), ..story.workload() };
    story.facts.stray_workloads = vec![Arc::new(copy)];
    story.turn();
    assert!(story.role_writes().iter().any(|write| write.uid == "uid-copy"), "{:?}", story.effects);
    story.suspend();
    story.role_answered("copy", RoleOutcome::Written(None));
    assert_eq!(story.commands(), [], "{:?}", story.effects);
}

/// It names two leases, or is misspelt: nothing starts it, and its stop follows the end of the term all the same.
#[test]
fn a_term_of_a_workload_with_a_mistake_ends_only_after_a_dry_run_too() {
    for lease in ["other", "billing "] {
        let mut story = Story::running();
        story.change_workload("30", |workload| workload.annotations.set("redislease.io/lease", Some(lease)));
        story.suspend();
        assert_eq!(story.commands(), [], "{lease}: {:?}", story.effects);
        let mut refused = story.clone();
        refused.answer_test(refusal("a policy"));
        assert_eq!(refused.commands(), [], "{lease}: {:?}", refused.effects);
        story.answer_test(RoleOutcome::Written(None));
        assert_eq!(story.commands(), [end(held_by_here())], "{lease}");
    }
}

/// To stop it would delete its volumes.
#[test]
fn a_term_whose_workload_must_not_be_scaled_goes_on() {
    let mut story = Story::running();
    story.change_workload("30", |workload| workload.deletes_volumes = true);
    story.write();
    story.suspend();
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]), "{:?}", story.effects);
    let ready = story.ready();
    assert!(ready.message.contains("whenScaled is Delete"), "{ready:?}");
}

/// After a restart, the spec does not fit the quorum: the term may be that of another workload. The user must know that it goes on.
#[test]
fn a_term_whose_workload_is_unknown_because_of_the_spec_says_that_it_goes_on() {
    let mut story = Story::running();
    story.facts.candidates = CandidateFacts::Unknown;
    story.unfit();
    story.turn();
    story.write();
    story.suspend();
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]), "{:?}", story.effects);
    let ready = story.ready();
    assert!(ready.reason == "Forbidden" && ready.message.contains("Correct it"), "{ready:?}");
    assert!(ready.message.contains("The term goes on although spec.suspend is true"), "{ready:?}");
}

/// The refused dry run waits longer and longer.
#[test]
fn a_workload_whose_stop_is_refused_still_gets_its_label() {
    let mut story = Story::running();
    story.suspend();
    story.answer_test(refusal("a policy"));
    story.write();
    story.change_workload("30", |workload| _ = workload.labels.insert(LABEL.into(), "standby".into()));
    story.finish();
    assert_eq!((story.run(), story.commands()), ((Some("active".into()), Run::Replicas(3)), vec![]));
}

/// After a restart, the candidate is not read yet.
#[test]
fn a_term_whose_workload_is_not_read_yet_is_not_said_to_be_unstoppable() {
    let mut story = Story::running();
    story.suspend();
    story.facts.candidates = CandidateFacts::Unknown;
    let mut next = story.restarted();
    let ready = next.ready();
    assert_eq!(ready.message, "billing holds the lease with fencing token 7.");
    next.view(held(held_by_here()));
    assert_eq!(next.commands(), [], "it may run: {:?}", next.effects);
}
