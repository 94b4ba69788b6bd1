//! Known bugs of other Redis locks and leader electors, each reproduced with one holder.
//!
//! Tested in other files: one stopped node stalls every acquire (`latency`), no signal on loss, and the next holder
//! starts before the last one has stopped (`loss`), two pods are active at once (`tests/kube/roles.rs`). With several
//! processes: `peers_of_many`. `bench/field_bugs.json` lists all of them.

use redislease_core::lease::{Config, EndReason, Standing};
use redislease_core::op::Stage;
use redislease_core::time::Millis;
use redislease_lab::RedisServer;
use redislease_lock::clock;
use redislease_lock::nodes::{self, NodeState};

use super::candidate::{Candidate, candidate_of, lease, patient, ready, term_of, voters};
use crate::support::{self, World, addresses, calls, eventually, pause, resume};

/// redisson's watchdog stops permanently at the first connection error (redisson#2515).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_continues_after_connection_errors() {
    let config = Config { ttl: Millis(8000), ..lease() };
    let (servers, _world, candidate) = candidate_of(&config).await;
    let id = candidate.hold("pod-1").await;
    let clients = |server: &RedisServer| server.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap().text().unwrap();
    for _ in 0..3 {
        // Each server receives the extension, executes nothing, and closes the connection.
        for server in &servers {
            server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]).unwrap();
        }
        eventually("an extension on its way to every server", || async {
            let waits = |client: &str| client.contains(" cmd=evalsha ") && client.contains(" flags=b ");
            servers.iter().all(|server| clients(server).lines().any(waits)).then_some(())
        })
        .await;
        for server in &servers {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
        }
        candidate.wait("a round failed", |view| view.standing.term().is_some_and(|term| term.failed_rounds > 0)).await;
        for server in &servers {
            server.command(&["CLIENT", "UNPAUSE"]).unwrap();
        }
        candidate.renewed(2).await;
    }
    assert!(candidate.has_kept(&id), "{:?}", candidate.lease.view());
}

/// node-redlock returns a lock whose duration was used up by a slow acquire (node-redlock#296).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_takes_too_long_is_not_a_term() {
    let servers = voters(3);
    // The request timeout is longer than the lease.
    let config = Config { command_timeout: Millis(10_000), ..lease() };
    let world = World::start(&nodes::Config {
        longest_lease: config.ttl,
        command_timeout: config.command_timeout,
        ..support::config(addresses(&servers))
    });
    world.all_up().await;
    let candidate = Candidate::on(&world, &["k"], config.clone());
    pause(&servers[1..]);
    candidate.want("pod-1");
    let begun = eventually("the attempt to begin", || async { candidate.history.attempts().first().copied() }).await;
    let begun_at = clock::now();
    candidate
        .wait("given up", |view| !matches!(view.standing, Standing::Acquiring(attempt, _) if attempt == begun))
        .await;
    assert!(clock::now().since(begun_at) < config.ttl, "when a term would have to be given up");
    resume(&servers[1..]);

    let term = candidate.taken().await;
    assert_ne!(term.id.attempt, begun);
    assert_eq!(candidate.history.taken_at(begun), None);
    let taken_at = candidate.history.taken_at(term.id.attempt).unwrap();
    assert!(taken_at < term.stop_at.unwrap(), "{taken_at:?} in {term:?}");
}

/// redlock-rb extends a lock that has expired (redlock-rb#36).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_keys_are_not_extended() {
    let config = Config { renew_interval: Millis(500), ..patient() };
    let (servers, world, candidate, id) = term_of(&config).await;
    candidate.lease.forget();
    for server in &servers[..2] {
        server.command(&["PEXPIRE", &world.lock("k"), "1"]).unwrap();
    }
    assert_eq!(candidate.lost().await.reason, EndReason::Misses);
    let rounds = candidate.history.renewed().len();
    // A node that was about to join may keep the sealed grant: it is not a term and only expires.
    eventually("no node to keep the term", || async {
        let term = |server| candidate.values(server)[0].as_ref().is_some_and(|value| value.stage == Stage::Term);
        (!servers.iter().any(term)).then_some(())
    })
    .await;
    assert!(servers[..2].iter().all(|server| !candidate.stands(server, 's', &id)), "{id:?} was set again");
    assert_eq!(candidate.history.renewed().len(), rounds);
    assert_eq!(candidate.lease.view().standing, Standing::Idle);
}

