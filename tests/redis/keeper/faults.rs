//! One node at a time: the term lives on, and the node is joined again before the next fault.

use redislease_core::lease::TermId;
use redislease_lab::RedisServer;

use super::candidate::{Candidate, lease, ready, voters};
use crate::support::World;

/// Longer than a lease without renewals could live.
async fn outlives_a_ttl(candidate: &Candidate, id: &TermId) {
    let rounds = lease().ttl.0 / lease().renew_interval.0 + 1;
    candidate.renewed(usize::try_from(rounds).unwrap()).await;
    assert!(candidate.has_kept(id), "{:?}", candidate.lease.view());
}

async fn term() -> (Vec<RedisServer>, World, Candidate, TermId) {
    let servers = voters(3);
    let world = ready(&servers, &lease()).await;
    let candidate = Candidate::on(&world, &["k"], lease());
    let id = candidate.hold_on_all("pod-1", &servers).await;
    (servers, world, candidate, id)
}

/// Only the node that was away and came back makes the majority now.
async fn survives_without(node: usize, servers: &[RedisServer], candidate: &Candidate, id: &TermId) {
    servers[node].process().kill().unwrap();
    outlives_a_ttl(candidate, id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_comes_back_empty_waits_and_is_joined() {
    let (servers, world, candidate, id) = term().await;
    servers[2].process().kill().unwrap();
    outlives_a_ttl(&candidate, &id).await;

    let since = redislease::clock::now();
    servers[2].restart_empty().unwrap();
    world.quarantined(2).await;
    assert!(candidate.is_free(&servers[2]), "nothing is written to a node that may not vote");
    candidate.joined(&servers[2], &id).await;
    let waited = redislease::clock::now().since(since);
    assert!(waited > lease().ttl, "joined after {waited:?}");

    survives_without(0, &servers, &candidate, &id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_is_joined_when_it_goes_on() {
    let (servers, world, candidate, id) = term().await;
    servers[1].process().pause().unwrap();
    outlives_a_ttl(&candidate, &id).await;

    servers[1].process().resume().unwrap();
    world.up(1).await;
    let before = candidate.history.renewed().len();
    candidate.joined(&servers[1], &id).await;
    let rounds = candidate.history.renewed().len() - before;
    // One may be under way when the node comes back, and a busy machine looks late by one more.
    assert!(rounds <= 4, "joined after {rounds} rounds");
    assert!(candidate.has_kept(&id));

    survives_without(2, &servers, &candidate, &id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_all_nodes_moves_no_lease() {
    let (servers, world, candidate, id) = term().await;
    for (node, server) in servers.iter().enumerate() {
        server.restart_full().unwrap();
        world.quarantined(node).await;
        world.up(node).await;
        // What it had saved of the keys ended before its quarantine did.
        candidate.joined(server, &id).await;
    }
    assert!(candidate.has_kept(&id), "{:?}", candidate.lease.view());
}
