//! A request that is cancelled leaves nothing.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redislease_locker::{AcquireError, Guard};

use crate::support::{eventually, locked, ms, once, three};

/// Polls `acquire` every 20 µs for `span`, and then drops it. Returns its result if it was ready.
fn for_a_while(acquire: impl Future<Output = Result<Guard, AcquireError>>, span: Duration) -> Option<Guard> {
    let mut acquire = pin!(acquire);
    let began = Instant::now();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = acquire.as_mut().poll(&mut context) {
            return Some(done.unwrap());
        }
        if began.elapsed() >= span {
            return None;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

#[tokio::test]
async fn a_future_that_is_dropped_at_any_moment_leaves_no_key() {
    let (servers, locker) = three().await;
    let (mut cancelled, mut acquired) = (0, 0);
    // From the first poll to long after the answer, in steps that are shorter than a round.
    for step in 0..200 {
        let key = format!("k{step}");
        let guard = for_a_while(once(&locker, &key).acquire(), Duration::from_micros(25 * step));
        match guard {
            Some(guard) => {
                acquired += 1;
                drop(guard);
            }
            None => cancelled += 1,
        }
        let dropped = Instant::now();
        eventually("no key to be left", || locked(&servers, &key) == 0).await;
        // Far less than the TTL, with tolerance for a busy machine.
        assert!(dropped.elapsed() < ms(700), "after {step} steps: {:?}", dropped.elapsed());
    }
    assert!(cancelled > 20, "{cancelled} cancelled, {acquired} acquired");
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
            // The lock is won, and the answer is not read.
            eventually("the lock to be won", || locked(&servers, "k") == 3).await;
        }
        drop(acquire);
        eventually("no key to be left", || locked(&servers, "k") == 0).await;
    }
    assert!(unread > 10, "{unread}");
}

#[tokio::test]
async fn a_waiting_request_that_is_cancelled_leaves_the_lock_to_the_next() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let mut first = tokio::spawn(locker.lock("k").wait(crate::support::PATIENCE).acquire());
    let second = tokio::spawn(locker.lock("k").wait(crate::support::PATIENCE).acquire());
    assert!(tokio::time::timeout(ms(50), &mut first).await.is_err(), "it did not wait");
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(guard);
    let next = second.await.unwrap().unwrap();
    drop(next);
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
}
