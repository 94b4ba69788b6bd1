//! What becomes of a term whose workload is deleted.

use super::*;

#[test]
fn a_workload_that_vanished_ends_the_term_without_proof() {
    let mut story = Story::running();
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "it does not exist".into());
    story.turn();
    assert_eq!(story.commands(), [end(held_by_here())]);
}

impl Story {
    /// The operator has made the lease for its workload, which owns it.
    pub(super) fn made(mut self) -> Self {
        let lease = self.lease_mut();
        let pairs = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
        lease.metadata.labels = pairs("app.kubernetes.io/managed-by", "redislease");
        lease.metadata.annotations = pairs("redislease.io/created-for", "Deployment/billing");
        self.owned_by(Some("uid-billing-d"));
        self
    }

    fn owned_by(&mut self, uid: Option<&str>) {
        let owner = |uid| json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing", "uid": uid, "controller": true}]);
        let owners = uid.map(|uid| serde_json::from_value(owner(uid)).unwrap());
        self.lease_mut().metadata.owner_references = owners;
    }

    /// `kubectl delete --cascade=orphan`.
    fn orphaned(mut self) -> Self {
        self.owned_by(None);
        self.facts.holder = PodKnowledge::Gone { stopped: false };
        self.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "It does not exist".into());
        self.turn();
        self.write();
        self
    }

    /// The workload is created again, with this number of replicas.
    fn again(mut self, replicas: i32) -> Self {
        self.workload_is(WorkloadFacts { uid: AGAIN.into(), ..deployment(replicas) });
        self.turn();
        self
    }
}

const AGAIN: &str = "uid-again";

/// Kubernetes deletes the lease with its workload. A lease that stays has lost its workload to `--cascade=orphan`, or a finalizer keeps
/// the workload: the pods run on.
#[test]
fn a_lease_that_was_made_for_a_workload_keeps_its_term_when_the_workload_is_deleted() {
    let mut story = Story::running().made();
    // What a turn orders, and the message of Ready.
    let turn = |story: &mut Story, suspend| {
        story.lease_mut().spec.suspend = suspend;
        story.turn();
        let orders = (story.commands(), story.role_writes());
        while story.status_write().is_some() {
            story.write();
        }
        (orders, story.shown(ConditionType::Ready).message)
    };
    let nothing = (vec![], vec![]);
    story.workload_is(WorkloadFacts { deleting: true, resource_version: Some("30".into()), ..story.workload() });
    assert_eq!(turn(&mut story, false).0, nothing);
    let (orders, ready) = turn(&mut story, true);
    assert_eq!(orders, nothing, "its controller ignores every change");
    assert!(ready.contains("The operator cannot stop the workload: it is being deleted"), "{ready}");
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "It does not exist".into());
    assert_eq!(turn(&mut story, true).0, nothing, "another cluster would start beside its pods");
    let (orders, ready) = turn(&mut story, false);
    assert_eq!(orders, nothing);
    assert!(ready.starts_with("It does not exist. The term goes on, "), "{ready}");
    assert!(ready.ends_with("when they have stopped, delete the RedisLease."), "{ready}");
}

/// It has adopted the pods that run, or its manifest stops them.
#[test]
fn a_workload_that_is_created_again_runs_for_the_term_and_is_stopped_before_it_ends() {
    let end = [end(held_by_here())];
    for replicas in [3, 0] {
        let mut story = Story::running().made().orphaned().again(replicas);
        assert_eq!(story.commands(), [], "{:?}", story.effects);
        let writes = story.finish();
        assert!(writes.iter().all(|write| write.uid == AGAIN && write.change != PodChange::Run(Run::Replicas(0))));
        assert_eq!((story.run(), story.commands()), ((Some("active".into()), Run::Replicas(3)), vec![]));
        assert_eq!(story.workload().annotations.get(OWNER), Some(&format!("uid-billing.{AGAIN}")));

        // Another process knows only the status, which names the first workload.
        let mut next = story.clone().restarted();
        assert!(next.wants(&Effect::Keeper(Command::Adopt(held_by_here()))), "{:?}", next.effects);
        next.view(held(held_by_here()));
        next.finish();
        assert_eq!((next.run(), next.commands()), ((Some("active".into()), Run::Replicas(3)), vec![]));

        for mut story in [story, next] {
            story.lease_mut().spec.suspend = true;
            story.turn();
            assert_eq!(story.commands(), [], "its stop is tested first");
            let [test] = &story.role_writes()[..] else { panic!("{:?}", story.effects) };
            assert!(test.dry_run && test.uid == AGAIN && test.change == PodChange::Run(Run::Replicas(0)), "{test:?}");
            while story.status_write().is_some() {
                story.write();
            }
            story.event(Event::RoleWritten { uid: AGAIN.into(), outcome: RoleOutcome::Written(None) });
            assert_eq!(story.commands(), end, "{:?}", story.effects);
            story.view(ending(held_by_here(), EndReason::Decided));
            story.finish();
            assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)));
        }
    }
}

#[test]
fn a_workload_that_is_created_again_after_its_term_was_lost_is_stopped() {
    let mut story = Story::running().made().orphaned();
    story.lose(held_by_here());
    let mut story = story.again(3);
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)));
}

/// It was deleted without `--cascade=orphan`. Kubernetes deletes its lease soon.
#[test]
fn nothing_starts_for_a_lease_of_an_earlier_workload() {
    let mut story = Story::running().made();
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    let mut story = story.again(0);
    assert_eq!((story.commands(), story.role_writes()), (vec![], vec![]), "{:?}", story.effects);
    let mut lost = story.clone();
    lost.lose(held_by_here());
    lost.view(idle(0));
    let message = lost.shown(ConditionType::Ready).message;
    assert!(message.starts_with("the RedisLease belongs to an earlier Deployment billing, which"), "{message}");
    story.lease_mut().spec.suspend = true;
    story.turn();
    assert_eq!(
        (story.commands(), story.role_writes()),
        (vec![], vec![]),
        "it may not be known yet that it was orphaned"
    );
    story.lease_mut().spec.suspend = false;
    story.owned_by(Some(AGAIN));
    story.turn();
    story.finish();
    assert_eq!((story.run(), story.commands()), ((Some("active".into()), Run::Replicas(3)), vec![]));
}

#[test]
fn another_workload_does_not_take_the_place_of_the_holder() {
    let end = [end(held_by_here())];
    // Nobody has made the lease for it.
    let mut story = Story::running();
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    assert_eq!(story.again(3).commands(), end);
    let mut story = Story::running().made().orphaned();
    story.workload_is(WorkloadFacts { uid: AGAIN.into(), kind: WorkloadKind::StatefulSet, ..deployment(3) });
    story.turn();
    assert_eq!(story.commands(), end);
}

/// Its controller ignores it, and a finalizer of another program can keep it for ever.
#[test]
fn a_workload_that_is_being_deleted_neither_keeps_nor_takes_the_lease() {
    let mut story = Story::running();
    story.change_workload("30", |workload| workload.deleting = true);
    assert_eq!(story.commands(), [end(held_by_here())]);
    let mut story = Story::of_cluster(0);
    story.change_workload("30", |workload| workload.deleting = true);
    story.answer();
    assert_eq!(story.wanted(), None);
}
