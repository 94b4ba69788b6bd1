//! One node fails at a time: the term continues, and the node joins it again before the next fault.

use redislease_core::lease::TermId;
use redislease_lab::RedisServer;

use super::candidate::{Candidate, term};

/// The majority now needs the node that was down.
async fn survives_without(node: usize, servers: &[RedisServer], candidate: &Candidate, id: &TermId) {
    servers[node].process().kill().unwrap();
    candidate.outlives_a_ttl(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_joins_the_term_when_it_resumes() {
    let (servers, world, candidate, id) = term().await;
    servers[1].process().pause().unwrap();
    candidate.outlives_a_ttl(&id).await;

    servers[1].process().resume().unwrap();
    world.up(1).await;
    let before = candidate.history.renewed().len();
    candidate.joined(&servers[1..2], &id).await;
    let rounds = candidate.history.renewed().len() - before;
    // One round may be in flight when the node returns, and on a busy machine one more may pass.
    assert!(rounds <= 4, "joined after {rounds} rounds");
    assert!(candidate.has_kept(&id));

    survives_without(2, &servers, &candidate, &id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_all_nodes_moves_no_lease() {
    let (servers, world, candidate, id) = term().await;
    for node in 0..servers.len() {
        servers[node].restart_full().unwrap();
        world.quarantined(node).await;
        world.up(node).await;
        // The saved keys expired before the end of its quarantine.
        candidate.joined(&servers[node..=node], &id).await;
    }
    assert!(candidate.has_kept(&id), "{:?}", candidate.view());
}
