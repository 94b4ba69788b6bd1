//! The end of a term: at once with proof that its holder stopped, without proof when the keys expire.

use std::time::Duration;

use redislease_core::lease::{Config, EndReason, Publication, Standing};
use redislease_core::time::{Millis, Time};
use redislease_lab::RedisServer;
use redislease_lock::clock;

use super::candidate::{Candidate, candidate_of, lease, patient, term_of};
use crate::support::calls;

const HANDOVERS: usize = 21;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_proof_the_keys_are_released_at_once_and_the_next_term_begins() {
    let (servers, _world, candidate) = candidate_of(&patient()).await;
    let mut id = candidate.hold_on_all("pod-0", &servers).await;
    let (proven, deleted) = (clock::now(), deleted_on(&servers));
    candidate.end(id.clone(), true);
    candidate.free(&servers).await;
    assert!(clock::now().since(proven) < Millis(5000), "far from the TTL of 20 s");
    assert_eq!(deleted_on(&servers), deleted + 3);

    let mut spans = Vec::new();
    for next in 1..=HANDOVERS {
        id = candidate.hold(&format!("pod-{next}")).await;
        let proven = clock::now();
        candidate.end(id.clone(), true);
        candidate.want("pod-next");
        let term = candidate.taken().await.id;
        spans.push(candidate.history.taken_at(term.attempt).unwrap().since(proven));
        assert!(term.token > id.token);
        candidate.published(term.attempt, Publication::Written);
        candidate.held(&term).await;
        candidate.end(term, true);
    }
    spans.sort_unstable();
    println!("from the proof to the next term: {spans:?}");
    assert!(spans[HANDOVERS / 2] <= Millis(250), "{spans:?}");
}

fn deleted_on(servers: &[RedisServer]) -> u64 {
    servers.iter().map(|server| calls(server, "del")).sum()
}

/// When a majority of the servers has no keys any more.
fn majority_free_at(candidate: &Candidate, servers: &[RedisServer]) -> Time {
    let mut ends: Vec<Time> = servers
        .iter()
        // The clock is read first, so that the measured end is not too late.
        .map(|server| clock::now() + Millis(u64::try_from(candidate.pttl(server)).unwrap()))
        .collect();
    ends.sort_unstable();
    ends[servers.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_proof_the_term_is_sealed_and_the_next_waits_for_its_keys() {
    let config = Config { ttl: Millis(4000), ..lease() };
    let (servers, _world, candidate, id) = term_of(&config).await;
    candidate.end(id.clone(), false);
    candidate.want("pod-2");
    let sealed = |view: &redislease_core::lease::View| view.ending.as_ref().is_some_and(|ending| ending.sealed);
    let ending = candidate.wait("sealed", sealed).await.ending.unwrap();
    assert_eq!((&ending.id, ending.reason), (&id, EndReason::Decided));
    candidate.sealed(&servers, &id).await;
    let free_at = majority_free_at(&candidate, &servers);
    assert!(free_at > clock::now(), "the test was too late on a busy machine: {free_at:?}");
    let view = candidate.wait("refused", |view| view.refused_by.is_some()).await;
    assert!(matches!(view.standing, Standing::Idle), "{view:?}");
    assert_eq!(view.refused_by.unwrap().attempt, id.attempt);

    let next = candidate.taken().await.id;
    let begins = candidate.history.taken_at(next.attempt).unwrap();
    assert!(begins >= free_at, "{begins:?} before {free_at:?}");
    assert!(begins < ending.keys_until + Millis(3000), "{begins:?} long after {:?}", ending.keys_until);
    assert!(next.token > id.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proof_that_comes_after_the_seal_releases_at_once() {
    let (_servers, _world, candidate) = candidate_of(&patient()).await;
    let id = candidate.hold("pod-1").await;
    candidate.end(id.clone(), false);
    candidate.wait("sealed", |view| view.ending.as_ref().is_some_and(|ending| ending.sealed)).await;
    candidate.end(id.clone(), true);
    let sealed = clock::now();
    let next = candidate.hold("pod-2").await;
    assert!(next.token > id.token);
    assert!(clock::now().since(sealed) < Millis(10_000), "half of the TTL");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_repeated_until_a_stopped_node_has_answered() {
    let config = Config { ttl: Millis(60_000), ..lease() };
    let (servers, world, candidate, id) = term_of(&config).await;
    servers[2].process().pause().unwrap();
    // Requests on the open connection would be executed when the node resumes, so the release must use another one.
    world.wait(2, "down", |status| status.state == redislease_lock::nodes::NodeState::Down).await;
    candidate.end(id, true);
    candidate.free(&servers[..2]).await;
    servers[2].process().resume().unwrap();
    candidate.free(&servers[2..]).await;
}

/// A publication that lost to a later one is sealed: another process may know its keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_publication_is_sealed_and_never_released() {
    let (servers, _world, candidate) = candidate_of(&lease()).await;
    candidate.want("pod-1");
    let id = candidate.taken().await.id;
    candidate.joined(&servers, &id).await;
    let deleted = deleted_on(&servers);
    candidate.forget();
    candidate.published(id.attempt, Publication::Superseded);
    let view = candidate.wait("ending", |view| view.ending.is_some()).await;
    assert_eq!(view.ending.unwrap().reason, EndReason::Superseded);
    candidate.sealed(&servers, &id).await;
    candidate.wait("over", |view| view.ending.is_none()).await;
    candidate.free(&servers).await;
    assert_eq!(deleted_on(&servers), deleted, "the keys expired");
    assert_eq!(candidate.view().standing, Standing::Idle);
    let quiet = candidate.history.attempts().len();
    tokio::time::sleep(Duration::from(lease().renew_interval)).await;
    assert_eq!(candidate.history.attempts().len(), quiet, "there is no candidate");
}
