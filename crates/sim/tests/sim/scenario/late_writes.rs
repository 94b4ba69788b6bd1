//! A write of a label by a leader that died reaches the API server after another pod was elected: it changes
//! nothing.

use redislease_plan::api::names::PodRole;
use redislease_plan::election::Run;
use redislease_plan::plan::calls::Request;
use redislease_plan::plan::{PodChange, RoleWrite};

use super::{Outcome, all_pass, failures, of_fifteen_seconds};
use crate::api::objects;
use crate::api::server::{ApiCall, Mode};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::event::Event;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// The API server hangs. Returns the writes under way that are late.
fn hold_back(world: &mut World, is_late: impl Fn(&RoleWrite) -> bool) -> Vec<ApiCall> {
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(|call| matches!(&*call.request, Request::Role { write, .. } if is_late(write)));
    late
}

fn is_active(write: &RoleWrite) -> bool {
    write.role == Some(PodRole::Active)
}

/// The process that writes a pod's label `active`.
fn labelling(world: &World) -> Option<usize> {
    let is_it = |call: &Request| matches!(call, Request::Role { write, .. } if is_active(write));
    world.processes.iter().position(|process| process.calls.in_flight().any(is_it))
}

fn is_labelling(world: &World) -> bool {
    labelling(world) == Some(0)
}

fn a_late_label_write_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    world.reach(40 * SECOND, |world| labelling(world).is_some(), "no `active` label was written")?;
    let late = hold_back(&mut world, is_active);
    if let Some(leader) = labelling(&world) {
        world.restart(leader, 2 * SECOND);
    }
    world.set_api(0, Mode::Up);
    let labelled = |world: &World| world.apis[0].active_pods(0).count() == 1;
    world.reach(20 * SECOND, labelled, "the next leader did not label the holder")?;
    let first = world.apis[0].active_pods(0).next();
    world.run_for(5 * SECOND);
    if let Some(pod) = first {
        world.harm_pod(0, pod, Fault::Relabel);
    }
    let other = |world: &World| world.apis[0].active_pods(0).next().is_some_and(|pod| Some(pod) != first);
    world.reach(60 * SECOND, other, &format!("no other pod than {first:?} was elected"))?;
    world.require(!late.is_empty(), || "no `active` label write was late".into())?;
    for call in late {
        world.after(MILLI, Event::ApiArrive(Box::new(call)));
    }
    world.run_for(SECOND);
    world.require(other(&world), || "the late write was accepted".into())
}

/// The late start arrives when its term has ended, and the quorum is lost: no pod is elected. In another cluster, a pod may run by
/// then.
fn start_without_term(world: &mut World, late: Vec<ApiCall>) -> Outcome {
    world.require(late.len() == 1, || format!("the late writes are {late:?}"))?;
    world.isolate(0, true);
    world.run_for(20 * SECOND);
    world.set_api(0, Mode::Up);
    world.reach(20 * SECOND, |world| !world.is_active(0, 0), "the term did not end")?;
    world.run_for(5 * SECOND);
    for call in late {
        world.at(world.now, Event::ApiArrive(Box::new(call)));
    }
    world.run_until(world.now + MILLI);
    Ok(())
}

/// A term is unconfirmed, so every pod is `standby` with its token, and then it is confirmed. The removal of a scheduling gate hangs.
fn a_late_start_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0]);
    swarm.gated = 1;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    world.reach(60 * SECOND, is_labelling, "no pod was started at first")?;
    hold_back(&mut world, |_| false);
    world.isolate(0, true);
    world.restart(0, SECOND / 2);
    world.set_api(0, Mode::Up);
    let has_token = |world: &World| world.apis[0].state.pods.values().all(|pod| objects::role_of(pod, 0).1.is_some());
    world.reach(10 * SECOND, has_token, "not every pod has the token of the unconfirmed term")?;
    world.isolate(0, false);
    world.reach(60 * SECOND, is_labelling, "no pod was started")?;
    let late = hold_back(&mut world, |write| write.change == PodChange::Start);
    start_without_term(&mut world, late)?;
    let started = world.apis[0].state.pods.values().any(|pod| pod.gates.is_empty());
    world.require(!started, || "the late start was accepted".into())
}

/// The workload is already as the withdrawal wants it.
fn a_late_start_of_a_workload_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0]);
    swarm.clustered = 1;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    world.set_replicas(0, 0, 0);
    world.reach(60 * SECOND, is_labelling, "the workload was not started")?;
    let late = hold_back(&mut world, is_active);
    start_without_term(&mut world, late)?;
    let runs = world.apis[0].workload_of(0).is_some_and(|workload| workload.run != Run::Replicas(0));
    world.require(!runs, || "the late start was accepted".into())
}

/// Every seed passes, and with this bug no seed does. A failure has these texts.
fn only_fails_with(bug: Bug, says: &[&str], scenario: impl Fn(u64, &[Bug]) -> Outcome) {
    all_pass(SEEDS, |seed| scenario(seed, &[]));
    let found = failures(SEEDS, |seed| scenario(seed, &[bug]));
    assert_eq!(found.len(), SEEDS.count(), "{bug:?} was not found with every seed");
    assert!(found.iter().any(|why| says.iter().all(|text| why.contains(text))), "{}", found[0]);
}

#[test]
fn a_late_label_write_of_a_dead_leader_changes_nothing() {
    let says = ["are labelled active for lease 0 at once"];
    only_fails_with(Bug::RolesWithoutVersion, &says, a_late_label_write_changes_nothing);
}

#[test]
fn a_late_start_of_a_workload_is_fenced() {
    let says = ["R4: ", "it was withdrawn since then"];
    only_fails_with(Bug::WithdrawnByObject, &says, a_late_start_of_a_workload_changes_nothing);
}

#[test]
fn a_late_start_without_a_next_holder_changes_nothing() {
    let says = ["R4: ", "it was withdrawn since then"];
    only_fails_with(Bug::StartNotFenced, &says, a_late_start_changes_nothing);
}
