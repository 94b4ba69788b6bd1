//! The keeper process stops: what it releases, what it leaves, and when it ends.

use redislease_core::lease::{Config, Standing};
use redislease_core::time::Millis;
use redislease_lab::{pause, resume};
use redislease_lock::clock;

use super::candidate::{Candidate, candidate_of, lease, patient, standing_on, three};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_keeper_releases_an_unpublished_attempt() {
    // While two nodes do not answer, the attempt has neither succeeded nor failed.
    let config = Config { command_timeout: Millis(10_000), ..patient() };
    let (servers, world) = three(&config).await;
    pause(&servers[1..]).unwrap();
    for by_stop in [true, false] {
        let candidate = Candidate::on(&world, &["k"], config.clone());
        candidate.want("pod-1");
        eventually("the first round to reach a node", || async { candidate.values(&servers[0])[0].as_ref().map(drop) })
            .await;
        assert!(matches!(candidate.view().standing, Standing::Acquiring(..)));
        let keys = [world.lock("k")].into();
        if by_stop {
            // It also waits for the silent nodes, at most for one command timeout.
            tokio::spawn(candidate.close());
        } else {
            drop(candidate);
        }
        Candidate::of(None, keys, config.clone()).free(&servers[..1]).await;
    }
    resume(&servers[1..]).unwrap();
    world.all_up().await;
    let next = Candidate::on(&world, &["k"], config);
    let start = clock::now();
    next.hold("pod-2").await;
    assert!(clock::now().since(start) < Millis(10_000), "the nodes that were stopped have no key of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_keeper_leaves_a_published_term_to_the_next() {
    let (servers, world, candidate) = candidate_of(&patient()).await;
    let id = candidate.hold("pod-1").await;
    let start = clock::now();
    candidate.close().await;
    assert!(clock::now().since(start) < Millis(5000), "without waiting");
    let next = Candidate::on(&world, &["k"], patient());
    assert!(standing_on(&next, &servers, &id) >= 2);
    next.adopt(id.clone());
    next.held(&id).await;
}

/// The write may be in flight: another process may read it even if the outcome is unknown here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_keeper_leaves_a_term_whose_publication_is_pending() {
    let (servers, world, candidate) = candidate_of(&patient()).await;
    candidate.want("pod-1");
    let id = candidate.taken().await.id;
    candidate.close().await;
    let next = Candidate::on(&world, &["k"], patient());
    assert!(standing_on(&next, &servers, &id) >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_keeper_does_not_wait_for_a_silent_node_for_long() {
    let config = Config { renew_interval: Millis(100), ..patient() };
    let (servers, _world, candidate) = candidate_of(&config).await;
    candidate.hold_on_all("pod-1", &servers).await;
    servers[2].process().pause().unwrap();
    candidate.renewed(1).await;
    let start = clock::now();
    candidate.close().await;
    let took = clock::now().since(start);
    assert!(took < config.command_timeout + Millis(2000), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_lease_ends_after_its_last_key() {
    let (servers, world) = three(&lease()).await;
    let idle = Candidate::on(&world, &["idle"], lease());
    idle.retire();
    eventually("a lease without keys to end", || async { idle.has_ended().then_some(()) }).await;

    let candidate = Candidate::on(&world, &["k"], lease());
    let id = candidate.hold_on_all("pod-1", &servers).await;
    candidate.retire();
    candidate.renewed(2).await;
    assert!(candidate.has_kept(&id) && !candidate.has_ended(), "a term continues until it is ended");
    candidate.end(id.clone(), false);
    candidate.sealed(&servers, &id).await;
    // Read before the lease is checked, so that the check is the later one.
    while servers.iter().any(|server| !candidate.is_free(server)) {
        assert!(!candidate.has_ended() || servers.iter().all(|server| candidate.is_free(server)));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    eventually("the lease to end", || async { candidate.has_ended().then_some(()) }).await;

    let candidate = Candidate::on(&world, &["k"], lease());
    let id = candidate.hold("pod-2").await;
    candidate.end(id, true);
    candidate.retire();
    let start = clock::now();
    eventually("the lease to end", || async { candidate.has_ended().then_some(()) }).await;
    assert!(servers.iter().all(|server| candidate.is_free(server)));
    assert!(clock::now().since(start) < lease().ttl, "after every node has answered the release");
}
