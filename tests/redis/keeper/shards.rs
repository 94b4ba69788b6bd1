//! Many leases on few threads: one attempt for each request, and no lease affects another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redislease_core::lease::{Config, EndReason, Publication, Renewal, Standing, View};
use redislease_core::op::{Holder, Stage, Stored, Vote};
use redislease_core::time::Millis;
use redislease_lab::{pause, resume};
use redislease_lock::clock;
use redislease_lock::keeper::{Command, Keeper, LeaseHandle, Observer};
use redislease_lock::nodes::{NodeState, Reason};
use tokio::sync::watch;

use super::candidate::{Candidate, lease, open_watched, patient, process, setup, three, voters, wait};
use super::history::History;
use crate::support::{PATIENCE, acquire, eventually, get};

fn want(holder: &str) -> Command {
    Command::Want(Holder(holder.into()))
}

/// Takes the lease and holds it.
async fn hold(handle: &LeaseHandle, views: &mut watch::Receiver<View>, name: &str) {
    handle.command(want(name));
    let view = wait(views, "taken", |view| matches!(view.standing, Standing::Publishing(_))).await;
    handle.command(Command::Published {
        attempt: view.standing.term().unwrap().id.attempt,
        outcome: Publication::Written,
    });
    wait(views, "held", |view| matches!(view.standing, Standing::Held(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_is_one_attempt_with_any_outcome() {
    let config = lease();
    let (servers, world) = three(&config).await;
    let keeper = Keeper::start(world.panics.keeper_observer()).unwrap();
    let history = History::default();
    let (handle, mut views) = open_watched(&keeper, setup(&world, "k", config.clone(), Box::new(history.clone())));

    // A failure: another process holds the lease.
    let other = Candidate::on(&world, &["k"], config.clone());
    let theirs = other.hold("pod-other").await;
    handle.command(want("pod-1"));
    handle.command(want("pod-1"));
    let refused = wait(&mut views, "refused", |view| view.refused_by.is_some()).await;
    assert!(refused.retry_at.is_some());
    other.end(theirs, true);
    tokio::time::sleep(Duration::from(config.ttl + config.backoff.max + config.backoff.max)).await;
    assert_eq!(history.attempts().len(), 1, "{}", history.story());

    // A loss.
    hold(&handle, &mut views, "pod-1").await;
    assert_eq!(history.attempts().len(), 2);
    pause(&servers).unwrap();
    let lost = |view: &View| view.ending.as_ref().is_some_and(|ending| ending.reason == EndReason::Deadline);
    wait(&mut views, "lost", lost).await;
    resume(&servers).unwrap();
    world.all_up().await;
    wait(&mut views, "over", |view| view.ending.is_none()).await;
    tokio::time::sleep(Duration::from(config.backoff.max + config.backoff.max)).await;
    assert_eq!(history.attempts().len(), 2, "{}", history.story());

    // An end.
    hold(&handle, &mut views, "pod-1").await;
    let term = views.borrow().standing.term().unwrap().id.clone();
    handle.command(Command::End { term, proof: true });
    wait(&mut views, "idle", |view| matches!(view.standing, Standing::Idle)).await;
    tokio::time::sleep(Duration::from(config.backoff.max + config.backoff.max)).await;
    assert_eq!(history.attempts().len(), 3, "{}", history.story());
}

/// An observer that panics once its lease is held.
struct Broken {
    ended: Arc<AtomicUsize>,
}

impl Observer for Broken {
    fn renewed(&self, _: &Renewal, _: u64) {}

    fn changed(&self, view: &View) {
        assert!(!matches!(view.standing, Standing::Held(_)), "a faulty observer");
    }

    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_one_lease_and_no_other() {
    let config = Config { renew_interval: Millis(400), ..patient() };
    let (_servers, world) = three(&config).await;
    let panics = || world.metric(r#"redislease_panics_total{part="keeper"}"#);
    // Both leases are on one shard.
    let keeper = Keeper::start(world.panics.keeper_observer()).unwrap();
    let history = History::default();
    let (good, mut good_views) =
        open_watched(&keeper, setup(&world, "good", config.clone(), Box::new(history.clone())));
    hold(&good, &mut good_views, "pod-1").await;

    let ended = Arc::new(AtomicUsize::new(0));
    let broken = Box::new(Broken { ended: ended.clone() });
    let (bad, mut bad_views) = open_watched(&keeper, setup(&world, "bad", config.clone(), broken));
    bad.command(want("pod-2"));
    let taken = wait(&mut bad_views, "taken", |view| matches!(view.standing, Standing::Publishing(_))).await;
    assert_eq!(panics(), 0);
    bad.command(Command::Published {
        attempt: taken.standing.term().unwrap().id.attempt,
        outcome: Publication::Written,
    });
    eventually("the machine to be gone", || async { bad_views.has_changed().is_err().then_some(()) }).await;
    assert_eq!((panics(), ended.load(Ordering::SeqCst)), (1, 1));
    // The view's receiver was dropped.
    bad.command(Command::Forget);
    drop(bad);

    let renewals = history.renewed().len();
    eventually("the other to be renewed", || async { (history.renewed().len() >= renewals + 3).then_some(()) }).await;
    assert!(matches!(good_views.borrow().standing, Standing::Held(_)));
    let (next, mut next_views) = open_watched(&keeper, setup(&world, "next", config, Box::new(())));
    hold(&next, &mut next_views, "pod-3").await;
    assert_eq!((panics(), ended.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_task_that_panics_is_reported_and_restarted() {
    let servers = voters(1);
    let world = process(&servers, &patient());
    world.up(0).await;
    let mut watch = world.nodes.watch();
    watch.borrow_and_update();
    world.send_about("k", 0, acquire(1), Millis(2000), |_| panic!("a faulty reply function"));
    let down = tokio::time::timeout(PATIENCE, watch.wait_for(|nodes| nodes[0].state == NodeState::Down)).await;
    let status = down.unwrap().unwrap()[0].clone();
    assert_eq!(status.reason, Some(Reason::Internal));
    assert!(status.message.contains("is restarted. Report this bug: a faulty reply function"), "{status:?}");
    assert_eq!(world.metric(r#"redislease_panics_total{part="nodes"}"#), 1);
    world.up(0).await;
    assert!(matches!(world.ask(0, acquire(2)).await, Vote::Granted(_) | Vote::Refused { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_releases_unpublished_attempts_and_does_not_wait_for_long() {
    let config = Config { command_timeout: Millis(10_000), ..patient() };
    let (servers, world) = three(&config).await;
    let keeper = Keeper::start(world.panics.keeper_observer()).unwrap();
    let (held, mut held_views) = open_watched(&keeper, setup(&world, "held", config.clone(), Box::new(())));
    hold(&held, &mut held_views, "pod-1").await;
    let value = |key: &str| get(&servers[0], &world.lock(key));
    let has_term = |key| value(key).is_some_and(|stored| stored.parse::<Stored>().unwrap().stage == Stage::Term);
    // Its publication may be under way: another process may read it although its outcome is unknown here.
    let (taken, mut taken_views) = open_watched(&keeper, setup(&world, "taken", config.clone(), Box::new(())));
    taken.command(want("pod-3"));
    wait(&mut taken_views, "taken", |view| matches!(view.standing, Standing::Publishing(_))).await;
    // A term begins when two of the three servers have it.
    let both = || has_term("held") && has_term("taken");
    eventually("the terms on the first server", || async { both().then_some(()) }).await;
    pause(&servers[1..]).unwrap();
    let (tried, tried_views) = open_watched(&keeper, setup(&world, "tried", config.clone(), Box::new(())));
    tried.command(want("pod-2"));
    eventually("the first round to reach a node", || async { value("tried") }).await;
    let start = clock::now();
    keeper.shutdown().await;
    let took = clock::now().since(start);
    assert!(took < Millis(5000), "{took:?}");
    assert!(held_views.has_changed().is_err() && tried_views.has_changed().is_err(), "every machine is gone");
    assert_eq!(value("tried"), None, "the attempt was released on the servers that answer");
    assert!(has_term("held"), "a published term is left for another process");
    assert!(has_term("taken"), "as is one whose publication is pending");
    // Handles of a keeper that has ended do nothing.
    held.command(Command::Forget);
    drop((held, taken, tried));
}

/// As of a program whose first request meets its shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_was_shut_down_starts_no_shard() {
    let config = patient();
    let (servers, world) = three(&config).await;
    let keeper = Keeper::on_nodes(world.panics.keeper_observer());
    keeper.shutdown().await;
    let (late, views) = open_watched(&keeper, setup(&world, "late", config.clone(), Box::new(())));
    late.command(want("pod-late"));
    // Its requests would be before those of this one.
    Candidate::on(&world, &["other"], config).hold_on_all("pod-other", &servers).await;
    assert!(servers.iter().all(|server| get(server, &world.lock("late")).is_none()));
    assert!(views.has_changed().is_err(), "it has ended");
}
