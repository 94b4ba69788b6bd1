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

use super::candidate::{Candidate, adopt_written, lease, open_watched, patient, process, setup, three, voters};
use super::history::History;
use crate::support::{PATIENCE, acquire, eventually, get, write_terms};

fn holder(name: &str) -> Holder {
    Holder(name.into())
}

async fn wait(views: &mut watch::Receiver<View>, what: &str, fits: impl Fn(&View) -> bool) -> View {
    let waited = tokio::time::timeout(PATIENCE, views.wait_for(|view| fits(view))).await;
    let waited = waited.map(|view| view.unwrap_or_else(|_| panic!("the machine ended before {what}")).clone());
    waited.unwrap_or_else(|_| panic!("not {what}: {:?}", *views.borrow()))
}

/// Takes the lease and holds it.
async fn hold(handle: &LeaseHandle, views: &mut watch::Receiver<View>, name: &str) {
    handle.command(Command::Want(holder(name)));
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
    handle.command(Command::Want(holder("pod-1")));
    handle.command(Command::Want(holder("pod-1")));
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
    bad.command(Command::Want(holder("pod-2")));
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
    assert!(status.message.contains("is restarted; report this bug: a faulty reply function"), "{status:?}");
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
    let stage = || value("held").map(|stored| stored.parse::<Stored>().unwrap().stage);
    // The term is held when two of the three servers have it.
    eventually("the term on the first server", || async { (stage() == Some(Stage::Term)).then_some(()) }).await;
    pause(&servers[1..]).unwrap();
    let (tried, tried_views) = open_watched(&keeper, setup(&world, "tried", config.clone(), Box::new(())));
    tried.command(Command::Want(holder("pod-2")));
    eventually("the first round to reach a node", || async { value("tried") }).await;
    let start = clock::now();
    keeper.shutdown().await;
    let took = clock::now().since(start);
    assert!(took < Millis(5000), "{took:?}");
    assert!(held_views.has_changed().is_err() && tried_views.has_changed().is_err(), "every machine is gone");
    assert_eq!(value("tried"), None, "the attempt was released on the servers that answer");
    assert_eq!(stage(), Some(Stage::Term), "a published term is left for another process");
    // Handles of a keeper that has ended do nothing.
    held.command(Command::Forget);
    drop((held, tried));
}

/// As of a program whose first request meets its shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_was_shut_down_starts_no_shard() {
    let config = patient();
    let (servers, world) = three(&config).await;
    let keeper = Keeper::on_nodes(world.panics.keeper_observer());
    keeper.shutdown().await;
    let (late, views) = open_watched(&keeper, setup(&world, "late", config.clone(), Box::new(())));
    late.command(Command::Want(holder("pod-late")));
    // Its requests would be before those of this one.
    Candidate::on(&world, &["other"], config).hold_on_all("pod-other", &servers).await;
    assert!(servers.iter().all(|server| get(server, &world.lock("late")).is_none()));
    assert!(views.has_changed().is_err(), "it has ended");
}

/// The simultaneous renewals of one tenant's many leases against the renewals and an acquire of another tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_leases_delay_no_other() {
    const MANY: usize = 2000;
    let config = patient();
    let often = Config { renew_interval: Millis(500), ..config.clone() };
    let (servers, world) = three(&config).await;
    let keeper = Keeper::start(world.panics.keeper_observer()).unwrap();
    let history = History::default();
    let (held, mut held_views) = open_watched(&keeper, setup(&world, "held", often.clone(), Box::new(history.clone())));
    hold(&held, &mut held_views, "pod-held").await;
    // Terms of a process that has ended: each is adopted with a renewal.
    for server in &servers {
        write_terms(server, &world.lock("many-"), MANY, "pod-many", config.ttl);
    }
    let start = clock::now();
    let mut adopted = Vec::new();
    for number in 1..=MANY {
        adopted.push(adopt_written(&keeper, &world, number, config.clone(), Box::new(())));
    }
    let (one, mut one_views) = open_watched(&keeper, setup(&world, "one", config.clone(), Box::new(())));
    let wanted = clock::now();
    one.command(Command::Want(holder("pod-one")));
    wait(&mut one_views, "taken", |view| matches!(view.standing, Standing::Publishing(_))).await;
    let took = clock::now().since(wanted);
    assert!(took < Millis(1000), "an acquire during {MANY} adoptions took {took:?}");
    for (_, views) in &mut adopted {
        wait(views, "adopted", |view| matches!(view.standing, Standing::Held(_))).await;
    }
    // And while all of them renew once more.
    let end = clock::now() + config.renew_interval;
    let renewed = || history.renewed().last().is_some_and(|last| *last > end);
    eventually("a renewal after those of the others", || async { renewed().then_some(()) }).await;
    let longest = history.longest_pause(start);
    println!(
        "{MANY} leases of others: an acquire took {took:?}, the longest time between two renewals was {longest:?}"
    );
    assert!(longest < often.renew_interval + Millis(1000), "{longest:?} between two renewals: {}", history.story());
    let failed = history.observations().views.iter().any(|(_, view)| matches!(view.standing, Standing::Uncertain(_)));
    assert!(!failed, "{}", history.story());
}
