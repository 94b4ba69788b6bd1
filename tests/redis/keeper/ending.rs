//! The end of a term with proof that its holder stopped.

use redislease_core::lease::Publication;
use redislease_core::time::Millis;
use redislease_lab::RedisServer;
use redislease_lock::clock;

use super::candidate::{candidate_of, patient};
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
