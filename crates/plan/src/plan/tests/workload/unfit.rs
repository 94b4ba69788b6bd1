//! After a restart, the spec does not fit the quorum: somebody has changed the quorum, or the spec.

use super::*;

/// The workload runs for the term in the status. Another process of the operator starts, and adopts the term.
fn restarted(workload: impl FnOnce(WorkloadFacts) -> WorkloadFacts) -> Story {
    let before = Story::running();
    let status = before.status_value();
    let mut story = Story::new();
    story.store(&spec(), &status);
    story.workload_is(workload(before.workload()));
    story.unfit();
    story.turn();
    story.answer();
    story.facts.holder = PodKnowledge::Workload;
    story.view(adopting(held_by_here()));
    story.view(held(held_by_here()));
    story.finish();
    story
}

#[test]
fn the_workload_is_stopped_when_its_term_is_lost() {
    let mut story = restarted(|workload| workload);
    assert_eq!(story.run(), (Some("active".into()), Run::Replicas(3)));
    let ready = story.status();
    assert!(ready.condition(ConditionType::Active).is_some_and(|active| active.status == "True"), "the term goes on");
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)), "{:?}", story.effects);
    story.view(idle(0));
    story.pass(60_000);
    assert_eq!(story.wanted(), None, "no term begins");
}

/// The process that ended the term did not stop the workload.
#[test]
fn a_workload_with_the_mark_of_the_lease_is_stopped_if_no_term_is_known() {
    let before = Story::running();
    let mut status = before.status_value();
    for ended in ["holder", "attempt"] {
        status.as_object_mut().unwrap().remove(ended);
    }
    for (mark, run) in [(None, Run::Replicas(0)), (Some("uid-other.uid-billing-d"), Run::Replicas(3))] {
        let mut story = Story::new();
        story.store(&spec(), &status);
        let mut workload = before.workload();
        if let Some(mark) = mark {
            workload.annotations.set(OWNER, Some(mark));
        }
        story.workload_is(workload);
        story.unfit();
        story.turn();
        story.finish();
        assert_eq!(story.run().1, run, "{mark:?}: {:?}", story.effects);
    }
}

/// The spec before the edit may name another workload.
#[test]
fn a_workload_that_the_status_does_not_name_runs_on() {
    let mut story = restarted(|workload| WorkloadFacts { uid: "uid-another".into(), ..workload });
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.finish();
    assert_eq!(story.run(), (Some("active".into()), Run::Replicas(3)), "{:?}", story.effects);
}
