//! From Redlock in Go: a lock with an expiry of 10 s, which a second run cannot take until it is unlocked or has expired.
//!
//! ```text
//! cargo run -p redislease-locker --example redlock_go -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
//! ```

use std::error::Error;
use std::time::Duration;

use redislease_locker::{AcquireError, Locker};

/// `expiry` is 10 s in the story.
pub(crate) async fn story(urls: Vec<String>, expiry: Duration) -> Result<(), Box<dyn Error>> {
    let locker = Locker::builder(urls).longest_lease(expiry).build()?;
    locker.ready(expiry * 3).await?;
    let request = || locker.lock("report").ttl(expiry);

    // The first run ends without an unlock: nothing renews the lock any more, and its keys stay.
    request().acquire().await?.abandon();

    // The second run makes one attempt.
    match request().try_acquire().await {
        Err(AcquireError::Held { free_in, .. }) => println!("held for another {free_in:?}"),
        other => return Err(format!("the lock was not held: {other:?}").into()),
    }

    // 15 s later it works.
    tokio::time::sleep(expiry * 3 / 2).await;
    let guard = request().try_acquire().await?;
    println!("token {}", guard.token());
    guard.release().await;

    // After an unlock the next run gets it at once.
    request().try_acquire().await?.release().await;
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    story(std::env::args().skip(1).collect(), Duration::from_secs(10)).await
}
