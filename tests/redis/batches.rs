//! Batched renewals: the same votes as for single ones, in order, without delaying other requests.

use std::sync::{Arc, Mutex, mpsc};

use redislease_core::op::{Op, Stage, Stages, Vote};
use redislease_core::time::Millis;
use redislease_lab::RedisServer;
use redislease_lock::clock;
use redislease_lock::nodes::Config;
use redislease_lock::nodes::script::Script;
use tokio::sync::oneshot;

use crate::support::{
    World, acquire, addresses, calls, config, eventually, extend, get, release, servers, write_terms,
};

/// A configuration for tests in which no deadline may pass.
const LONG: Millis = Millis(20_000);

async fn world() -> (Vec<RedisServer>, World) {
    let servers = servers(1);
    let world = World::start(&Config { command_timeout: LONG, ..config(addresses(&servers)) });
    world.up(0).await;
    (servers, world)
}

fn key(attempt: u128) -> String {
    format!("k{attempt}")
}

/// Terms of `1..=count` with their attempt as token, each with a separate key.
fn terms(server: &RedisServer, world: &World, count: usize) {
    write_terms(server, &world.lock("k"), count, "m", Millis(60_000));
}

/// Votes in order of arrival, each with its attempt.
#[derive(Clone, Default)]
struct Votes(Arc<Mutex<Vec<(u128, Vote)>>>);

impl Votes {
    fn send(&self, world: &World, attempt: u128, op: Op) {
        let votes = self.0.clone();
        world.send_about(&key(attempt), 0, op, LONG, move |vote| votes.lock().unwrap().push((attempt, vote)));
    }

    async fn all(&self, count: usize) -> Vec<(u128, Vote)> {
        eventually("every vote", || async { (self.0.lock().unwrap().len() == count).then_some(()) }).await;
        self.0.lock().unwrap().clone()
    }
}

/// Blocks the thread of the nodes while `send` runs, so that all of its requests arrive together.
async fn together(world: &World, send: impl FnOnce()) {
    let (blocks, blocked) = oneshot::channel();
    let (done, is_done) = mpsc::channel::<()>();
    world.send_about("other", 0, release(u128::MAX, Stages::All), LONG, move |vote| {
        blocks.send(vote).unwrap();
        // An error: `done` was dropped.
        let _ = is_done.recv();
    });
    assert_eq!(blocked.await.unwrap(), Vote::Released(0));
    send();
    drop(done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_renewals_need_few_calls() {
    let (servers, world) = world().await;
    let (missing, sealed, foreign, of_a_list) = (70, 150, 151, 152);
    terms(&servers[0], &world, 300);
    let lock = |attempt| world.lock(&key(attempt));
    servers[0].command(&["DEL", &lock(missing)]).unwrap();
    let seal = get(&servers[0], &lock(sealed)).unwrap().replacen('t', "s", 1);
    servers[0].command(&["SET", &lock(sealed), &seal]).unwrap();
    servers[0].command(&["SET", &lock(foreign), "mine"]).unwrap();
    servers[0].command(&["DEL", &lock(of_a_list)]).unwrap();
    servers[0].command(&["LPUSH", &lock(of_a_list), "mine"]).unwrap();

    let before = calls(&servers[0], "evalsha");
    servers[0].process().pause().unwrap();
    let votes = Votes::default();
    for attempt in 1..=300 {
        votes.send(&world, attempt, extend(attempt, u64::try_from(attempt).unwrap()));
    }
    servers[0].process().resume().unwrap();
    for (attempt, vote) in votes.all(300).await {
        match attempt {
            70 => assert_eq!(vote, Vote::Miss(None)),
            150 => assert!(matches!(&vote, Vote::Miss(Some(by)) if by.stage == Stage::Sealed), "{vote:?}"),
            151 | 152 => assert_eq!(vote, Vote::Unknown, "a foreign value makes only its own vote unknown"),
            _ => assert_eq!(vote, Vote::Extended, "{attempt}"),
        }
    }
    let used = calls(&servers[0], "evalsha") - before;
    assert!(used < 60, "{used} calls for 300 leases, heartbeats included");
}

/// At most 16 calls of 100 leases are ahead of it: a few milliseconds of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_renewals_do_not_delay_an_acquire() {
    let (servers, world) = world().await;
    let count = 10_000;
    servers[0].process().pause().unwrap();
    let votes = Votes::default();
    for attempt in 1..=count {
        votes.send(&world, attempt, extend(attempt, 1));
    }
    // Until the task has taken them, they may be sent in any order.
    let sent = clock::now();
    clock::sleep_until(sent + Millis(300)).await.unwrap();
    votes.send(&world, count + 1, acquire(count + 1));
    clock::sleep_until(sent + Millis(600)).await.unwrap();
    servers[0].process().resume().unwrap();
    let votes = votes.all(10_001).await;
    let place = votes.iter().position(|(attempt, _)| *attempt == count + 1).unwrap();
    assert!(matches!(votes[place].1, Vote::Granted(_)), "{:?}", votes[place]);
    assert!(place <= 1700, "{place} renewals were answered before it");
    assert_eq!(votes.iter().filter(|(_, vote)| *vote == Vote::Miss(None)).count(), 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_once_for_all_requests() {
    let (servers, world) = world().await;
    terms(&servers[0], &world, 500);
    let loads = || calls(&servers[0], "script|load");
    let votes = Votes::default();
    let mut before = (0, 0);
    together(&world, || {
        servers[0].command(&["SCRIPT", "FLUSH"]).unwrap();
        before = (loads(), calls(&servers[0], "evalsha"));
        for attempt in 1..=500 {
            votes.send(&world, attempt, extend(attempt, u64::try_from(attempt).unwrap()));
        }
        for attempt in 1001..=1500 {
            votes.send(&world, attempt, acquire(attempt));
        }
        for attempt in 1001..=1500 {
            votes.send(&world, attempt, release(attempt, Stages::Pending));
        }
    })
    .await;
    let votes = votes.all(1500).await;
    let count = |fits: fn(&Vote) -> bool| votes.iter().filter(|(_, vote)| fits(vote)).count();
    let extended = count(|vote| *vote == Vote::Extended);
    let granted = count(|vote| matches!(vote, Vote::Granted(_)));
    let released = count(|vote| *vote == Vote::Released(1));
    assert_eq!((extended, granted, released), (500, 500, 500));
    assert_eq!(loads() - before.0, u64::try_from(Script::ALL.len()).unwrap(), "each script once");
    assert!(world.metric(r#"redislease_redis_errors_total{kind="noscript",quorum="q",redis_node="a"}"#) >= 1);
    let used = calls(&servers[0], "evalsha") - before.1;
    assert!(used < 60, "{used} calls for 1500 requests, heartbeats and the calls without scripts included");
}
