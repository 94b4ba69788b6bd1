//! A request that is cancelled leaves nothing.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use redislease_lab::RedisServer;
use redislease_locker::{AcquireError, Guard, Locker};

use crate::support::{LONGEST, PATIENCE, confirmed, eventually, locked, ms, on, once, servers, three};

type Acquire = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>>>>;

/// How often every future is dropped at every moment: what the servers have done until then varies.
const ROUNDS: usize = 10;

/// Polls `acquire` when it is woken, and drops it at a moment: 0 is before the first poll and 1 after it, 2 is before the second
/// poll, when the future was woken, and so on. Returns the guard if the request ends before.
async fn dropped_at(moment: usize, acquire: impl Future<Output = Result<Guard, AcquireError>>) -> Option<Guard> {
    let mut acquire = Box::pin(acquire);
    let mut passed = 0;
    poll_fn(move |context| {
        if passed == moment {
            return Poll::Ready(None);
        }
        if let Poll::Ready(done) = acquire.as_mut().poll(context) {
            return Poll::Ready(Some(done.unwrap()));
        }
        passed += 2;
        if passed > moment { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Asserts that the keys are gone after one round trip to each server, on the connections that carry the release.
async fn gone_soon(servers: &[RedisServer], locker: &Locker, key: &str, after: &str) {
    locker.inspect(key).await;
    assert_eq!(locked(servers, key), 0, "servers that still have {key} one round trip {after}");
}

#[tokio::test]
async fn a_future_that_is_dropped_at_any_poll_leaves_no_key() {
    let (servers, locker) = three().await;
    let mut cancelled = 0;
    for moment in 0.. {
        let mut acquired = 0;
        for round in 0..ROUNDS {
            let [first, second] = [1, 2].map(|key| format!("k{moment}-{round}-{key}"));
            let guard = dropped_at(moment, locker.lock_all([&first, &second]).try_acquire()).await;
            acquired += usize::from(guard.is_some());
            drop(guard);
            for key in [first, second] {
                gone_soon(&servers, &locker, &key, &format!("after moment {moment}")).await;
            }
        }
        cancelled += ROUNDS - acquired;
        if acquired == ROUNDS {
            break;
        }
    }
    // Before the first poll, and after it: on a busy machine, the answer may have come by then.
    assert!(cancelled > ROUNDS, "{cancelled}");
}

/// The request waits for another program, tries again, and gets the lock at a moment at which its future may be dropped.
#[tokio::test]
async fn a_waiting_future_that_is_dropped_at_any_poll_leaves_only_the_keys_of_the_holder() {
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    let mut cancelled = 0;
    for moment in 0.. {
        let mut acquired = 0;
        for round in 0..ROUNDS {
            let key = format!("k{moment}-{round}");
            let holder = once(&other, &key).acquire().await.unwrap();
            let release = tokio::spawn(async move {
                tokio::time::sleep(ms(20)).await;
                assert_eq!(holder.verify().await, Ok(holder.token()));
                holder.release().await
            });
            let guard = dropped_at(moment, locker.lock(&key).wait(PATIENCE).acquire()).await;
            acquired += usize::from(guard.is_some());
            drop(guard);
            release.await.unwrap();
            gone_soon(&servers, &locker, &key, &format!("after moment {moment}")).await;
        }
        cancelled += ROUNDS - acquired;
        if acquired == ROUNDS {
            break;
        }
    }
    assert!(cancelled >= 3 * ROUNDS, "{cancelled}");
}

#[tokio::test]
async fn a_lock_that_is_won_when_nobody_waits_any_more_is_released() {
    let (servers, locker) = three().await;
    let mut unread = 0;
    for _ in 0..50 {
        let mut acquire = Box::pin(once(&locker, "k").acquire());
        let mut context = Context::from_waker(Waker::noop());
        // On a busy machine the lock may be won within the first poll.
        if acquire.as_mut().poll(&mut context).is_pending() {
            unread += 1;
            // The answer is not read.
            eventually("the lock to be won", || confirmed(&servers, "k") == 3).await;
        }
        drop(acquire);
        gone_soon(&servers, &locker, "k", "after it was won").await;
    }
    assert!(unread > 10, "{unread}");
}

/// A request that has won, and whose future is not polled again. `None` if it was won within the first poll, on a busy machine.
async fn won_and_unread(servers: &[RedisServer], acquire: &mut Acquire) -> Option<()> {
    let mut context = Context::from_waker(Waker::noop());
    if acquire.as_mut().poll(&mut context).is_ready() {
        return None;
    }
    eventually("the lock to be won", || confirmed(servers, "k") == 3).await;
    Some(())
}

/// Nobody has begun to work: only the keys of a guard are left to their TTL.
#[tokio::test]
async fn a_lock_that_is_won_when_the_locker_is_shut_down_is_released() {
    let mut unread = 0;
    let servers = servers(3);
    for is_read_later in [true, false, true, false, true, false] {
        let locker = on(&servers).await;
        let mut acquire: Acquire = Box::pin(once(&locker, "k").ttl(LONGEST).acquire());
        if won_and_unread(&servers, &mut acquire).await.is_none() {
            continue;
        }
        unread += 1;
        locker.shutdown().await;
        if is_read_later {
            assert!(matches!(acquire.await, Err(AcquireError::Closed)));
        } else {
            drop(acquire);
        }
        assert_eq!(locked(&servers, "k"), 0, "after the shutdown; read later: {is_read_later}");
    }
    assert!(unread >= 2, "{unread}");
}

/// The same for a request that had to wait, whose attempts run on another thread.
#[tokio::test]
async fn a_lock_that_is_won_after_a_wait_when_the_locker_is_shut_down_is_released() {
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    let holder = once(&other, "k").acquire().await.unwrap();
    let mut acquire: Acquire = Box::pin(locker.lock("k").ttl(LONGEST).wait(PATIENCE).acquire());
    assert!(tokio::time::timeout(ms(50), &mut acquire).await.is_err(), "it did not wait");
    holder.release().await;
    eventually("the lock to be won", || confirmed(&servers, "k") == 3).await;
    locker.shutdown().await;
    assert!(matches!(acquire.await, Err(AcquireError::Closed)));
    assert_eq!(locked(&servers, "k"), 0);
}

/// The shutdown has begun, and the thread of the nodes may not know it yet.
#[tokio::test]
async fn a_lock_that_is_read_after_the_call_of_shutdown_is_released() {
    let mut unread = 0;
    let servers = servers(3);
    for _ in 0..10 {
        let locker = on(&servers).await;
        let mut acquire: Acquire = Box::pin(once(&locker, "k").ttl(LONGEST).acquire());
        if won_and_unread(&servers, &mut acquire).await.is_none() {
            continue;
        }
        unread += 1;
        let mut shutdown = Box::pin(locker.shutdown());
        let mut context = Context::from_waker(Waker::noop());
        let is_over = shutdown.as_mut().poll(&mut context).is_ready();
        let answer = match acquire.as_mut().poll(&mut context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => acquire.await,
        };
        assert!(matches!(answer, Err(AcquireError::Closed)), "{answer:?}");
        if !is_over {
            shutdown.await;
        }
        assert_eq!(locked(&servers, "k"), 0);
    }
    assert!(unread >= 3, "{unread}");
}

/// Its program has forgotten it, as in a `select!` in a loop that waits for something else.
#[tokio::test]
async fn a_lock_whose_future_is_not_polled_any_more_is_released_after_one_ttl() {
    let (servers, locker) = three().await;
    let request = || locker.lock("k").ttl(ms(400));
    let holder = once(&on(&servers).await, "k").acquire().await.unwrap();
    // One that wins its first attempt, and one whose attempts run on another thread.
    let mut waits: Acquire = Box::pin(request().wait(PATIENCE).acquire());
    assert!(tokio::time::timeout(ms(50), &mut waits).await.is_err(), "it did not wait");
    holder.release().await;
    let mut wins: Acquire = Box::pin(request().wait(PATIENCE).acquire());
    eventually("the lock to be won", || confirmed(&servers, "k") == 3).await;
    gone_and_acquired_again(&servers, &mut waits).await;
    if won_and_unread(&servers, &mut wins).await.is_some() {
        gone_and_acquired_again(&servers, &mut wins).await;
    }
}

/// The request goes on when its future is polled again.
async fn gone_and_acquired_again(servers: &[RedisServer], acquire: &mut Acquire) {
    let won = Instant::now();
    eventually("the keys to be gone", || locked(servers, "k") == 0).await;
    assert!(won.elapsed() < ms(2000), "{:?}", won.elapsed());
    let guard = acquire.await.unwrap();
    guard.check().unwrap();
    guard.release().await;
}

#[tokio::test]
async fn a_waiting_request_that_is_cancelled_leaves_the_lock_to_the_next() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let mut first = tokio::spawn(locker.lock("k").wait(PATIENCE).acquire());
    let second = tokio::spawn(locker.lock("k").wait(PATIENCE).acquire());
    assert!(tokio::time::timeout(ms(50), &mut first).await.is_err(), "it did not wait");
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(guard);
    let next = second.await.unwrap().unwrap();
    drop(next);
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
}
