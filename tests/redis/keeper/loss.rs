//! A lost quorum: the loss is reported in time, neither early nor late, and nothing is deleted.

use redislease_core::lease::EndReason;
use redislease_core::time::Millis;
use redislease_lock::clock;

use super::candidate::{Candidate, lease, three};
use crate::support::{calls, kill};

/// Enough runs to distinguish a late timer from one delayed thread.
const LEASES: usize = 9;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_killed_nodes_the_term_is_lost_at_stop_at_and_nothing_is_released() {
    let config = lease();
    let (servers, world) = three(&config).await;
    let names: Vec<String> = (0..LEASES).map(|lease| format!("k{lease}")).collect();
    let candidates: Vec<_> = names.iter().map(|key| Candidate::on(&world, &[key], config.clone())).collect();
    for candidate in &candidates {
        candidate.want("pod-1");
    }
    for candidate in &candidates {
        candidate.hold_on_all("pod-1", &servers).await;
        candidate.forget();
    }
    let deleted = calls(&servers[0], "del");
    kill(&servers[1..]);
    let killed = clock::now();

    let mut late = Vec::new();
    for candidate in &candidates {
        let loss = candidate.lost().await;
        let (stop_at, valid_until) = (loss.term.stop_at.unwrap(), loss.term.valid_until.unwrap());
        assert_eq!(loss.reason, EndReason::Deadline);
        assert!(loss.at >= stop_at, "lost {:?} too early", stop_at.since(loss.at));
        assert!(loss.at < valid_until, "reported {:?} after another process could hold", loss.at.since(valid_until));
        assert!(stop_at > killed, "a round without the votes of two nodes counted");
        assert!(loss.term.failed_rounds >= 2, "the renewal was retried: {loss:?}");
        late.push(loss.at.since(stop_at));

        let id = &loss.term.id;
        candidate.sealed(&servers[..1], id).await;
    }
    late.sort_unstable();
    println!("delays of the report: {late:?}");
    assert!(late[LEASES / 2] <= Millis(100), "{late:?}");

    for candidate in &candidates {
        candidate.free(&servers[..1]).await;
    }
    assert_eq!(calls(&servers[0], "del"), deleted, "the sealed keys expired");
}
