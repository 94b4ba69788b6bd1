//! What becomes of a term whose workload is deleted.

use super::*;

#[test]
fn a_workload_that_vanished_ends_the_term_without_proof() {
    let mut story = Story::running();
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "it does not exist".into());
    story.turn();
    assert_eq!(story.commands(), [Command::End { term: held_by_here(), proof: false }]);
}

/// Kubernetes deletes the lease with its workload. A lease that stays has lost its workload to `--cascade=orphan`, or a finalizer keeps
/// the workload: the pods run on.
#[test]
fn a_lease_that_was_made_for_a_workload_keeps_its_term_when_the_workload_is_deleted() {
    let mut story = Story::running();
    let mut lease = RedisLease::clone(story.facts.lease.as_ref().unwrap());
    let pairs = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
    lease.metadata.labels = pairs("app.kubernetes.io/managed-by", "redislease");
    lease.metadata.annotations = pairs("redislease.io/created-for", "Deployment/billing");
    story.facts.lease = Some(Arc::new(lease));
    // What a turn orders, and the message of Ready.
    let turn = |story: &mut Story, suspend| {
        Arc::make_mut(story.facts.lease.as_mut().unwrap()).spec.suspend = suspend;
        story.turn();
        let orders = (story.commands(), story.role_writes());
        while story.status_write().is_some() {
            story.write();
        }
        let status = story.facts.lease.as_ref().unwrap().status.as_ref().unwrap();
        (orders, status.condition(ConditionType::Ready).unwrap().message.clone())
    };
    let nothing = (vec![], vec![]);
    let workload = WorkloadFacts { deleting: true, resource_version: Some("30".into()), ..story.workload() };
    story.workload_is(workload.clone());
    assert_eq!(turn(&mut story, false).0, nothing);
    let (orders, ready) = turn(&mut story, true);
    assert_eq!(orders, nothing, "its controller ignores every change");
    assert!(ready.contains("The operator cannot stop the workload: it is being deleted"), "{ready}");
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "It does not exist.".into());
    assert_eq!(turn(&mut story, true).0, nothing, "another cluster would start beside its pods");
    let (orders, ready) = turn(&mut story, false);
    assert_eq!(orders, nothing);
    assert!(ready.ends_with("when they have stopped, delete the RedisLease."), "{ready}");
    story.workload_is(WorkloadFacts { uid: "uid-again".into(), deleting: false, ..workload });
    story.turn();
    assert_eq!(
        story.commands(),
        [Command::End { term: held_by_here(), proof: false }],
        "the other one is the candidate"
    );
}

/// Its controller ignores it, and a finalizer of another program can keep it for ever.
#[test]
fn a_workload_that_is_being_deleted_neither_keeps_nor_takes_the_lease() {
    let deleted = |story: &mut Story| {
        let workload = WorkloadFacts { deleting: true, resource_version: Some("30".into()), ..story.workload() };
        story.workload_is(workload);
        story.turn();
    };
    let mut story = Story::running();
    deleted(&mut story);
    assert_eq!(story.commands(), [Command::End { term: held_by_here(), proof: false }]);
    let mut story = Story::of_cluster(0);
    deleted(&mut story);
    story.answer();
    assert_eq!(story.wanted(), None);
}
