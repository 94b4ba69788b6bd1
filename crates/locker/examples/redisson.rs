//! From Redisson: `tryLock(wait, lease)`, `lock()` with the watchdog, `isLocked`, a MultiLock, and the pause of a garbage collection.
//!
//! ```text
//! cargo run -p redislease-locker --example redisson -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
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
    paused(&locker, lease).await
}

/// A garbage collection stops the holder for longer than its lease. When it goes on, it writes.
async fn paused(locker: &Locker, lease: Duration) -> Result<(), Box<dyn Error>> {
    // The store keeps the greatest token, and refuses a write with a smaller one.
    let mut stored = (0, "");
    let mut write = |value, token| {
        let accepted = token >= stored.0;
        if accepted {
            stored = (token, value);
        }
        accepted
    };
    let guard = locker.lock("account").ttl(lease).acquire().await?;
    let token = guard.token();
    // A process that is paused renews nothing and notices nothing: it still has its token.
    guard.abandon();
    let next = locker.lock("account").wait(lease * 2).acquire().await?;
    assert!(write("next", next.token()));
    assert!(!write("late", token), "the store refuses the late write");
    assert_eq!(stored, (next.token(), "next"));
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    story(std::env::args().skip(1).collect(), Duration::from_secs(10)).await
}
