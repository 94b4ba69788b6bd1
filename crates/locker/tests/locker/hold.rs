//! `hold_at_least`: nobody else gets the lock before.

use std::time::Instant;

use redislease_lab::{pause, resume};
use redislease_locker::{AcquireError, Released};

use crate::support::{LONGEST, PATIENCE, all_up, builder, eventually, locked, ms, on, once, servers, three};

/// Another program gets the lock `least` after `began`, and soon after that.
async fn next_gets_it(servers: &[redislease_lab::RedisServer], began: Instant, least: std::time::Duration) {
    let other = on(servers).await;
    let guard = other.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let waited = began.elapsed();
    assert!(waited >= least, "after {waited:?}");
    assert!(waited < least + ms(400), "after {waited:?}");
    guard.release().await;
}

#[tokio::test]
async fn an_early_release_keeps_the_lock_until_the_time_has_passed() {
    let (servers, locker) = three().await;
    let request = once(&locker, "k").ttl(ms(300)).hold_at_least(ms(1200));
    let guard = request.acquire().await.unwrap();
    let began = Instant::now();
    assert!(guard.valid_for() <= ms(300), "the validity is that of the TTL: {:?}", guard.valid_for());
    match guard.release().await {
        Released::Kept { free_in } => assert!(free_in > ms(700) && free_in <= ms(1200), "{free_in:?}"),
        other => panic!("{other:?}"),
    }
    match once(&locker, "k").acquire().await {
        Err(AcquireError::Held { free_in, .. }) => assert!(free_in > ms(400) && free_in <= ms(1210), "{free_in:?}"),
        other => panic!("{other:?}"),
    }
    next_gets_it(&servers, began, ms(1200)).await;
}

/// An attempt is over with the first refusal then, which does not say when a majority is free.
#[tokio::test]
async fn the_time_to_the_expiry_is_right_also_while_a_server_is_away() {
    let (servers, locker) = three().await;
    servers[0].process().kill().unwrap();
    let guard = once(&locker, "k").ttl(ms(300)).hold_at_least(ms(1200)).acquire().await.unwrap();
    let began = Instant::now();
    guard.release().await;
    for _ in 0..5 {
        tokio::time::sleep(ms(100)).await;
        let passed = began.elapsed();
        match once(&locker, "k").acquire().await {
            Err(AcquireError::Held { free_in, .. }) => {
                assert!(free_in + passed <= ms(1215), "{free_in:?} after {passed:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The keys then live longer than asked for, so the release makes them end earlier.
#[tokio::test]
async fn a_long_ttl_does_not_make_it_longer() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(LONGEST).hold_at_least(ms(500)).acquire().await.unwrap();
    let began = Instant::now();
    guard.verify().await.unwrap();
    assert!(matches!(guard.release().await, Released::Kept { free_in } if free_in <= ms(500)));
    next_gets_it(&servers, began, ms(500)).await;
}

#[tokio::test]
async fn a_dropped_guard_keeps_the_lock_too_and_a_late_release_frees_it_at_once() {
    let (servers, locker) = three().await;
    let request = once(&locker, "k").ttl(ms(400)).hold_at_least(ms(900));
    let guard = request.clone().acquire().await.unwrap();
    let began = Instant::now();
    drop(guard);
    next_gets_it(&servers, began, ms(900)).await;
    let guard = request.acquire().await.unwrap();
    tokio::time::sleep(ms(950)).await;
    assert_eq!(guard.release().await, Released::Majority);
    assert_eq!(locked(&servers, "k"), 0);
}

/// Two machines start a task at the same moment while one of three servers is stopped: each can take a server from the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_requests_at_the_same_moment_one_gets_the_lock_also_without_one_server() {
    let page = std::fs::read_to_string(redislease_lab::repository().join("docs/lock.md")).unwrap();
    assert!(page.contains(".hold_at_least(Duration::from_secs(20)).wait(Duration::from_secs(5)).acquire().await"));
    let servers = servers(3);
    // The first attempts wait for the stopped server.
    let machines = [0, 1].map(|_| builder(&servers).command_timeout(ms(150)).build().unwrap());
    for machine in &machines {
        all_up(machine).await;
    }
    pause(&servers[2..]).unwrap();
    let mut rounds = Vec::new();
    for round in 0..40 {
        let key = format!("report-{round}");
        // The same, with shorter times. The task takes none.
        rounds.push(machines.each_ref().map(|machine| {
            let turn = machine.lock(&key).hold_at_least(LONGEST).wait(LONGEST * 4 / 5);
            tokio::spawn(async { Ok::<_, AcquireError>(turn.acquire().await?.release().await) })
        }));
        tokio::time::sleep(ms(50)).await;
    }
    for (round, turns) in rounds.into_iter().enumerate() {
        let mut run = 0;
        for turn in turns {
            match turn.await.unwrap() {
                Ok(released) => {
                    run += 1;
                    assert!(matches!(released, Released::Kept { .. }), "round {round}: {released:?}");
                }
                Err(AcquireError::TimedOut { .. }) => {}
                Err(other) => panic!("round {round}: {other:?}"),
            }
        }
        assert_eq!(run, 1, "round {round}");
    }
    resume(&servers[2..]).unwrap();
}

/// As after a crash: nothing more is sent.
#[tokio::test]
async fn an_abandoned_lock_is_kept_by_its_ttl() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(ms(300)).hold_at_least(ms(1000)).acquire().await.unwrap();
    let began = Instant::now();
    guard.abandon();
    // The keys are a round trip older than the guard.
    next_gets_it(&servers, began + ms(30), ms(940)).await;
}

#[tokio::test]
async fn a_lock_that_the_program_never_got_is_not_kept() {
    let (servers, locker) = three().await;
    let mut unread = 0;
    for number in 0..20 {
        let key = format!("k{number}");
        let mut acquire = Box::pin(once(&locker, &key).hold_at_least(LONGEST).acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // On a busy machine the program may get it within the first poll.
        if Future::poll(acquire.as_mut(), &mut context).is_ready() {
            continue;
        }
        unread += 1;
        eventually("the lock to be won", || locked(&servers, &key) == 3).await;
        let dropped = Instant::now();
        drop(acquire);
        eventually("no key to be left", || locked(&servers, &key) == 0).await;
        assert!(dropped.elapsed() < LONGEST / 2, "{:?}", dropped.elapsed());
    }
    assert!(unread > 5, "{unread}");
}
