//! I10: a crash before any single effect, then a restart, ends in the same state as no crash.
//!
//! Each story runs once without a crash, and then once for each effect of a process (of the core, of the reconciler, of the
//! election) with a crash just before it. Attempt IDs and tokens may differ, and a run may wait one TTL longer, for which the
//! end of a story has time.

use std::sync::Arc;

use redislease_core::op::Stage;
use redislease_core::time::Millis;
use redislease_plan::election::PodFacts;

use super::calm;
use crate::api::objects::{self, numbers};
use crate::api::server::Mode;
use crate::api::workloads::replicas;
use crate::chaos::swarm::Swarm;
use crate::redis::clock::SECOND;
use crate::redis::server::Server;
use crate::world::World;

/// An event and its second.
struct Story {
    name: &'static str,
    swarm: fn() -> Swarm,
    /// The processes that crash, one in each run.
    crashes: &'static [usize],
    scenes: &'static [(u64, Scene)],
    end: u64,
    /// The cluster whose lease is active in the end.
    holds: usize,
}

#[derive(Clone, Copy, Debug)]
enum Scene {
    /// The oldest pod of the cluster is deleted and stops.
    Delete(usize),
    /// The oldest pod of the cluster is deleted by force.
    Kill(usize),
    /// The lease of the cluster is suspended.
    Suspend(usize),
    Unsuspend(usize),
    /// The lease is deleted.
    Remove,
    /// It is created again.
    Restore,
    ChangeSpec,
    /// The API server of the cluster hangs.
    ApiHangs(usize),
    ApiBack(usize),
    /// A user requests a handover to the oldest or the newest pod.
    ToOldest,
    ToNewest,
    /// No Redis server is reached.
    NoQuorum,
    Quorum,
    /// The API server loses half of its answers to writes.
    AnswersLost,
    AnswersKept,
    /// Watches end, and each list shows an older state.
    ListsStale,
    ListsFresh,
}

/// One process crashes, and its cluster holds the lease in the end.
const ONE_PROCESS: Story = Story { name: "", swarm: one_process, crashes: &[0], scenes: &[], end: 0, holds: 0 };

const STORIES: [Story; 10] = [
    Story {
        name: "holders come and go",
        scenes: &[(3, Scene::Delete(0)), (5, Scene::Kill(0)), (15, Scene::Delete(0))],
        // A crash can lose the proof: then the last holder is given up after its grace period and the rest of the TTL.
        end: 38,
        ..ONE_PROCESS
    },
    Story {
        name: "the lease changes",
        scenes: &[
            (3, Scene::ChangeSpec),
            (5, Scene::Suspend(0)),
            (7, Scene::Unsuspend(0)),
            (17, Scene::Remove),
            (18, Scene::Restore),
        ],
        end: 38,
        ..ONE_PROCESS
    },
    Story {
        name: "outages",
        scenes: &[
            (3, Scene::ApiHangs(0)),
            (4, Scene::Delete(0)),
            (8, Scene::ApiBack(0)),
            (12, Scene::NoQuorum),
            (19, Scene::Quorum),
        ],
        end: 42,
        ..ONE_PROCESS
    },
    Story {
        name: "two replicas",
        swarm: two_replicas,
        scenes: &[(8, Scene::Delete(0)), (12, Scene::Kill(0))],
        end: 40,
        ..ONE_PROCESS
    },
    Story {
        name: "two clusters share a lease, one API server is away",
        swarm: two_clusters,
        crashes: &[0, 1],
        scenes: &[
            // While one API server is away, the other cluster holds. In the end the lease of the first is suspended.
            (0, Scene::ApiHangs(1)),
            (6, Scene::ApiBack(1)),
            (7, Scene::Kill(0)),
            (14, Scene::ApiHangs(0)),
            (22, Scene::ApiBack(0)),
            (26, Scene::Suspend(0)),
            (28, Scene::ApiHangs(0)),
            (40, Scene::Kill(1)),
            (44, Scene::ApiBack(0)),
        ],
        end: 56,
        holds: 1,
    },
    Story {
        name: "answers of writes are lost",
        scenes: &[
            (0, Scene::AnswersLost),
            (5, Scene::Delete(0)),
            (9, Scene::Kill(0)),
            (20, Scene::Suspend(0)),
            (23, Scene::Unsuspend(0)),
            (26, Scene::AnswersKept),
        ],
        // A repeated stop whose answer is lost keeps the pod's other writes waiting for 31 s.
        end: 66,
        ..ONE_PROCESS
    },
    Story {
        name: "a stale list",
        scenes: &[
            (3, Scene::Delete(0)),
            (5, Scene::ListsStale),
            (7, Scene::Kill(0)),
            (15, Scene::ListsStale),
            (18, Scene::Delete(0)),
            (20, Scene::ListsStale),
            (22, Scene::ListsFresh),
        ],
        end: 44,
        ..ONE_PROCESS
    },
    Story {
        name: "only the elected pod starts",
        swarm: gated,
        scenes: &[(4, Scene::Delete(0)), (12, Scene::ApiHangs(0)), (14, Scene::ApiBack(0)), (16, Scene::Delete(0))],
        end: 44,
        ..ONE_PROCESS
    },
    Story {
        name: "a workload runs in one of two clusters",
        swarm: clustered,
        crashes: &[0, 1],
        scenes: &[(0, Scene::ApiHangs(1)), (6, Scene::ApiBack(1)), (10, Scene::Suspend(0)), (24, Scene::Unsuspend(0))],
        end: 44,
        holds: 1,
    },
    Story { name: "handovers", scenes: &[(4, Scene::ToNewest), (18, Scene::ToOldest)], end: 40, ..ONE_PROCESS },
];

