//! The end of a term: at once with proof that its holder stopped, without proof when the keys expire.

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
