//! From bsm/redislock: Obtain, ErrNotObtained, Token, Metadata, TTL, Refresh, Release, ErrLockNotHeld, and the retry strategies.
//!
//! ```text
//! cargo run -p redislease-locker --example redislock -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
//! ```

use std::error::Error;
use std::time::Duration;

use redislease_locker::{AcquireError, Inspection, Locker, Lost, Released, Retry};

pub(crate) async fn story(urls: Vec<String>, ttl: Duration) -> Result<(), Box<dyn Error>> {
    let locker = Locker::builder(urls).longest_lease(ttl * 2).build()?;
    locker.ready(ttl * 6).await?;

    // Obtain with Metadata. It waits for one TTL by default; `try_acquire` makes one attempt, as Obtain without a RetryStrategy.
    let mut guard = locker.lock("my-key").ttl(ttl).metadata("job 17").acquire().await?;
    println!("Token {}, TTL {:?}", guard.token(), guard.valid_for());
    match locker.inspect("my-key").await {
        Inspection::Held { metadata, .. } => assert_eq!(metadata, "job 17"),
        other => return Err(format!("it is held: {other:?}").into()),
    }

    // ErrNotObtained, with NoRetry and with the strategies.
    let no_retry = locker.lock("my-key").retry(Retry::None).acquire().await;
    assert!(matches!(no_retry, Err(AcquireError::AlreadyHeldHere { .. })), "{no_retry:?}");
    let (first, max) = (Duration::from_millis(10), Duration::from_millis(50));
    // LinearBackoff there is the constant delay here.
    for retry in [Retry::Constant(first), Retry::Linear { step: first, max }, Retry::Exponential { first, max }] {
        let refused = locker.lock("my-key").wait(ttl / 10).retry(retry).acquire().await;
        assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
    }

    // LimitRetry(strategy, 2): the first attempt counts too.
    let limited = locker.lock("my-key").retry(Retry::Constant(first)).attempts(3).acquire().await;
    assert!(matches!(limited, Err(AcquireError::AlreadyHeldHere { .. })), "{limited:?}");
    // The deadline of the context is `wait`. By default it is the ttl, as there.
    match locker.lock("my-key").ttl(ttl / 2).acquire().await {
        Err(AcquireError::TimedOut { waited, .. }) => assert_eq!(waited, ttl / 2),
        other => return Err(format!("it is held: {other:?}").into()),
    }

    // Refresh: the lock is renewed anyway. This makes it longer.
    guard.extend(ttl * 2).await?;
    assert!(guard.valid_for() > ttl);

    // Release, and ErrLockNotHeld of a lock that was lost before.
    assert_eq!(guard.release().await, Released::Majority);
    let lost = locker.lock("my-key").ttl(ttl).max_hold(ttl / 10).acquire().await?;
    lost.lost().await;
    assert_eq!(lost.release().await, Released::AlreadyLost(Lost::MaxHold));
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    story(std::env::args().skip(1).collect(), Duration::from_secs(10)).await
}
