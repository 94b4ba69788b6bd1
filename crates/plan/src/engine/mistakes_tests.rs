//! Mistakes in the annotations of pods.

use std::time::Duration;

use crate::election::PodFacts;

use super::*;

fn annotated(name: &str, value: &str) -> PodFacts {
    let annotation = ("redislease.io/priority".to_owned(), value.to_owned());
    PodFacts { annotations: [annotation].into_iter().collect(), ..pod(name) }
}

fn show(world: &mut World, pod: PodFacts) -> Vec<String> {
    world.take(Input::Pod(Watched::Seen(Box::new(pod))));
    world.done()
}

fn report(pod: &str, instead: &str) -> String {
    format!("n/{pod} (uid-{pod}): use {instead:?}. The pod cannot be elected until this is corrected.")
}

#[test]
fn a_mistake_is_reported_once_and_again_when_the_annotation_changes() {
    let mut world = World::listed();
    assert_eq!(show(&mut world, annotated("p", "high")), [report("p", "100")]);
    let ready = PodFacts { ready: false, ..annotated("p", "high") };
    assert_eq!(show(&mut world, ready), [""; 0], "another change of the pod");
    let mut both = annotated("p", "high");
    both.annotations.set("redislease.io/lease-duraton", Some("7s"));
    let [second] = &show(&mut world, both)[..] else { panic!("one report") };
    assert!(second.contains("use redislease.io/lease-duration, and write it into the metadata"), "{second}");
    assert_eq!(show(&mut world, annotated("p", "low")), [report("p", "-100")], "another value");
    assert_eq!(show(&mut world, annotated("p", "1")), [""; 0], "corrected");
    assert_eq!(show(&mut world, annotated("p", "low")), [report("p", "-100")]);
    assert_eq!(show(&mut world, annotated("q", "low")), [report("q", "-100")], "each pod has its event");

    // A new list repeats the pods, and does not contain those that are gone.
    world.take(Input::Pod(Watched::ListBegins));
    assert_eq!(show(&mut world, annotated("q", "low")), [""; 0]);
    world.take(Input::Pod(Watched::ListEnds));
    assert_eq!(world.engine.mistakes.reported.len(), 1, "{:?}", world.engine.mistakes);
    for event in [Watched::ListBegins, Watched::Unlisted("n".into()), Watched::ListEnds] {
        world.take(Input::Pod(event));
    }
    assert_eq!(world.engine.mistakes.reported.len(), 1, "the list of its namespace was refused");
    world.take(Input::Pod(Watched::Deleted(Box::new(annotated("q", "low")))));
    assert!(world.engine.mistakes.reported.is_empty());
}

#[test]
fn pods_without_mistakes_and_pods_that_end_are_not_kept() {
    let mut world = World::listed();
    for pod in [
        pod("p"),
        annotated("p", "5"),
        PodFacts { finished: true, ..annotated("p", "high") },
        PodFacts { deletion_grace: Some(Duration::ZERO), ..annotated("p", "high") },
    ] {
        assert_eq!(show(&mut world, pod), [""; 0]);
    }
    assert!(world.engine.mistakes.reported.is_empty());
}

#[test]
fn a_replica_reports_when_it_leads_and_the_quorums_are_read() {
    let mut world = World::new();
    assert_eq!(show(&mut world, annotated("p", "high")), [""; 0], "the leader is unknown");
    world.lead(Some(Authority::Follow));
    world.take(Input::QuorumsRead);
    assert_eq!(show(&mut world, annotated("q", "high")), [""; 0], "another replica leads");
    for wanted in [vec![report("p", "100"), report("q", "100")], vec![]] {
        world.lead(None);
        assert_eq!(world.done(), wanted);
    }
}

#[test]
fn what_was_refused_is_reported_with_the_next_event_of_the_pod() {
    let mut world = World::listed();
    world.state.refuses_reports = true;
    assert_eq!(show(&mut world, annotated("p", "high")), ["refused uid-p"]);
    world.state.refuses_reports = false;
    assert_eq!(show(&mut world, annotated("p", "high")), [report("p", "100")]);
    assert_eq!(show(&mut world, annotated("p", "high")), [""; 0]);
}

#[test]
fn a_mistake_on_a_lease_is_reported_once_by_the_leader_of_its_quorum() {
    let mut world = World::listed();
    let mut version = 1;
    let mut write = |world: &mut World, key: &str| {
        let mut lease = lease("n", "a");
        version += 1;
        lease.metadata.resource_version = Some(version.to_string());
        lease.metadata.annotations = Some([(format!("redislease.io/{key}"), "1".to_owned())].into());
        world.take(Input::Lease(Watched::Seen(Box::new(lease))));
        world.work();
        world.done()
    };
    let ignored = "The operator ignores it until this is corrected.";
    let report = format!("a: use redislease.io/handover-requested. {ignored}");
    world.state.authority = Some(Authority::Follow);
    assert!(!write(&mut world, "handover-request").contains(&report), "another replica leads");
    for wanted in [1, 0] {
        world.lead(None);
        world.work();
        assert_eq!(world.done().iter().filter(|done| **done == report).count(), wanted);
    }
    assert_eq!(write(&mut world, "handover-requested"), [""; 0]);
    assert_eq!(write(&mut world, "handover-request"), [report], "again");
}
