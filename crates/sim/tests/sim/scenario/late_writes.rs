//! A write of a label by a leader that died reaches the API server after another pod was elected: it changes
//! nothing. The late starts of gated pods and workloads are in the model `activation`.

use redislease_plan::api::names::PodRole;
use redislease_plan::plan::calls::Request;

use super::{Outcome, all_pass, failures, of_fifteen_seconds};
use crate::api::server::{ApiCall, Mode};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::event::Event;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

fn is_label(call: &ApiCall) -> bool {
    matches!(&*call.request, Request::Role { write, .. } if write.role == Some(PodRole::Active))
}

/// A write of a pod's label `active` is on its way.
fn is_labelling(world: &World) -> bool {
    world.queue.iter().any(|event| matches!(event, Event::ApiArrive(call) if is_label(call)))
}

fn a_late_label_write_changes_nothing(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    world.reach(40 * SECOND, is_labelling, "no `active` label was written")?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(is_label);
    let leader = late.first().ok_or("no `active` label write was late")?.process;
    world.restart(leader, 2 * SECOND);
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
    for call in late {
        world.after(MILLI, Event::ApiArrive(Box::new(call)));
    }
    world.run_for(SECOND);
    world.require(other(&world), || "the late write was accepted".into())
}

#[test]
fn a_late_label_write_of_a_dead_leader_changes_nothing() {
    all_pass(SEEDS, |seed| a_late_label_write_changes_nothing(seed, &[]));
    let found = failures(SEEDS, |seed| a_late_label_write_changes_nothing(seed, &[Bug::RolesWithoutVersion]));
    assert_eq!(found.len(), SEEDS.count(), "the bug was not found with every seed");
    assert!(found.iter().any(|why| why.contains("are labelled active for lease 0 at once")), "{}", found[0]);
}
