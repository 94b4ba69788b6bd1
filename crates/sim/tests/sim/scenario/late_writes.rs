//! A write of a label by a leader that died reaches the API server after another pod was elected: it changes
//! nothing.

use redislease_plan::api::names::PodRole;
use redislease_plan::election::Run;
use redislease_plan::plan::PodChange;
use redislease_plan::plan::calls::Request;

use super::{Outcome, all_pass, failures, of_fifteen_seconds};
use crate::api::objects;
use crate::api::server::Mode;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::event::Event;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

fn a_late_label_write_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    let labelling = |world: &World| world.processes.iter().position(|process| process.writer.is_labelling_active());
    let sent = world.run_until_holds(40 * SECOND, |world| labelling(world).is_some());
    world.require(sent, || "no `active` label was written".into())?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(|call| matches!(&*call.request, Request::Role { write, .. } if write.role == Some(PodRole::Active)));
    if let Some(leader) = labelling(&world) {
        world.restart(leader, 2 * SECOND);
    }
    world.set_api(0, Mode::Up);
    let labelled = world.run_until_holds(20 * SECOND, |world| world.apis[0].active_pods(0).count() == 1);
    world.require(labelled, || "the next leader did not label the holder".into())?;
    let first = world.apis[0].active_pods(0).next();
    world.run_for(5 * SECOND);
    if let Some(pod) = first {
        world.harm_pod(0, pod, Fault::Relabel);
    }
    let other = |world: &World| world.apis[0].active_pods(0).next().is_some_and(|pod| Some(pod) != first);
    let moved = world.run_until_holds(60 * SECOND, other);
    world.require(moved, || format!("no other pod than {first:?} was elected"))?;
    world.require(!late.is_empty(), || "no `active` label write was late".into())?;
    for call in late {
        world.after(MILLI, Event::ApiArrive(Box::new(call)));
    }
    world.run_for(SECOND);
    world.require(other(&world), || "the late write was accepted".into())
}

#[test]
fn a_late_label_write_of_a_dead_leader_changes_nothing() {
    all_pass(SEEDS, |seed| a_late_label_write_changes_nothing(seed, &[]));
    let bugs = [Bug::RolesWithoutVersion];
    let (found, first) = failures(SEEDS, |seed| a_late_label_write_changes_nothing(seed, &bugs));
    assert_eq!(found, SEEDS.count(), "{bugs:?} was not found with every seed");
    let first = first.unwrap_or_default();
    assert!(first.contains("are labelled active for lease 0 at once"), "{first}");
}

/// A term is unconfirmed, so every pod is `standby` with its token, and then it is confirmed. The removal of a scheduling gate hangs
/// until the term has ended, and the quorum is lost: no pod is elected when it arrives. In another cluster, a pod may run by then.
fn a_late_start_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0]);
    swarm.gated = 1;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    let sent = world.run_until_holds(60 * SECOND, |world| world.processes[0].writer.is_labelling_active());
    world.require(sent, || "no pod was started at first".into())?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    world.apis[0].hanging.clear();
    world.isolate(0, true);
    world.restart(0, SECOND / 2);
    world.set_api(0, Mode::Up);
    let has_token = |world: &World| world.apis[0].state.pods.values().all(|pod| objects::role_of(pod, 0).1.is_some());
    let doubted = world.run_until_holds(10 * SECOND, has_token);
    world.require(doubted, || "not every pod has the token of the unconfirmed term".into())?;
    world.isolate(0, false);
    let sent = world.run_until_holds(60 * SECOND, |world| world.processes[0].writer.is_labelling_active());
    world.require(sent, || "no pod was started".into())?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(|call| matches!(&*call.request, Request::Role { write, .. } if write.change == PodChange::Start));
    world.require(late.len() == 1, || format!("the late writes are {late:?}"))?;
    world.isolate(0, true);
    world.run_for(20 * SECOND);
    world.set_api(0, Mode::Up);
    let ended = world.run_until_holds(20 * SECOND, |world| !world.is_active(0, 0));
    world.require(ended, || "the term did not end".into())?;
    world.run_for(5 * SECOND);
    for call in late {
        world.at(world.now, Event::ApiArrive(Box::new(call)));
    }
    world.run_until(world.now + MILLI);
    let started = world.apis[0].state.pods.values().any(|pod| pod.gates.is_empty());
    world.require(!started, || "the late start was accepted".into())
}

/// The start of a workload hangs until its term has ended. The workload is already as the withdrawal wants it.
fn a_late_start_of_a_workload_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0]);
    swarm.clustered = 1;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    world.set_replicas(0, 0, 0);
    let sent = world.run_until_holds(60 * SECOND, |world| world.processes[0].writer.is_labelling_active());
    world.require(sent, || "the workload was not started".into())?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(|call| matches!(&*call.request, Request::Role { write, .. } if write.role == Some(PodRole::Active)));
    world.require(late.len() == 1, || format!("the late writes are {late:?}"))?;
    world.isolate(0, true);
    world.run_for(20 * SECOND);
    world.set_api(0, Mode::Up);
    let ended = world.run_until_holds(20 * SECOND, |world| !world.is_active(0, 0));
    world.require(ended, || "the term did not end".into())?;
    world.run_for(5 * SECOND);
    for call in late {
        world.at(world.now, Event::ApiArrive(Box::new(call)));
    }
    world.run_until(world.now + MILLI);
    let runs = world.apis[0].workload_of(0).is_some_and(|workload| workload.run != Run::Replicas(0));
    world.require(!runs, || "the late start was accepted".into())
}

#[test]
fn a_late_start_of_a_workload_is_fenced() {
    all_pass(SEEDS, |seed| a_late_start_of_a_workload_changes_nothing(seed, &[]));
    let bugs = [Bug::WithdrawnByObject];
    let (found, first) = failures(SEEDS, |seed| a_late_start_of_a_workload_changes_nothing(seed, &bugs));
    assert_eq!(found, SEEDS.count(), "{bugs:?} was not found with every seed");
    let first = first.unwrap_or_default();
    assert!(first.contains("R4: ") && first.contains("it was withdrawn since then"), "{first}");
}

#[test]
fn a_late_start_without_a_next_holder_changes_nothing() {
    all_pass(SEEDS, |seed| a_late_start_changes_nothing(seed, &[]));
    let bugs = [Bug::StartNotFenced];
    let (found, first) = failures(SEEDS, |seed| a_late_start_changes_nothing(seed, &bugs));
    assert_eq!(found, SEEDS.count(), "{bugs:?} was not found with every seed");
    let first = first.unwrap_or_default();
    assert!(first.contains("R4: ") && first.contains("it was withdrawn since then"), "{first}");
}
