//! What delays an acquire, and what it costs the servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redislease_core::lease::{Publication, Standing, View};
use redislease_core::op::Holder;
use redislease_lab::{Percentiles, RedisServer};
use redislease_lock::keeper::{Command, Keeper, LeaseHandle};
use tokio::sync::{oneshot, watch};

use super::candidate::{Candidate, candidate_of, open_watched, patient, setup, three};
use crate::support::PATIENCE;

const BATCHES: usize = 10;
const OF: usize = 25;

/// Measures the time from the request to the confirmed term, `OF` times.
async fn acquires(candidate: &Candidate, spans: &mut Vec<Duration>) {
    for _ in 0..OF {
        let start = Instant::now();
        candidate.want("pod");
        let id = candidate.taken().await.id;
        spans.push(start.elapsed());
        candidate.published(id.attempt, Publication::Written);
        candidate.held(&id).await;
        candidate.end(id, true);
    }
}

/// One stopped node stalls every acquire of rslock (1 s), redsync (3 s) and redlock-universal (5 s): they wait for the
/// slowest node. Here the timeout is 2 s and the connection to the stopped node stays open, so a wait would be visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stopped_node_costs_an_acquire_nothing() {
    let config = patient();
    let (servers, world, candidate) = candidate_of(&config).await;
    let (mut healthy, mut stopped) = (Vec::new(), Vec::new());
    acquires(&candidate, &mut Vec::new()).await;
    // Alternating, so that the machine's load affects both equally.
    for batch in 0..BATCHES {
        acquires(&candidate, &mut healthy).await;
        let server = &servers[batch % servers.len()];
        server.process().pause().unwrap();
        acquires(&candidate, &mut stopped).await;
        server.process().resume().unwrap();
        world.all_up().await;
    }
    let of = |spans| Percentiles::of(spans).map(|all| (all.percentile(50), all.percentile(99))).unwrap();
    let (healthy, stopped) = (of(healthy), of(stopped));
    println!("acquire p50, p99 of {}: healthy {healthy:?}, one node stopped {stopped:?}", BATCHES * OF);
    let timeout = Duration::from(config.command_timeout);
    assert!(stopped.0 < healthy.0 * 2 + Duration::from_millis(5), "p50: {stopped:?} against {healthy:?}");
    assert!(stopped.1 < timeout / 4, "p99: {stopped:?} against {healthy:?}");
}

const CYCLES: u64 = 200;

/// Acquires, publishes and releases a lease, one cycle after another. Returns when the last release is on its way.
async fn cycles(lease: LeaseHandle, mut views: watch::Receiver<View>) {
    for _ in 0..CYCLES {
        lease.command(Command::Want(Holder("pod".into())));
        let taken = views.wait_for(|view| matches!(view.standing, Standing::Publishing(_))).await.unwrap().clone();
        let id = taken.standing.term().unwrap().id.clone();
        lease.command(Command::Published { attempt: id.attempt, outcome: Publication::Written });
        lease.command(Command::End { term: id, proof: true });
        drop(views.wait_for(|view| view.standing == Standing::Idle).await.unwrap());
    }
}

/// How often the servers have read from a connection.
fn reads(servers: &[RedisServer]) -> u64 {
    let of = |server: &RedisServer| {
        let stats = server.command(&["INFO", "stats"]).unwrap().text().unwrap();
        let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        reads.unwrap().trim().parse::<u64>().unwrap()
    };
    servers.iter().map(of).sum()
}

/// A server wakes up for every read, which costs it more than the command. A task on the thread of the nodes that wants the next
/// term as soon as it has ended the last one causes five reads a cycle on three servers: each reads a release with the acquire
/// behind it, and the two that granted first read a confirm. Sent one by one, there are eight writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_and_the_next_acquire_are_sent_together() {
    let config = patient();
    let (servers, world) = three(&config).await;
    let keeper = Keeper::start(Arc::new(())).unwrap();
    let (lease, views) = open_watched(&keeper, setup(&world, "k", config, Box::new(())));
    let before = reads(&servers);
    let (done, finished) = oneshot::channel();
    world.nodes.spawn(async move {
        cycles(lease, views).await;
        done.send(()).unwrap();
    });
    tokio::time::timeout(PATIENCE, finished).await.unwrap().unwrap();
    let reads = reads(&servers) - before;
    println!("{reads} reads for {CYCLES} cycles");
    assert!(reads < CYCLES * 57 / 10, "{reads} reads for {CYCLES} cycles");
    keeper.shutdown().await;
}
