//! From Redisson: `tryLock(wait, lease)`, `lock()` with the watchdog, `isLocked`, and a MultiLock.
//!
//! ```text
//! cargo run --example redisson -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
//! ```

use std::error::Error;
use std::time::Duration;

use redislease_locker::{AcquireError, Inspection, Locker, Lost};

pub(crate) async fn story(urls: Vec<String>, lease: Duration) -> Result<(), Box<dyn Error>> {
    let locker = Locker::builder(urls).longest_lease(lease).build()?;
    locker.ready(lease * 3).await?;

    // tryLock(wait, lease): with a lease there is no watchdog there. Here `max_hold` ends the lock, and the guard says so.
    let short = lease / 5;
    let guard = locker.lock("account").wait(lease).ttl(short).max_hold(short).acquire().await?;
    let ended = guard.run(std::future::pending::<()>()).await;
    assert_eq!(ended, Err(Lost::MaxHold), "the work is dropped");
    drop(guard);

    // lock() with the watchdog: it is renewed until the guard ends, here for longer than its TTL.
    let guard = locker.lock("account").ttl(lease / 2).wait(lease * 2).acquire().await?;
    tokio::time::sleep(lease).await;
    assert_eq!(guard.check(), Ok(guard.token()));

    // isLocked(): by whom, and for how long.
    match locker.inspect("account").await {
        Inspection::Held { owner, token, .. } => println!("held by {owner} with token {token}"),
        other => return Err(format!("it is held: {other:?}").into()),
    }
    // It is not reentrant: pass the guard on instead.
    let again = locker.lock("account").try_acquire().await;
    assert!(matches!(again, Err(AcquireError::AlreadyHeldHere { .. })), "{again:?}");
    guard.release().await;

    // A MultiLock: all or none, with one guard and one token.
    let both = locker.lock_all(["account", "audit"]).acquire().await?;
    both.run(async { println!("write both with token {}", both.token()) }).await?;
    both.release().await;
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    story(std::env::args().skip(1).collect(), Duration::from_secs(10)).await
}