/// rslock 0.10 deletes the remaining keys when an extension fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_extension_deletes_nothing() {
    let config = Config { renew_interval: Millis(500), ..patient() };
    let (servers, _world, candidate, id) = term_of(&config).await;
    let deleted = calls(&servers[2], "del");
    candidate.lease.forget();
    for server in &servers[..2] {
        candidate.del(server);
    }
    assert_eq!(candidate.lost().await.reason, EndReason::Misses);
    candidate.sealed(&servers[2..], &id).await;
    assert!(candidate.pttl(&servers[2]) > 0);
    assert_eq!(calls(&servers[2], "del"), deleted);
}

/// node-redlock's retry is blocked for a whole TTL by the key of its own earlier attempt (node-redlock#369).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_is_not_blocked_by_its_own_earlier_attempt() {
    let servers = voters(3);
    let config = Config { ttl: Millis(60_000), ..lease() };
    let world = ready(&servers, &config).await;
    pause(&servers[1..]);
    let candidate = Candidate::on(&world, &["k"], config);
    candidate.want("pod-1");
    eventually("three tries", || async { (candidate.history.attempts().len() >= 3).then_some(()) }).await;
    resume(&servers[1..]);
    let start = clock::now();
    candidate.taken().await;
    assert!(clock::now().since(start) < Millis(15_000), "a quarter of the TTL");
}

/// redlock-py raises when one node is dead, although a quorum held (redlock-py#27).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dead_node_causes_no_error_in_any_step() {
    let servers = voters(3);
    let world = ready(&servers, &lease()).await;
    servers[1].process().kill().unwrap();
    world.wait(1, "down", |status| status.state == NodeState::Down).await;
    let candidate = Candidate::on(&world, &["k"], lease());
    let first = candidate.hold("pod-1").await;
    candidate.renewed(3).await;
    assert!(candidate.has_kept(&first));
    candidate.lease.end(first.clone(), true);
    candidate.free(&servers[..1]).await;
    candidate.free(&servers[2..]).await;
    let second = candidate.hold("pod-2").await;
    candidate.lease.end(second.clone(), false);
    candidate.wait("sealed", |view| view.ending.as_ref().is_some_and(|ending| ending.sealed)).await;
    let third = candidate.hold("pod-3").await;
    assert!(first.token < second.token && second.token < third.token);
}

/// After one failed renewal kuberhealthy never contends again (kuberhealthy#1533).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_lost_contends_again() {
    let (servers, _world, candidate) = candidate_of(&lease()).await;
    let first = candidate.hold("pod-1").await;
    pause(&servers);
    assert_eq!(candidate.lost().await.reason, EndReason::Deadline);
    resume(&servers);
    let second = candidate.taken().await.id;
    assert!(second.token > first.token);
    assert_eq!(second.holder, first.holder);
}

/// In redsync an unlock whose context is cancelled leaves the lock for its whole TTL (redsync#68).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_completed_without_its_caller() {
    let (servers, world, candidate, id) = term_of(&patient()).await;
    let watching = Candidate::of(None, [world.lock("k")].into(), patient());
    let start = clock::now();
    candidate.lease.end(id, true);
    // The last references to the keeper and to its nodes are dropped.
    drop(candidate);
    drop(world);
    watching.free(&servers).await;
    assert!(clock::now().since(start) < Millis(10_000), "half of the TTL");
}
