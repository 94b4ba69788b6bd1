//! What the operator has written to a workload is removed when the lease does not use the workload any more.

use super::*;

#[test]
fn the_deletion_of_the_lease_removes_every_mark_and_leaves_the_replicas() {
    let mut story = Story::running();
    story.facts.lease = None;
    story.facts.stray_workloads = vec![Arc::new(story.workload())];
    story.turn();
    let writes = story.role_writes();
    let marks = [OWNER, WITHDRAWN].map(|mark| (mark.to_owned(), None));
    assert_eq!((writes[0].role, &writes[0].token, writes[0].change), (None, &None, PodChange::None));
    assert_eq!(writes[0].marks, marks);
}

#[test]
fn a_process_that_may_not_decide_removes_no_mark_of_a_deleted_lease() {
    let mut story = Story::running();
    story.facts.lease = None;
    story.facts.stray_workloads = vec![Arc::new(story.workload())];
    story.facts.authority = Authority::Renew;
    story.turn();
    assert_eq!(story.switches(), []);
    story.view(View::default());
    story.event(Event::KeeperEnded);
    assert!(!story.reconciler.is_finished(), "the marks are left");
    story.facts.authority = Authority::End;
    story.turn();
    assert_eq!(story.switches().len(), 1);
}

/// The lease had granularity Cluster before, perhaps while another process ran.
#[test]
fn a_lease_of_pods_removes_its_marks_from_a_workload_and_leaves_the_replicas() {
    let mut workload = Story::running().workload();
    let mut story = Story::new();
    workload.resource_version = Some("70".into());
    story.facts.stray_workloads = vec![Arc::new(workload.clone())];
    story.turn();
    let write = &story.role_writes()[0];
    assert_eq!((write.workload, write.role, write.change), (Some(WorkloadKind::Deployment), None, PodChange::None));
    let marks = [OWNER, WITHDRAWN].map(|mark| (mark.to_owned(), None));
    assert_eq!((&write.version, &write.token, &write.marks[..]), (&Some("70".into()), &None, &marks[..]));
    let written = written(&workload, write);
    assert_eq!((written.marked_by().count(), written.run), (0, Run::Replicas(3)));
    // What the operator must not write to stays as it is.
    let mut story = Story::new();
    story.facts.stray_workloads = vec![Arc::new(workload)];
    story.facts.allowed.scale = false;
    story.turn();
    assert_eq!(story.role_writes(), []);
}
