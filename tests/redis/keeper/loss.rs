//! A lost quorum: the loss is reported in time, neither early nor late, and nothing is deleted.

use std::time::Duration;

use redislease_core::lease::{Config, EndReason};
use redislease_core::time::Millis;
use redislease_lab::{pause, resume};
use redislease_lock::clock;

use super::candidate::{Candidate, candidate_of, lease, ready, term_of, three, voters};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_is_back_before_stop_at_changes_nothing() {
    // Recovery takes a reconnect, and the pauses between attempts grow to a second.
    let config = Config { ttl: Millis(8000), ..lease() };
    let (servers, _world, candidate, id) = term_of(&config).await;
    pause(&servers[1..]).unwrap();
    candidate.wait("without a quorum", |view| view.standing.term().is_some_and(|term| term.failed_rounds >= 3)).await;
    resume(&servers[1..]).unwrap();
    candidate.renewed(2).await;
    candidate.joined(&servers, &id).await;
    assert!(candidate.has_kept(&id), "{:?}", candidate.view());
    assert_eq!(candidate.held(&id).await.failed_rounds, 0);
}

/// The loss is reported to a holder one stop budget before another process may hold.
///
/// Consul's lock sample starts the next holder's child before the last one's has stopped (consul#9788).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_term_begins_a_stop_budget_after_the_loss_was_reported() {
    let servers = voters(3);
    let config = lease();
    let (ours, theirs) = (ready(&servers, &config).await, ready(&servers, &config).await);
    let first = Candidate::on(&ours, &["k"], config.clone());
    let held = first.hold_on_all("pod-1", &servers).await;
    let second = Candidate::on(&theirs, &["k"], config.clone());
    second.want("pod-2");
    second.wait("refused", |view| view.refused_by.is_some()).await;

    pause(&servers[1..]).unwrap();
    let loss = first.lost().await;
    first.forget();
    resume(&servers[1..]).unwrap();
    let next = second.taken().await.id;
    let begins = second.history.taken_at(next.attempt).unwrap();
    let stop_at = loss.term.stop_at.unwrap();
    assert!(begins >= stop_at + config.stop_budget, "{begins:?} after {loss:?}");
    assert!(next.token > held.token);
}

/// Too many missing keys are a loss at once, without waiting for a timer.
///
/// redisson (#4698), RedLock.net (#92) and consul (#18271) do not report a lock that was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_reported_with_the_round_that_shows_it() {
    let config = Config { stop_budget: Millis(2000), ..super::candidate::patient() };
    let config = Config { renew_interval: Millis(500), ..config };
    let (servers, _world, candidate) = candidate_of(&config).await;
    candidate.hold_on_all("pod-1", &servers).await;
    let mut watch = candidate.watch();
    watch.mark_unchanged();
    candidate.forget();
    for server in &servers[..2] {
        candidate.del(server);
    }
    let gone = clock::now();
    let waited = tokio::time::timeout(Duration::from_secs(10), watch.wait_for(|view| view.standing.term().is_none()));
    waited.await.expect("the watchers are notified").unwrap();
    let loss = candidate.lost().await;
    assert_eq!(loss.reason, EndReason::Misses);
    // One interval and one timeout on an idle machine; a timer would take 18 s.
    assert!(loss.at.since(gone) < Millis(5000), "{:?}", loss.at.since(gone));
}
