//! Guards that are dropped at unusual moments.

use std::task::{Context, Waker};
use std::time::Instant;

use redislease_locker::Lost;

use crate::support::{LONGEST, builder, eventually, locked, ms, once, servers, three};

#[test]
fn a_guard_is_dropped_without_a_runtime_and_after_its_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (servers, locker) = runtime.block_on(three());
    let guard = runtime.block_on(once(&locker, "k").acquire()).unwrap();
    drop(runtime);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(eventually("the release", || locked(&servers, "k") == 0));
}

#[tokio::test]
async fn a_guard_outlives_its_locker_and_is_renewed() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(ms(400)).acquire().await.unwrap();
    drop(locker);
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(guard.check(), Ok(guard.token()));
    drop(guard);
    eventually("the release", || locked(&servers, "k") == 0).await;
}

/// Its work may still go on, so the keys live to their TTL.
#[tokio::test]
async fn a_guard_that_is_dropped_during_or_after_a_shutdown_deletes_no_keys() {
    let (servers, locker) = three().await;
    let began = Instant::now();
    let during = once(&locker, "during").ttl(LONGEST).acquire().await.unwrap();
    let after = once(&locker, "after").ttl(LONGEST).acquire().await.unwrap();
    let mut shutdown = Box::pin(locker.shutdown());
    assert!(shutdown.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(during);
    shutdown.await;
    assert_eq!(after.check(), Err(Lost::Closed));
    drop(after);
    eventually("keys to expire", || ["during", "after"].iter().any(|key| locked(&servers, key) < 2)).await;
    assert!(began.elapsed() + ms(20) >= LONGEST, "{:?}", began.elapsed());
    eventually("all keys to expire", || locked(&servers, "during") + locked(&servers, "after") == 0).await;
}

#[tokio::test]
async fn the_thread_ends_with_the_last_guard() {
    let running = servers(1);
    let locker = builder(&running).namespace("thread-ends").build().unwrap();
    locker.ready(crate::support::PATIENCE).await.unwrap();
    // The operating system truncates names of threads.
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "redis thread-en").count()
    };
    assert_eq!(threads(), 1);
    let guard = once(&locker, "k").acquire().await.unwrap();
    drop(locker);
    assert_eq!(threads(), 1);
    drop(guard);
    eventually("the thread to end", || threads() == 0).await;
}
