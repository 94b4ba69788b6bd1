//! From notes on SETNX and Redlock: several processes that try again at random, and a scheduled task of which only one instance
//! runs.
//!
//! ```text
//! cargo run -p redislease-locker --example scheduled_task -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redislease_locker::{AcquireError, Locker, Released, Retry};

pub(crate) async fn story(urls: Vec<String>, longest: Duration) -> Result<(), Box<dyn Error>> {
    // Two machines, each with its own Locker.
    let machines = [urls.clone(), urls].map(|urls| Locker::builder(urls).longest_lease(longest).build());
    let [first, second] = machines;
    let (first, second) = (first?, second?);
    first.ready(longest * 3).await?;
    second.ready(longest * 3).await?;
    both_in_turn(&first, &second, longest).await?;
    one_run(&first, &second, longest).await
}

/// Both want the lock at the same time, and each tries again after a random delay: one is after the other.
async fn both_in_turn(first: &Locker, second: &Locker, longest: Duration) -> Result<(), Box<dyn Error>> {
    let inside = AtomicUsize::new(0);
    let work = async |locker: &Locker| {
        // A delay is random between half of this and this.
        let retry = Retry::Constant(Duration::from_millis(40));
        let guard = locker.lock("foo").wait(longest * 4).retry(retry).acquire().await?;
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        tokio::time::sleep(Duration::from_millis(20)).await;
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await;
        Ok::<(), AcquireError>(())
    };
    tokio::try_join!(work(first), work(second))?;
    Ok(())
}

/// The clocks of the machines differ, and the task takes less time than that. Without `hold_at_least` it would run twice. Two
/// attempts at the same moment can refuse each other, so each machine tries again for a while, which is shorter.
async fn one_run(first: &Locker, second: &Locker, longest: Duration) -> Result<(), Box<dyn Error>> {
    let due = |locker: &Locker| locker.lock("nightly").hold_at_least(longest).wait(longest / 5).acquire();
    let guard = due(first).await?;
    println!("the task runs on the first machine");
    assert!(matches!(guard.release().await, Released::Kept { .. }));
    match due(second).await {
        Err(error @ AcquireError::TimedOut { .. }) => println!("the second machine has nothing to do: {error}"),
        other => return Err(format!("the task would run twice: {other:?}").into()),
    }
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    story(std::env::args().skip(1).collect(), Duration::from_secs(10)).await
}
