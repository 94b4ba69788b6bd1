//! From notes on SETNX and Redlock: what is left of `SETNX foo bar` after the process restarts, and after a server restarts without
//! its data.
//!
//! ```text
//! cargo run -p redislease-locker --example restarts -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
//! ```

use std::error::Error;
use std::time::Duration;

use redislease_locker::{AcquireError, InvalidConfig, Locker};

pub(crate) async fn story(
    urls: Vec<String>,
    ttl: Duration,
    restart_first_server: impl AsyncFnOnce(),
) -> Result<(), Box<dyn Error>> {
    // Each process has a Locker of its own.
    let process = || -> Result<Locker, InvalidConfig> { Locker::builder(urls.clone()).longest_lease(ttl).build() };
    let first = process()?;
    first.ready(ttl * 3).await?;

    // The process ends without an unlock. After SETNX without EXPIRE, nobody gets the lock any more.
    first.lock("foo").owner("bar").ttl(ttl).acquire().await?.abandon();
    drop(first);

    // It starts again: the keys of the process before it expire.
    let again = process()?;
    again.ready(ttl * 3).await?;
    loop {
        match again.lock("foo").try_acquire().await {
            Err(AcquireError::Held { by, free_in, .. }) => break println!("held by {by} for another {free_in:?}"),
            // A server that has the key is not connected yet, and the others do not show who holds the lock.
            Err(AcquireError::TooSlow { .. }) => tokio::time::sleep(ttl / 100).await,
            other => return Err(format!("the lock was not held: {other:?}").into()),
        }
    }
    let guard = again.lock("foo").ttl(ttl).wait(ttl * 2).acquire().await?;

    // A server restarts without its data. It does not vote for one longest lease, so no majority gives the lock to another process.
    let other = process()?;
    other.ready(ttl * 3).await?;
    restart_first_server().await;
    let refused = other.lock("foo").wait(ttl * 2).acquire().await;
    assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
    assert_eq!(guard.verify().await?, guard.token());
    guard.release().await;
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    let by_hand = async || {
        println!("restart the first server without its data, and press Enter");
        let _ = std::io::stdin().read_line(&mut String::new());
    };
    story(std::env::args().skip(1).collect(), Duration::from_secs(10), by_hand).await
}
