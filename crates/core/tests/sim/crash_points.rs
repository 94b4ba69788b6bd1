//! I10: a crash before any single effect, then a restart, ends in the same state as no crash.
//!
//! One calm story is told once without a crash, and then once for each of its effects with a crash just before it.
//! What may differ is attempt ids, tokens, and one TTL of waiting, which the pauses of the story leave room for.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease;
use redislease_core::op::Stage;
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};

use crate::api::PodState;
use crate::clock::{MILLI, SECOND};
use crate::keeper::pod_of;
use crate::rng::Rng;
use crate::swarm::{Swarm, Weather};
use crate::world::{Event, World};

/// What happens in the story.
#[derive(Clone, Copy, Debug)]
pub enum Scene {
    /// The holder is deleted and stops.
    Delete,
    /// The holder is deleted by force.
    Kill,
    Suspend,
    Unsuspend,
    /// The resource is deleted.
    Remove,
    /// It is made again.
    Restore,
    End,
}

const STORY: [(u64, Scene); 7] = [
    (10, Scene::Delete),
    (22, Scene::Kill),
    (38, Scene::Suspend),
    (50, Scene::Unsuspend),
    (64, Scene::Remove),
    (66, Scene::Restore),
    (84, Scene::End),
];

/// The end of the story, without what may differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    resource: u32,
    holder: Option<u32>,
    active: bool,
    /// Of each node: whether it holds exactly the term that the status names.
    nodes: Vec<bool>,
}

pub struct Told {
    pub ending: Ending,
    pub effects: u64,
    pub writes: u64,
    pub broken: Option<String>,
}

fn calm() -> Swarm {
    let backoff =
        Backoff { strategy: Strategy::Exponential, min: Millis(100), max: Millis(1000), limit: None, jitter: 10 };
    Swarm {
        nodes: 3,
        processes: vec![0],
        clusters: 1,
        keys: vec![0b011],
        pods: 2,
        longest: Millis(6000),
        heartbeat: Millis(1000),
        weather: Weather { delay: (100, 2 * MILLI), slow: 0, slowest: 0, loss: 0, repeat: 0 },
        api_delay: (MILLI, 5 * MILLI),
        api_loss: 0,
        watch_lag: 5 * MILLI,
        drift: false,
        installed: true,
        clocks_behind: false,
        faults: Vec::new(),
        gap: SECOND,
        strikes: 0,
        chaos: 3600 * SECOND,
        lease: lease::Config {
            quorum: Quorum::of(3).unwrap(),
            ttl: Millis(6000),
            renew_interval: Millis(1000),
            stop_budget: Millis(3000),
            command_timeout: Millis(200),
            drift: Drift::STANDARD,
            backoff,
            deadline: lease::OnDeadline::Seal,
        },
    }
}

/// Tells the story; with a crash before the effect of that number.
pub fn tell(crash_before: Option<u64>) -> Told {
    let mut world = World::new(calm(), Rng::new(7), None);
    world.crash_before = Some(crash_before.unwrap_or(u64::MAX));
    for (second, scene) in STORY {
        world.at(second * SECOND, Event::Scene(scene));
    }
    world.run();
    Told {
        ending: world.ending(),
        effects: world.effects,
        writes: world.apis[0].writes,
        broken: world.check.broken.as_ref().map(|broken| format!("{broken}\n{}", world.trace.tail())),
    }
}

impl World {
    pub fn scene(&mut self, scene: Scene) {
        let pods = &self.apis[0].world.pods;
        let oldest = pods.iter().find(|(_, pod)| pod.state == PodState::Running).map(|(&uid, _)| uid);
        match (scene, oldest) {
            (Scene::Delete | Scene::Kill, Some(pod)) => self.remove_pod(0, pod, matches!(scene, Scene::Kill)),
            (Scene::Delete | Scene::Kill, None) => self.check.fail("the story has no pod left".into()),
            (Scene::Suspend | Scene::Unsuspend, _) => self.suspend_lease(0, 0, matches!(scene, Scene::Suspend)),
            (Scene::Remove, _) => self.delete_resource(0, 0),
            (Scene::Restore, _) => self.create_resource(0, 0),
            (Scene::End, _) => self.done = true,
        }
    }

    fn ending(&self) -> Ending {
        let resource = self.apis[0].world.resources[0].as_ref();
        let term = resource.and_then(|resource| resource.term.as_ref());
        let holds = |server: &crate::server::Server| {
            [0, 1].iter().all(|key| {
                let value = server.node.entry(key, server.clock.millis(self.now)).map(|entry| &entry.value);
                value.zip(term).is_some_and(|(value, term)| {
                    (value.stage, value.attempt, value.number) == (Stage::Term, term.attempt, term.token.0)
                })
            })
        };
        Ending {
            resource: resource.map_or(0, |resource| resource.uid),
            holder: term.map(pod_of),
            active: resource.is_some_and(|resource| resource.active),
            nodes: self.servers.iter().map(holds).collect(),
        }
    }
}
