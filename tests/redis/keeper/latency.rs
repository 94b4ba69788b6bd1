//! The cost of one stopped node for an acquire.

use std::time::{Duration, Instant};

use redislease_core::lease::Publication;
use redislease_lab::Percentiles;

use super::candidate::{Candidate, patient, ready, voters};

const BATCHES: usize = 10;
const OF: usize = 25;

/// Measures the time from the request to the confirmed term, `OF` times.
async fn acquires(candidate: &Candidate, spans: &mut Vec<Duration>) {
    for _ in 0..OF {
        let start = Instant::now();
        candidate.want("pod");
        let id = candidate.taken().await.id;
        spans.push(start.elapsed());
        candidate.lease.published(id.attempt, Publication::Written);
        candidate.held(&id).await;
        candidate.lease.end(id, true);
    }
}

/// One stopped node stalls every acquire of rslock (1 s), redsync (3 s) and redlock-universal (5 s): they wait for the
/// slowest node. Here the timeout is 2 s and the connection to the stopped node stays open, so a wait would be visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stopped_node_costs_an_acquire_nothing() {
    let servers = voters(3);
    let config = patient();
    let world = ready(&servers, &config).await;
    let candidate = Candidate::on(&world, &["k"], config.clone());
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
