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

impl Story {
    fn stops(&self) -> bool {
        matches!(self.switches()[..], [(Some(PodRole::Standby), PodChange::Run(Run::Replicas(0)), _)])
    }
}

/// The process that published the term wrote nothing to the workload, or a tool has removed the mark, and then it was restarted.
#[test]
fn a_workload_that_the_status_names_is_stopped_without_a_mark() {
    let mut story = Story::published(2).restarted();
    story.view(adopting(held_by_here()));
    assert_eq!(story.switches(), []);
    // The workload is read after the end of the term is in the status.
    let known = std::mem::replace(&mut story.facts.candidates, CandidateFacts::Unknown);
    story.lose(held_by_here());
    let mut ended = story.clone();
    story.facts.candidates = known.clone();
    story.turn();
    assert!(story.stops(), "{:?}", story.effects);
    // The process that ended the term was stopped before its write to the workload.
    ended.facts.candidates = known;
    let mut ended = ended.restarted();
    ended.view(ending(held_by_here(), EndReason::Decided));
    assert!(ended.stops(), "{:?}", ended.effects);
    // The term ends before its first turn here.
    let mut missed = Story::published(2).restarted();
    missed.view(ending(held_by_here(), EndReason::Misses));
    assert!(missed.stops(), "{:?}", missed.effects);
    // Its end is wanted already.
    let mut suspended = Story::published(2);
    suspended.lease_mut().spec.suspend = true;
    let mut denied = Story::published(2);
    let obstacle = Some((LeaseReady::InvalidReference, "why".to_owned()));
    denied.facts.quorum = Arc::new(QuorumFacts { denied: true, obstacle, ..quorum(1, "f00d") });
    for mut wanted in [suspended.restarted(), denied.restarted()] {
        wanted.view(held(held_by_here()));
        let is_label = |write: &(String, Option<String>)| write.1.as_deref() == Some("standby");
        assert!(wanted.pods().iter().all(is_label), "{:?}", wanted.effects);
        assert_eq!(wanted.commands(), [end(held_by_here())]);
        wanted.view(ending(held_by_here(), EndReason::Decided));
        assert!(wanted.stops(), "{:?}", wanted.effects);
    }
}

/// It was imported from another cluster, with its label. The watch shows the new status before the write is answered.
#[test]
fn a_workload_that_runs_when_its_first_term_is_published_goes_on() {
    let mut imported = deployment(2);
    imported.labels.insert(LABEL.to_owned(), "active".to_owned());
    let mut story = Story::of_cluster(2);
    story.workload_is(imported);
    story.turn();
    story.answer();
    story.facts.holder = PodKnowledge::Workload;
    story.view(publishing(held_by_here()));
    story.watch_shows(story.status_to_write());
    story.turn();
    assert_eq!(story.switches(), []);
}

/// The reference names another workload for a moment.
#[test]
fn a_workload_that_the_lease_has_left_runs_on_when_it_is_named_again() {
    let mut story = Story::running();
    let status = story.status_value();
    for (name, uid) in [("orders", "uid-2"), ("billing", "uid-billing-d")] {
        let mut wanted = spec();
        wanted["candidates"]["workloadRef"]["name"] = json!(name);
        wanted["suspend"] = json!(true);
        story.store(&wanted, &status);
        // Its marks were removed.
        story.workload_is(WorkloadFacts { name: name.into(), uid: uid.into(), ..deployment(2) });
        for _ in 0..2 {
            story.turn();
            assert_eq!(story.switches(), [], "{name}");
        }
        story.view(ending(held_by_here(), EndReason::Decided));
        assert_eq!(story.switches(), [], "{name}");
    }
}

#[test]
fn a_workload_is_stopped_only_if_its_publication_was_stored() {
    let mut story = Story::of_cluster(2).asked();
    story.facts.holder = PodKnowledge::Workload;
    story.view(publishing(held_by_here()));
    let published = story.status_to_write();
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.pass(60_000);
    assert_eq!(story.switches(), []);
    // It was stored late, and others have read it.
    story.watch_shows(published);
    story.read_lease();
    assert!(story.stops(), "{:?}", story.effects);
}