fn one_process() -> Swarm {
    let mut swarm = calm(vec![0]);
    swarm.keys = vec![0b011];
    swarm
}

fn two_replicas() -> Swarm {
    let mut swarm = calm(vec![0, 0]);
    swarm.elects = true;
    // The terms of a leader that crashes must outlast its lock, whatever was renewed last.
    swarm.specs[0].lease = 8;
    swarm.longest = Millis(8000);
    swarm
}

fn two_clusters() -> Swarm {
    calm(vec![0, 1])
}

fn gated() -> Swarm {
    Swarm { gated: 0b1, ..one_process() }
}

fn clustered() -> Swarm {
    Swarm { clustered: 0b1, ..two_clusters() }
}

/// The end of a story, without what may differ.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    clusters: Vec<InCluster>,
    /// Of each node: whether it holds exactly the term of the lease that is active in the end.
    nodes: Vec<bool>,
}

/// What one cluster shows.
#[derive(Debug, PartialEq, Eq)]
struct InCluster {
    lease: u32,
    /// Only while the lease is active: which pod held a lease before may differ.
    holder: Option<u32>,
    active: Option<bool>,
    /// The pods that carry the label `active`.
    labelled: Vec<u32>,
    /// The pods that were started, or the replicas of the workload.
    runs: Vec<u32>,
    /// Whether what is active shows the token of the status.
    has_token: bool,
}

struct Run {
    ending: Ending,
    effects: u64,
    status_writes: u64,
    writes: u64,
    broken: Option<String>,
}

/// Runs a story, with a crash of this process before this of its effects.
fn run(story: &Story, crash: (usize, u64)) -> Run {
    let mut world = World::scenario((story.swarm)(), 7, &[]);
    world.crash_before = Some(crash);
    world.apis.iter_mut().for_each(|api| api.keeps_past = true);
    for &(second, scene) in story.scenes {
        world.run_until(second * SECOND);
        world.play(scene);
    }
    world.run_until(story.end * SECOND);
    let sum = |of: fn(&crate::api::server::Writes) -> u64| world.apis.iter().map(|api| of(&api.writes)).sum::<u64>();
    Run {
        ending: world.ending(story.holds),
        effects: world.effects,
        status_writes: sum(|writes| writes.status),
        writes: sum(|writes| writes.status + writes.role),
        broken: world.require(true, String::new).err(),
    }
}

impl World {
    fn play(&mut self, scene: Scene) {
        match scene {
            Scene::Delete(cluster) => self.harm_oldest(cluster, Self::delete_pod),
            Scene::Kill(cluster) => self.harm_oldest(cluster, Self::kill_pod),
            Scene::Suspend(cluster) => self.suspend_lease(cluster, 0, true),
            Scene::Unsuspend(cluster) => self.suspend_lease(cluster, 0, false),
            Scene::Remove => self.delete_lease(0, 0),
            Scene::Restore => self.create_lease(0, 0),
            Scene::ChangeSpec => {
                self.specs[0][0].max_delay += 500;
                self.write_spec(0, 0);
            }
            Scene::ApiHangs(cluster) => self.set_api(cluster, Mode::Hanging),
            Scene::ApiBack(cluster) => self.set_api(cluster, Mode::Up),
            Scene::ToOldest | Scene::ToNewest => self.hand_over(matches!(scene, Scene::ToNewest)),
            Scene::NoQuorum | Scene::Quorum => self.isolate(0, matches!(scene, Scene::NoQuorum)),
            Scene::AnswersLost => self.swarm.api_loss = 500,
            Scene::AnswersKept => self.swarm.api_loss = 0,
            Scene::ListsStale => {
                (self.swarm.watch_expired, self.swarm.stale_lists) = (1000, 1000);
                self.close_watches(0);
            }
            Scene::ListsFresh => {
                (self.swarm.watch_expired, self.swarm.stale_lists) = (0, 0);
                self.close_watches(0);
            }
        }
    }

