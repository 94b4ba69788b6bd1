//! The first program of the documentation.

use std::time::Duration;

use redislease_locker::Locker;

use crate::support::{eventually, locked_in, servers, urls};

/// Work that takes no time.
async fn work(token: u64) -> u64 {
    tokio::task::yield_now().await;
    token
}

#[tokio::test]
async fn the_first_program_runs_as_it_is_written() -> Result<(), Box<dyn std::error::Error>> {
    let running = servers(3);
    let servers = urls(&running);

    let locker = Locker::builder(servers).namespace("shop").longest_lease(Duration::from_secs(2)).build()?;
    locker.ready(Duration::from_secs(20)).await?;
    let guard = locker.lock("my-key").ttl(Duration::from_secs(2)).wait(Duration::from_secs(10)).acquire().await?;
    let token = guard.run(work(guard.token())).await?;
    // A majority is enough for the lock; the third server may grant a little later.
    eventually("the key on all servers", || locked_in(&running, "shop", "my-key") == 3).await;
    guard.release().await;

    let later = locker.lock("my-key").acquire().await?;
    assert!(later.token() > token && token > 0);
    later.release().await;
    eventually("the release", || locked_in(&running, "shop", "my-key") == 0).await;
    Ok(())
}

#[tokio::test]
async fn servers_that_are_not_ready_are_named_with_the_time_they_wait() {
    let running = servers(3);
    let locker = Locker::builder(urls(&running)).longest_lease(Duration::from_secs(30)).build().unwrap();
    running[2].process().kill().unwrap();
    let error = locker.ready(Duration::from_secs(1)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("no majority of the 3 Redis nodes votes after 1s: node"), "{text}");
    assert!(text.contains("it votes in 2") || text.contains("it votes in 3"), "{text}");
    assert!(!text.contains("RedisQuorum") && !text.contains("spec"), "{text}");
}