/// Without the label, the pods of a Service leave it. With a selector that names the label, each of them is replaced.
#[test]
fn a_label_from_a_pod_template_stays() {
    let mut unusable = Story::new();
    unusable.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "why".into());
    let mut deleted = Story::running();
    deleted.facts.lease = None;
    for (story, role) in
        [(Story::running(), None), (unusable, Some(PodRole::Standby)), (Story::held_by_a(), None), (deleted, None)]
    {
        let roles = |label: &str, token: Option<&str>| {
            let (mut story, mut c) = (story.clone(), pod("c"));
            c.labels.insert(LABEL.into(), label.into());
            c.annotations.set(TOKEN, token);
            story.facts.strays = vec![Arc::new(c)];
            story.turn();
            story.confirm();
            let writes = story.role_writes().into_iter().filter(|write| write.pod == "c");
            writes.map(|write| write.role).collect::<Vec<_>>()
        };
        for label in ["active", "standby"] {
            assert_eq!(roles(label, None), []);
        }
        // A pod of an earlier spec. Before the first term, the token is 0.
        assert_eq!(roles("active", Some("5")), [role]);
        assert_eq!(roles("standby", Some("0")), if role.is_none() { vec![None] } else { vec![] });
    }
}

/// Programs that read the label would start with a token of a term that has ended.
#[test]
fn a_lease_that_is_created_again_removes_the_marks_of_its_predecessor() {
    for (owner, is_its) in [("uid-before.uid-billing-d", true), ("uid-before.uid-of-another-workload", false)] {
        let mut story = Story::of_cluster(3);
        story.lease_mut().spec.suspend = true;
        let mut workload = deployment(3);
        workload.labels.insert(LABEL.into(), "active".into());
        workload.annotations.set(OWNER, Some(owner));
        workload.annotations.set(TOKEN, Some("7"));
        story.workload_is(workload);
        story.turn();
        let removal = (None, PodChange::None, DEPLOYMENT);
        assert_eq!(story.switches(), if is_its { vec![removal] } else { vec![] });
        story.finish();
        assert_eq!((story.workload().annotations.get(OWNER).is_none(), story.run().1), (is_its, Run::Replicas(3)));
    }
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
    assert_eq!((write.workload, write.role, write.change), (DEPLOYMENT, None, PodChange::None));
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

#[test]
fn a_workload_that_an_unreadable_status_named_is_stopped() {
    let running = Story::running();
    let mut status = running.status_value();
    status["holder"].as_object_mut().unwrap().remove("podUID").unwrap();
    let mut story = running;
    story.store(&spec(), &status);
    let mut story = story.restarted();
    assert!(story.stops(), "{:?}", story.effects);
    story.finish();
    assert_eq!(story.run().1, Run::Replicas(0));
}

#[test]
fn a_token_that_no_redis_node_gave_reaches_no_workload_after_a_restart() {
    let great = (1 << 53) - 1;
    let mut story = Story::running();
    story.status_mut().fencing_token = Some(great.try_into().unwrap());
    let mut story = story.restarted();
    let adopted = TermId { token: Token(great), ..held_by_here() };
    story.view(held(adopted));
    let writes = story.finish();
    assert!(writes.iter().all(|write| write.token.as_deref() == Some("7")), "{writes:?}");
    assert_eq!(story.run(), (Some("active".to_owned()), Run::Replicas(3)));
}

/// The status was lost, and then a tool has replaced all annotations and the replicas.
#[test]
fn a_workload_that_had_the_mark_is_stopped_after_a_tool_has_removed_it() {
    let mut story = Story::running();
    story.store(&spec(), &json!(null));
    let mut story = story.restarted();
    story.workload_is(WorkloadFacts { resource_version: Some("30".into()), ..deployment(2) });
    story.view(idle(story.now.0 + 5000));
    story.role_answered("billing-d", RoleOutcome::Conflict);
    assert!(story.stops(), "{:?}", story.effects);
}