    fn harm_oldest(&mut self, cluster: usize, harm: fn(&mut Self, usize, u32)) {
        let mut pods = self.apis[cluster].state.pods.iter();
        match pods.find(|(_, pod)| pod.deletion_grace.is_none()).map(|(&pod, _)| pod) {
            Some(pod) => harm(self, cluster, pod),
            None => self.check.fail("the story has no pod left".into()),
        }
    }

    fn hand_over(&mut self, to_newest: bool) {
        let mut pods = self.apis[0].state.pods.values().map(|pod| format!("pod/{}", pod.name));
        let to = if to_newest { pods.next_back() } else { pods.next() };
        let id = self.now.to_string();
        let change = self.apis[0].request_handover(0, &id, &to.unwrap_or_default());
        self.tell(0, change);
    }

    fn ending(&self, holds: usize) -> Ending {
        let named = self.apis[holds].named(0);
        let keys = self.swarm.keys[0];
        let has_term = |server: &Server| {
            numbers(keys).all(|key| {
                let value = server.node.entry(&key, server.clock.millis(self.now)).map(|entry| &entry.value);
                value.zip(named).is_some_and(|(value, named)| {
                    (value.stage, value.attempt, value.number) == (Stage::Term, named.attempt, named.token.0)
                })
            })
        };
        Ending {
            clusters: (0..self.apis.len()).map(|cluster| self.in_cluster(cluster)).collect(),
            nodes: self.servers.iter().map(has_term).collect(),
        }
    }

    fn in_cluster(&self, cluster: usize) -> InCluster {
        let api = &self.apis[cluster];
        let started = |(_, pod): &(&u32, &Arc<PodFacts>)| objects::was_started(pod, 0) && pod.deletion_grace.is_none();
        InCluster {
            lease: api.state.leases[0].as_deref().map_or(0, objects::uid_of),
            holder: api.active(0).map(|named| named.pod),
            active: api.named(0).and_then(|named| named.active),
            labelled: api.active_pods(0).collect(),
            runs: match api.workload_of(0) {
                Some(workload) => vec![replicas(workload) as u32],
                None => api.state.pods.iter().filter(started).map(|(&pod, _)| pod).collect(),
            },
            has_token: self.mistaken_token(cluster, 0).is_none(),
        }
    }
}

#[test]
fn a_crash_at_any_effect_ends_as_no_crash() {
    crashes_end_as_none(&STORIES[..4]);
}

#[test]
fn a_crash_at_any_effect_ends_as_no_crash_with_two_clusters_and_faults_of_api_servers() {
    crashes_end_as_none(&STORIES[4..7]);
}

#[test]
fn a_crash_at_any_effect_ends_as_no_crash_with_what_is_started_and_handed_over() {
    crashes_end_as_none(&STORIES[7..]);
}

fn crashes_end_as_none(stories: &[Story]) {
    for story in stories {
        for &process in story.crashes {
            crash_before_each_effect(story, process);
        }
    }
}

fn crash_before_each_effect(story: &Story, process: usize) {
    let name = format!("{}, process {process}", story.name);
    let without = run(story, (process, u64::MAX));
    assert_eq!(without.broken, None, "{name}");
    for (cluster, end) in without.ending.clusters.iter().enumerate() {
        assert_eq!(end.active == Some(true), cluster == story.holds, "{name}: cluster {cluster} in the end: {end:?}");
    }
    assert!(without.ending.nodes.iter().all(|has_term| *has_term), "{name}: {:?}", without.ending);
    let (mut most_status, mut most) = (0, 0);
    for effect in 1..=without.effects {
        let crashed = run(story, (process, effect));
        assert_eq!(crashed.broken, None, "{name}: crash before effect {effect}");
        assert_eq!(crashed.ending, without.ending, "{name}: crash before effect {effect}");
        most_status = most_status.max(crashed.status_writes);
        most = most.max(crashed.writes);
    }
    println!(
        "{name}: {} crash points; {} status writes and {} writes in all without a crash, at most {most_status} and {most} \
         with one",
        without.effects, without.status_writes, without.writes
    );
    // A crash before an election may elect another pod, and the story then happens to the holder instead of a standby pod: up
    // to two more changes of the holder, each with about five status writes. If the list of the next process lacks the lease, labels
    // are also removed and written again.
    assert!(most_status <= without.status_writes + 12, "{name}: a crash costs {most_status} status writes");
    assert!(most <= without.writes + 16, "{name}: a crash costs {most} writes");
}
