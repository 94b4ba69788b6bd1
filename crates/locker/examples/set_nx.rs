//! From `SET key value NX PX`, a script that deletes the key only if the value is its own, and a second look before the write, all
//! on one server.
//!
//! ```text
//! cargo run -p redislease-locker --example set_nx -- redis://127.0.0.1:7001
//! ```

use std::error::Error;
use std::time::Duration;

use redislease_locker::{Locker, Lost, Released};

pub(crate) async fn story(url: String, ttl: Duration) -> Result<(), Box<dyn Error>> {
    // Without single_node() one server is an error: its loss is the loss of every lock.
    let locker = Locker::builder([url]).longest_lease(ttl).single_node().build()?;
    locker.ready(ttl * 3).await?;

    let guard = locker.lock("order-17").ttl(ttl).owner("worker 1").acquire().await?;
    // The second look is local and takes no time: do it before each write. `verify` asks the server.
    let token = guard.check()?;
    assert_eq!(guard.verify().await?, token);
    // The token replaces the random value of the script: it also orders the writes of two holders.
    println!("write with token {token}");
    // Deletes only the keys of this lock, never those of a later holder.
    assert_eq!(guard.release().await, Released::Majority);

    // The lock of a holder that was too slow is lost, and its release touches nothing.
    let slow = locker.lock("order-17").ttl(ttl).max_hold(ttl / 10).acquire().await?;
    let lost = slow.lost().await;
    let next = locker.lock("order-17").wait(ttl * 2).acquire().await?;
    assert_eq!(slow.release().await, Released::AlreadyLost(lost));
    assert_eq!(lost, Lost::MaxHold);
    assert_eq!(next.verify().await?, next.token());
    next.release().await;
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "the test calls the story")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name a server, such as redis://127.0.0.1:7001")?;
    story(url, Duration::from_secs(10)).await
}
