#[path = "fake.rs"]
mod fake;
#[path = "mistakes_tests.rs"]
mod mistakes;
#[path = "orphans_tests.rs"]
mod orphans;
#[path = "panic_tests.rs"]
mod panics;
#[path = "permits_tests.rs"]
mod permits;

use redislease_core::lease::{Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::Millis;
use std::sync::Arc;

use crate::index::WorkloadRead;
use crate::plan::calls::{Found, Outcome};
use crate::plan::{
    Authority, Command, Effect as Planned, News, PermitUse, PermitUses, PodKnowledge, QuorumFacts, Read, Reconciler,
    RoleOutcome, StatusOutcome,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::*;
use fake::*;

#[test]
fn a_turn_takes_answers_then_the_view_then_the_facts() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.work();
    assert_eq!(seen("a"), ["facts 0 unseen"]);
    world.pod("p");
    let answer = Outcome::Role("uid-p".into(), role(RoleOutcome::Written(None)));
    world.take(Input::Answer { lease: id, incarnation: 0, answer });
    let term = TermId { attempt: Attempt(1), token: Token(7), holder: Holder("c/u/n/a/p/uid-p".into()) };
    let held = Standing::Held(TermView { id: term, valid_until: None, stop_at: None, failed_rounds: 0 });
    let view = Some(View { standing: held, ..View::default() });
    world.state.news.insert(id, News { view, ..News::default() });
    script("a", |script| {
        script.holder = Some(("p".into(), "uid-p".into()));
        script.effects = vec![Planned::Probe, Planned::Keeper(Command::Forget)];
    });
    world.work();
    assert_eq!(seen("a"), ["role uid-p Written(None)", "view Some(7)", "facts 1 here"]);
    assert_eq!(world.done(), ["a/0 Probe", "a/0 Keeper(Forget)"]);
    world.work();
    assert_eq!(seen("a"), [""; 0], "nothing is due");
}

#[test]
fn the_facts_of_a_turn_contain_what_the_shell_and_the_configuration_say() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    let (wall, at) = (jiff::Timestamp::MAX, [Some(Time(8)), Some(Time(9))]);
    world.state.news.insert(id, News { stop_at: at[0], ..News::default() });
    (world.state.wall, world.state.api_answered_at) = (wall, at[1]);
    world.work();
    let facts = script("a", |script| script.facts.take()).unwrap();
    assert_eq!((facts.wall, facts.allowed, [facts.stop_at, facts.api_answered_at]), (wall, ALLOWED, at));
}

#[test]
fn a_holder_that_a_new_list_could_not_read_is_still_there() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.pod("p");
    script("a", |script| script.holder = Some(("p".into(), "uid-p".into())));
    world.work();
    let metadata = ObjectMeta { uid: Some("uid-p".into()), ..ObjectMeta::default() };
    for event in [Watched::ListBegins, Watched::Unreadable(Box::new(metadata)), Watched::ListEnds] {
        world.take(Input::Pod(event));
    }
    let holder = world.engine.index.facts(id, Time(0)).unwrap().holder;
    assert!(matches!(holder, PodKnowledge::Here(_)), "{holder:?}");
}

#[test]
fn what_an_answer_shows_is_in_the_facts_of_the_turn() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    script("a", |script| script.holder = Some(("p".into(), "uid-p".into())));
    world.work();
    for (answer, knows) in [
        (Outcome::Holder("uid-p".into(), Ok(Found::Gone(None))), "facts 0 gone"),
        (Outcome::Node("uid-p".into(), Ok(true)), "facts 0 stopped"),
    ] {
        seen("a");
        world.take(Input::Answer { lease: id, incarnation: 0, answer });
        world.work();
        assert_eq!(seen("a").last().map(String::as_str), Some(knows));
    }
    let mut newer = lease("n", "a");
    newer.metadata.resource_version = Some("2".into());
    let answer = Outcome::LeaseStatus(StatusOutcome::Written(Arc::new(newer)));
    world.take(Input::Answer { lease: id, incarnation: 0, answer });
    world.work();
    let object = world.engine.index.lease(id).unwrap().object.clone().unwrap();
    assert_eq!(object.metadata.resource_version.as_deref(), Some("2"));
}

#[test]
fn time_and_answers_of_the_api_server_are_followed_by_turns() {
    let mut world = World::listed();
    world.lease("n", "a");
    script("a", |script| (script.deadline, script.awaits) = (Some(Time(500)), true));
    world.work();
    assert_eq!(world.done(), ["await"]);
    assert_eq!(world.engine.next_deadline(), Some(Time(500)));
    seen("a");
    world.at(499);
    world.work();
    assert_eq!(seen("a").len(), 0);
    script("a", |script| script.deadline = None);
    world.at(500);
    world.work();
    assert_eq!((seen("a").len(), world.engine.next_deadline()), (1, None));
    world.take(Input::ApiAnswered);
    script("a", |script| script.awaits = false);
    world.work();
    world.take(Input::ApiAnswered);
    world.work();
    assert_eq!(seen("a").len(), 1, "the lease does not wait for an answer any more");
}

