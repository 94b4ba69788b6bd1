//! What must be written before a workload counts as withdrawn.

use super::*;

/// The first withdrawal stops the workload at once. Another process that decides by accident may see its version, read the status that
/// still names the term, and send a start that hangs: only a write after the end in the status moves the version past it.
#[test]
fn a_workload_is_withdrawn_again_when_the_status_does_not_name_the_term_any_more() {
    let mut story = Story::running();
    story.view(ending(held_by_here(), EndReason::Deadline));
    let end = story.status_write().expect("the end is to be written").status;
    story.pods();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)));
    let first = story.workload();
    assert_eq!(story.switches(), [], "the status is not written yet");
    story.write_status(end);
    assert_eq!(story.switches(), [(Some(PodRole::Standby), PodChange::None, DEPLOYMENT)]);
    assert_eq!(story.corrected(DEPLOYMENT), 0, "nobody else has changed the workload: {:?}", story.effects);
    story.pods();
    assert_ne!(story.workload().annotations.get(WITHDRAWN), first.annotations.get(WITHDRAWN));
    assert_ne!(story.workload().resource_version, first.resource_version);
    story.turn();
    assert_eq!(story.switches(), []);
}

/// The end is written first: one withdrawal is enough.
#[test]
fn a_withdrawal_that_is_sent_after_the_end_in_the_status_is_not_repeated() {
    let mut story = Story::running();
    story.facts.allowed.scale = false;
    story.lose(held_by_here());
    assert_eq!(story.switches(), []);
    story.facts.allowed.scale = true;
    story.turn();
    assert_eq!(story.finish().len(), 1);
    story.turn();
    assert_eq!(story.switches(), []);
}
