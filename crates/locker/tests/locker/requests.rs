//! What a request accepts, and what it returns.

use std::time::{Duration, Instant};

use redislease_locker::{AcquireError, Inspection, Lost, NodeState, NotReady, Released, Retry};

use crate::support::{LONGEST, PATIENCE, builder, eventually, locked, ms, no_majority, on, once, servers, three};

#[tokio::test]
async fn invalid_values_are_refused_with_a_sentence() {
    let locker = builder(&servers(1)).build().unwrap();
    let keys = || (0..9).map(|key| key.to_string());
    for (request, part) in [
        (locker.lock("k").ttl(LONGEST + ms(1)), "longest_lease"),
        (locker.lock("k").ttl(ms(1)), r#"key "k": ttl is 1ms: use 200ms"#),
        (locker.lock("k").renew_every(LONGEST / 2), "renew_every 750ms"),
        (locker.lock("k").stop_budget(LONGEST), "stop_budget"),
        (locker.lock(""), "0 bytes"),
        (locker.lock("k".repeat(513)), "513 bytes"),
        (locker.lock("k").owner("a\nb"), r#"key "k": owner is "a\nb": use a name without line breaks"#),
        (locker.lock("k").owner(""), r#"key "k": owner is "": use a name"#),
        (locker.lock_all(keys()), "9 keys"),
        (locker.lock_all(["a", "a"]), "named twice"),
        (
            locker.lock("k").ttl(LONGEST + Duration::from_nanos(1)),
            r#"key "k": ttl is 1.500000001s: use 200ms to 1s500ms"#,
        ),
        (locker.lock("k").renew_every(Duration::ZERO), "renew_every is 0s: use at least 10ms"),
        (locker.lock("k").renew_every(ms(9)), r#"key "k": renew_every is 9ms: use at least 10ms"#),
        (locker.lock("k").renew_every(Duration::MAX), ": use a shorter renew_every or stop_budget"),
        (
            locker.lock("k").stop_budget(LONGEST),
            ": use a shorter stop_budget, or a ttl of at least 2s and a longer longest_lease",
        ),
        (locker.lock("k").max_hold(Duration::ZERO), r#"key "k": max_hold is 0s: use at least 1ms"#),
        (
            locker.lock("k").hold_at_least(LONGEST + ms(1)),
            r#"key "k": hold_at_least is 1s501ms: use up to 1s500ms, the longest_lease"#,
        ),
        (locker.lock("k").attempts(0), r#"key "k": attempts is 0: use at least 1"#),
        (locker.lock_all(["b", "a"]).stop_budget(LONGEST), r#"key "b": ttl is 1s500ms, which has no room"#),
        (locker.lock("n".repeat(512)).ttl(ms(1)), "n\"...: ttl is 1ms"),
        (locker.lock("é".repeat(1_000_000)), "é\"... has 2000000 bytes: use 1 to 512"),
    ] {
        match request.clone().acquire().await {
            Err(error @ AcquireError::Invalid { .. }) => {
                let text = error.to_string();
                assert!(text.contains(part) && text.len() < 250, "{text}");
            }
            other => panic!("{request:?} gave {other:?}"),
        }
    }
    match locker.lock("k").acquire_blocking() {
        Err(AcquireError::Invalid { problem, .. }) => assert!(problem.contains("acquire().await"), "{problem}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_lockers_in_one_process_exclude_each_other_and_the_owner_is_named() {
    let (servers, first) = three().await;
    let second = on(&servers).await;
    let guard = first.lock("k").owner("worker 1").acquire().await.unwrap();
    match once(&second, "k").acquire().await {
        Err(AcquireError::Held { key, by, free_in }) => {
            assert_eq!((key.as_str(), by.as_str()), ("k", "worker 1"));
            assert!(free_in <= LONGEST + ms(50), "{free_in:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        second.lock("k").try_acquire().await.map(drop).map_err(|error| matches!(error, AcquireError::Held { .. })),
        Err(true)
    );
    let other = once(&second, "other").acquire().await.unwrap();
    assert!(other.token() > guard.token());
    assert_eq!(guard.release().await, Released::Majority);
    let next = once(&second, "k").acquire().await.unwrap();
    assert!(next.token() > other.token());
}

#[tokio::test]
async fn a_lock_is_not_reentrant_and_a_waiting_request_gets_it_at_the_release() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    match once(&locker, "k").acquire().await {
        Err(error @ AcquireError::AlreadyHeldHere { .. }) => assert!(error.to_string().contains("not reentrant")),
        other => panic!("{other:?}"),
    }
    // With a delay this long, only the release can wake it.
    let waits = locker.lock("k").wait(PATIENCE).retry(Retry::Constant(PATIENCE / 3)).ttl(LONGEST);
    let mut waiting = tokio::spawn(waits.acquire());
    assert!(tokio::time::timeout(ms(100), &mut waiting).await.is_err(), "it did not wait");
    let token = guard.token();
    let began = Instant::now();
    guard.release().await;
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token && began.elapsed() < ms(1000), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_request_that_waits_in_vain_says_how_long_and_why() {
    let (_servers, locker) = three().await;
    let _guard = locker.lock("k").acquire().await.unwrap();
    let began = Instant::now();
    match locker.lock("k").wait(ms(300)).acquire().await {
        Err(AcquireError::TimedOut { waited, last }) => {
            assert_eq!(waited, ms(300));
            assert!(matches!(*last, AcquireError::AlreadyHeldHere { .. }), "{last:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < PATIENCE / 4);
    let error = locker.lock("k").wait(PATIENCE).retry(Retry::None).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::AlreadyHeldHere { .. }), "one attempt: {error:?}");
}

/// An end of the wait that overflows would be in the past.
#[tokio::test]
async fn a_request_may_wait_for_the_longest_time_that_there_is() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let mut waiting = tokio::spawn(locker.lock("k").wait(Duration::MAX).acquire());
    assert!(tokio::time::timeout(ms(300), &mut waiting).await.is_err(), "it did not wait");
    guard.release().await;
    waiting.await.unwrap().unwrap().release().await;
}

#[tokio::test]
async fn a_request_makes_as_many_attempts_as_it_may() {
    let (_servers, locker) = three().await;
    let _guard = locker.lock("k").acquire().await.unwrap();
    let began = Instant::now();
    let request = locker.lock("k").wait(PATIENCE).retry(Retry::Constant(ms(200))).attempts(3);
    let error = request.acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::AlreadyHeldHere { .. }), "{error:?}");
    // Two delays of half to all of 200 ms.
    assert!((ms(200)..PATIENCE / 4).contains(&began.elapsed()), "{:?}", began.elapsed());
    let error = locker.lock("k").attempts(0).check().unwrap_err();
    assert_eq!(error.to_string(), r#"key "k": attempts is 0: use at least 1"#);
}

/// A guard that ends can leave the keys to their TTL. A request that is woken then would be refused once more.
#[tokio::test]
async fn the_end_of_a_guard_that_deletes_no_keys_costs_a_request_no_attempt() {
    let (_servers, locker) = three().await;
    let waits = |key: &str| {
        let slow = Retry::Constant(PATIENCE / 3);
        tokio::spawn(locker.lock(key).wait(PATIENCE).retry(slow).attempts(2).ttl(LONGEST).acquire())
    };
    let abandoned = once(&locker, "abandoned").acquire().await.unwrap();
    let lost = once(&locker, "lost").max_hold(ms(20)).acquire().await.unwrap();
    let kept = once(&locker, "kept").hold_at_least(LONGEST).acquire().await.unwrap();
    let waiting = ["abandoned", "lost", "kept"].map(waits);
    // Nothing tells that a request has been refused once. One that begins later makes the test easier, not wrong.
    tokio::time::sleep(ms(100)).await;
    abandoned.abandon();
    assert_eq!(lost.lost().await, Lost::MaxHold);
    drop(lost);
    assert!(matches!(kept.release().await, Released::Kept { .. }));
    // That nothing happens shows only after a while. The keys live for longer than this.
    tokio::time::sleep(ms(200)).await;
    assert_eq!(waiting.map(|waiting| waiting.is_finished()), [false; 3]);
}

#[tokio::test]
async fn without_a_majority_the_error_names_the_nodes() {
    let (servers, locker) = three().await;
    servers[0].process().kill().unwrap();
    eventually("the node to be down", || locker.nodes()[0].state == NodeState::Down).await;
    once(&locker, "k").acquire().await.unwrap().release().await;
    servers[1].process().kill().unwrap();
    eventually("the node to be down", || locker.nodes()[1].state == NodeState::Down).await;
    let text = no_majority(&locker).await;
    let [names, leaves_out] = [0, 2].map(|server: usize| servers[server].address().to_string());
    assert!(text.contains(&names) && !text.contains(&leaves_out), "{text}");
}

#[tokio::test]
async fn keys_together_are_all_or_none() {
    let (servers, locker) = three().await;
    let one = once(&locker, "b").owner("worker 1").acquire().await.unwrap();
    let error = locker.lock_all(["a", "b"]).try_acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::AlreadyHeldHere { key: "b".into() }, "the key that is held is named");
    match on(&servers).await.lock_all(["c", "b", "a"]).try_acquire().await {
        Err(AcquireError::Held { key, by, .. }) => assert_eq!((key.as_str(), by.as_str()), ("b", "worker 1")),
        other => panic!("{other:?}"),
    }
    eventually("the failed attempt to be gone", || locked(&servers, "a") == 0).await;
    one.release().await;
    let both = locker.lock_all(["a", "b"]).try_acquire().await.unwrap();
    assert!(once(&locker, "a").acquire().await.is_err() && once(&locker, "b").acquire().await.is_err());
    assert_eq!(both.release().await, Released::Majority);
    assert_eq!((locked(&servers, "a"), locked(&servers, "b")), (0, 0));
}

/// Requests that share one of several keys with a guard of the same Locker.
#[tokio::test]
async fn a_guard_of_several_keys_is_known_by_each_of_them_and_its_release_wakes_who_waits_for_one() {
    let (_servers, locker) = three().await;
    let guard = locker.lock_all(["a", "b"]).try_acquire().await.unwrap();
    for request in [locker.lock("b"), locker.lock_all(["c", "a"])] {
        match request.try_acquire().await {
            Err(AcquireError::AlreadyHeldHere { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    // With delays this long, only the release can wake them.
    let slow = Retry::Constant(PATIENCE / 3);
    let requests = [locker.lock("b"), locker.lock_all(["c", "a"])];
    let waiting = requests.map(|request| tokio::spawn(request.wait(PATIENCE).retry(slow).ttl(LONGEST).acquire()));
    tokio::time::sleep(ms(100)).await;
    let began = Instant::now();
    guard.release().await;
    for next in waiting {
        next.await.unwrap().unwrap().release().await;
    }
    assert!(began.elapsed() < ms(1000), "{:?}", began.elapsed());
}

/// Without a name of its own, this failure looks as if another attempt had collided, for ever.
#[tokio::test]
async fn a_value_of_another_program_is_named() {
    let (servers, locker) = three().await;
    let key = "redislease:lock:default/k";
    for (command, value) in [("SET", "theirs"), ("RPUSH", "theirs")] {
        for server in &servers[..2] {
            server.command(&[command, key, value]).unwrap();
        }
        let error = locker.lock_all(["other", "k"]).try_acquire().await.unwrap_err();
        assert_eq!(error, AcquireError::Foreign { key: key.to_owned() });
        assert!(error.to_string().contains(
            "\"redislease:lock:default/k\" has a value that this library did not write, or no time to live: delete"
        ));
        match locker.lock("k").wait(ms(100)).acquire().await {
            Err(AcquireError::TimedOut { last, .. }) => assert_eq!(*last, error),
            other => panic!("{other:?}"),
        }
        for server in &servers[..2] {
            server.command(&["DEL", key]).unwrap();
        }
    }
    locker.lock("k").acquire().await.unwrap().release().await;
}

/// A reply that is too long would end the connection, and with it the renewals of all locks.
#[tokio::test]
async fn a_long_value_of_another_program_is_named_too() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let value = "x".repeat(1 << 20);
    for server in &servers {
        server.command(&["SET", "redislease:lock:default/long", &value]).unwrap();
    }
    let error = once(&locker, "long").acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::Foreign { key: "redislease:lock:default/long".to_owned() });
    guard.verify().await.unwrap();
    guard.release().await;
}

#[tokio::test]
async fn a_program_with_another_longest_lease_is_refused_with_a_sentence() {
    let (servers, _locker) = three().await;
    let locker = builder(&servers).longest_lease(Duration::from_secs(2)).build().unwrap();
    eventually("the mismatch", || locker.nodes().iter().all(|node| node.state == NodeState::Misconfigured)).await;
    let text = no_majority(&locker).await;
    assert!(
        text.contains("longest_lease=1500ms, ours is 1:programs;") && text.contains("longest_lease=2000ms"),
        "{text}"
    );
    assert!(text.contains("change this program") && !text.contains("spec"), "{text}");
    assert!(text.contains("delete the Redis key `redislease:marker` on every server"), "{text}");
}

#[test]
fn a_program_without_a_runtime_can_lock() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_servers, locker) = runtime.block_on(three());
    drop(runtime);
    let guard = locker.lock("k").acquire_blocking().unwrap();
    assert_eq!(guard.check(), Ok(guard.token()));
    let token = guard.token();
    drop(guard);
    let guard = locker.lock("k").acquire_blocking().unwrap();
    assert!(guard.token() > token);
}

#[tokio::test]
async fn a_shutdown_closes_requests_and_guards() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let waiting = tokio::spawn(locker.lock("k").wait(PATIENCE).acquire());
    locker.shutdown().await;
    assert_eq!(guard.check(), Err(Lost::Closed));
    assert_eq!(guard.lost().await, Lost::Closed);
    assert_eq!(guard.release().await, Released::AlreadyLost(Lost::Closed));
    assert_eq!(waiting.await.unwrap().map(drop), Err(AcquireError::Closed));
    assert_eq!(once(&locker, "k").acquire().await.map(drop), Err(AcquireError::Closed));
    assert_eq!(locker.ready(PATIENCE).await, Err(NotReady::Closed));
    assert_eq!(locker.inspect("k").await, Inspection::Closed);
}

/// A request waits for its next try, a guard runs work, and nothing polls: both end when the Locker is shut down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_long_waits_and_work_at_once() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let long = locker.lock("k").wait(Duration::from_mins(1)).retry(Retry::Constant(Duration::from_secs(50)));
    let mut waiting = tokio::spawn(long.acquire());
    let working = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    assert!(tokio::time::timeout(ms(300), &mut waiting).await.is_err(), "it did not wait");
    let began = Instant::now();
    locker.shutdown().await;
    assert_eq!(waiting.await.unwrap().map(drop), Err(AcquireError::Closed));
    assert_eq!(working.await.unwrap(), Err(Lost::Closed));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// The last step of the work blocks its thread until the lock has expired, as a long computation does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_after_the_lock_is_not_done() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").max_hold(Duration::from_millis(200)).acquire().await.unwrap();
    let done = guard.run(async { std::thread::sleep(Duration::from_millis(600)) }).await;
    assert_eq!(done, Err(Lost::MaxHold));
}