/// An answer that comes at once, before the lease waits for it, would be missed.
#[test]
fn a_lease_waits_for_an_answer_before_its_effects_are_carried_out() {
    let mut world = World::listed();
    world.lease("n", "a");
    script("a", |script| (script.effects, script.awaits) = (vec![Planned::Probe], true));
    world.work();
    assert_eq!(world.done(), ["await", "a/0 Probe"]);
}

#[test]
fn a_replica_that_does_not_lead_does_not_count_the_time_without_a_holder() {
    let mut world = World::listed();
    world.lease("n", "a");
    world.work();
    for (authority, done) in [(Authority::Renew, vec!["do not count"]), (Authority::Follow, vec!["hide"])] {
        world.lead(Some(authority));
        world.work();
        assert_eq!(world.done(), done, "{authority:?}");
    }
}

#[test]
fn a_lease_whose_resource_is_gone_is_forgotten_when_it_is_finished() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.work();
    world.take(Input::Lease(Watched::Deleted(Box::new(lease("n", "a")))));
    world.work();
    assert_eq!(seen("a").last().map(String::as_str), Some("facts ? unseen no lease"));
    assert_eq!(world.done(), ["hide"]);
    script("a", |script| script.finished = true);
    world.take(Input::Shown(id));
    world.work();
    assert_eq!(world.done(), ["hide", "forget"]);
    assert!(world.engine.leases.is_empty() && world.engine.index.lease(id).is_none());
}

#[test]
fn workloads_are_read_and_floors_raised() {
    let mut world = World::listed();
    let mut of_workload = lease("n", "a");
    of_workload.spec.candidates =
        serde_json::from_value(json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}))
            .unwrap();
    of_workload.status = Some(crate::api::RedisLeaseStatus { fencing_token: Some(42), ..Default::default() });
    world.take(Input::Lease(Watched::Seen(Box::new(of_workload))));
    world.pod("p");
    world.work();
    assert_eq!(world.done(), ["floor default 42", "read d"]);
    assert_eq!(seen("a"), ["facts ? unseen"]);
    let key = (
        "n".into(),
        crate::api::validated::Workload { kind: crate::api::validated::WorkloadKind::Deployment, name: "d".into() },
    );
    let selector = kube::core::Expression::Equal("app".into(), "a".into()).into();
    world.take(Input::Workload(key, WorkloadRead::Selects(selector).into()));
    world.work();
    assert_eq!(seen("a"), ["facts 1 unseen"]);
    assert!(world.engine.next_deadline().is_some(), "it is read again");
    world.take(Input::Quorum { name: "default".into(), facts: None, authority: Authority::Lead });
    assert_eq!(world.done(), ["floor default 42"], "a quorum that is opened later gets its floor too");
}

#[test]
fn a_refused_read_is_reported_as_refused() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    script("a", |script| script.effects = vec![Planned::Read(Read::Lease)]);
    world.work();
    assert_eq!(world.done(), [format!("{:?}: RedisLease n/a", Caller::Lease(id, 0))]);
    seen("a");
    world.take(Input::Answer { lease: id, incarnation: 0, answer: Outcome::Lease(Err("no".into())) });
    world.work();
    assert_eq!(seen("a"), ["read false", "facts 0 unseen"]);
}

/// After a restart the terms must be renewed in time. With many leases the list takes longer than a lease may last.
#[test]
fn a_term_that_a_status_names_is_adopted_before_the_list_of_leases_ends() {
    let mut world = World::<Reconciler>::empty();
    let open = Some(Arc::new(crate::samples::open_quorum()));
    let facts = QuorumFacts { read: true, open, up: 3, evaluated: true, ..QuorumFacts::default() };
    let (name, facts) = ("default".into(), Some(Arc::new(facts)));
    world.take(Input::Quorum { name, facts, authority: Authority::Lead });
    world.take(Input::QuorumsRead);
    let mut held = lease("n", "a");
    let holder = json!({"cluster": "c", "namespace": "n", "pod": "p", "podUID": "uid-p"});
    let active = json!({"type": "Active", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"attempt": format!("{:032x}", 5), "fencingToken": 7, "holder": holder, "conditions": [active]});
    held.status = Some(serde_json::from_value(status).unwrap());
    world.take(Input::Lease(Watched::ListBegins));
    world.take(Input::Lease(Watched::Seen(Box::new(held))));
    world.work();
    let done = world.done();
    let adopts = done.iter().filter(|done| done.contains("Keeper(Adopt(")).count();
    assert_eq!(adopts, 1, "{done:?}");
    assert!(!world.engine.index.is_listed());
}
