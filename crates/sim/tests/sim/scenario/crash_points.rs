//! I10: a crash before any single effect, then a restart, ends in the same state as no crash.
//!
//! Each story runs once without a crash, and then once for each effect of its first process (of the core, of the
//! reconciler, of the election) with a crash just before it. Attempt IDs and tokens may differ, and a run may wait one TTL
//! longer, for which the end of a story has time.

use redislease_core::op::Stage;

use super::calm;
use crate::api::objects;
use crate::api::server::Mode;
use crate::chaos::swarm::Swarm;
use crate::redis::clock::SECOND;
use crate::redis::server::Server;
use crate::world::World;

/// An event and its second.
struct Story {
    name: &'static str,
    swarm: fn() -> Swarm,
    scenes: &'static [(u64, Scene)],
    end: u64,
}

#[derive(Clone, Copy, Debug)]
enum Scene {
    /// The oldest pod is deleted and stops.
    Delete,
    /// The oldest pod is deleted by force.
    Kill,
    Suspend,
    Unsuspend,
    /// The lease is deleted.
    Remove,
    /// It is created again.
    Restore,
    ChangeSpec,
    /// The API server hangs.
    ApiHangs,
    ApiBack,
    /// No Redis server is reached.
    NoQuorum,
    Quorum,
}

const STORIES: [Story; 4] = [
    Story {
        name: "holders come and go",
        swarm: one_process,
        scenes: &[(3, Scene::Delete), (5, Scene::Kill), (15, Scene::Delete)],
        // A crash can lose the proof: then the last holder is given up after its grace period and the rest of the TTL.
        end: 38,
    },
    Story {
        name: "the lease changes",
        swarm: one_process,
        scenes: &[
            (3, Scene::ChangeSpec),
            (5, Scene::Suspend),
            (7, Scene::Unsuspend),
            (17, Scene::Remove),
            (18, Scene::Restore),
        ],
        end: 38,
    },
    Story {
        name: "outages",
        swarm: one_process,
        scenes: &[
            (3, Scene::ApiHangs),
            (4, Scene::Delete),
            (8, Scene::ApiBack),
            (12, Scene::NoQuorum),
            (19, Scene::Quorum),
        ],
        end: 42,
    },
    Story { name: "two replicas", swarm: two_replicas, scenes: &[(8, Scene::Delete), (12, Scene::Kill)], end: 34 },
];

fn one_process() -> Swarm {
    let mut swarm = calm(vec![0]);
    swarm.keys = vec![0b011];
    swarm
}

fn two_replicas() -> Swarm {
    let mut swarm = calm(vec![0, 0]);
    swarm.elects = true;
    swarm
}

/// The end of a story, without what may differ.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    lease: u32,
    holder: Option<u32>,
    active: Option<bool>,
    /// The pods that carry the label `active`.
    labelled: Vec<u32>,
    /// Of each node: whether it holds exactly the term that the status names.
    nodes: Vec<bool>,
}

struct Run {
    ending: Ending,
    effects: u64,
    status_writes: u64,
    writes: u64,
    broken: Option<String>,
}

fn run(story: &Story, crash_before: Option<u64>) -> Run {
    let mut world = World::scenario((story.swarm)(), 7, &[]);
    world.crash_before = Some(crash_before.unwrap_or(u64::MAX));
    for &(second, scene) in story.scenes {
        world.run_until(second * SECOND);
        world.play(scene);
    }
    world.run_until(story.end * SECOND);
    let writes = world.apis[0].writes;
    Run {
        ending: world.ending(),
        effects: world.effects,
        status_writes: writes.status,
        writes: writes.status + writes.role,
        broken: world.require(true, String::new).err(),
    }
}

impl World {
    fn play(&mut self, scene: Scene) {
        let running = |(_, pod): &(&u32, &std::sync::Arc<redislease::election::PodFacts>)| pod.deletion_grace.is_none();
        let oldest = self.apis[0].state.pods.iter().find(running).map(|(&pod, _)| pod);
        match (scene, oldest) {
            (Scene::Delete, Some(pod)) => self.delete_pod(0, pod),
            (Scene::Kill, Some(pod)) => self.kill_pod(0, pod),
            (Scene::Delete | Scene::Kill, None) => self.check.fail("the story has no pod left".into()),
            (Scene::Suspend | Scene::Unsuspend, _) => self.suspend_lease(0, 0, matches!(scene, Scene::Suspend)),
            (Scene::Remove, _) => self.delete_lease(0, 0),
            (Scene::Restore, _) => self.create_lease(0, 0),
            (Scene::ChangeSpec, _) => {
                self.specs[0][0].max_delay += 500;
                self.write_spec(0, 0);
            }
            (Scene::ApiHangs, _) => self.set_api(0, Mode::Hanging),
            (Scene::ApiBack, _) => self.set_api(0, Mode::Up),
            (Scene::NoQuorum | Scene::Quorum, _) => self.isolate(0, matches!(scene, Scene::NoQuorum)),
        }
    }

    fn ending(&self) -> Ending {
        let lease = self.apis[0].state.leases[0].as_deref();
        let named = lease.and_then(objects::named);
        let keys = self.swarm.keys[0];
        let holds = |server: &Server| {
            (0..8).filter(|key| keys & 1 << key != 0).all(|key| {
                let value = server.node.entry(&key, server.clock.millis(self.now)).map(|entry| &entry.value);
                value.zip(named).is_some_and(|(value, named)| {
                    (value.stage, value.attempt, value.number) == (Stage::Term, named.attempt, named.token.0)
                })
            })
        };
        Ending {
            lease: lease.map_or(0, objects::uid_of),
            holder: named.map(|named| named.pod),
            active: named.and_then(|named| named.active),
            labelled: self.apis[0].active_pods(0).collect(),
            nodes: self.servers.iter().map(holds).collect(),
        }
    }
}

#[test]
fn a_crash_at_any_effect_ends_as_no_crash() {
    for story in &STORIES {
        let without = run(story, None);
        assert_eq!(without.broken, None, "{}", story.name);
        assert_eq!(without.ending.active, Some(true), "{}: no process holds the lease at the end", story.name);
        let (mut most_status, mut most) = (0, 0);
        for effect in 1..=without.effects {
            let crashed = run(story, Some(effect));
            assert_eq!(crashed.broken, None, "{}: crash before effect {effect}", story.name);
            assert_eq!(crashed.ending, without.ending, "{}: crash before effect {effect}", story.name);
            most_status = most_status.max(crashed.status_writes);
            most = most.max(crashed.writes);
        }
        println!(
            "{}: {} crash points; {} status writes and {} writes in all without a crash, at most {most_status} and \
             {most} with one",
            story.name, without.effects, without.status_writes, without.writes
        );
        assert!(most_status <= without.status_writes + 3, "{}: a crash costs {most_status} status writes", story.name);
        assert!(most <= without.writes + 8, "{}: a crash costs {most} writes", story.name);
    }
}
