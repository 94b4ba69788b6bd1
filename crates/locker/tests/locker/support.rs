//! Helpers: real servers, and what is stored on them.

use std::time::{Duration, Instant};

use redislease_lab::RedisServer;
use redislease_locker::{AcquireError, Locker, LockerBuilder, Request};

/// The timeout of every wait, with tolerance for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Short, so that the wait of empty servers is short.
pub const LONGEST: Duration = Duration::from_millis(1500);
/// Long, so that a busy machine does not count as a broken server.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start().unwrap()).collect()
}

pub fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(|server| format!("redis://{}", server.address())).collect()
}

pub fn builder(servers: &[RedisServer]) -> LockerBuilder {
    Locker::builder(urls(servers)).longest_lease(LONGEST).command_timeout(COMMAND_TIMEOUT).single_node()
}

/// A locker on these servers, when all of them vote.
pub async fn on(servers: &[RedisServer]) -> Locker {
    let locker = builder(servers).build().unwrap();
    all_up(&locker).await;
    locker
}

pub async fn all_up(locker: &Locker) {
    eventually("all nodes to vote", || {
        locker.nodes().iter().all(|node| node.state == redislease_locker::NodeState::Up)
    })
    .await;
}

/// Three servers that vote, and a locker on them.
pub async fn three() -> (Vec<RedisServer>, Locker) {
    let servers = servers(3);
    let locker = on(&servers).await;
    (servers, locker)
}

/// A request without another attempt.
pub fn once(locker: &Locker, key: &str) -> Request {
    locker.lock(key).wait(Duration::ZERO)
}

/// The text of the error of a request, which must be that no majority votes.
pub async fn no_majority(locker: &Locker) -> String {
    match once(locker, "k").acquire().await {
        Err(error @ AcquireError::NoMajority { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Polls until `probe` is true.
///
/// # Panics
/// Names `what` if it does not become true in time.
pub async fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let start = Instant::now();
    while !probe() {
        assert!(start.elapsed() < PATIENCE, "still waiting for {what} after {PATIENCE:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// The number of servers that have a key of a lock.
pub fn locked(servers: &[RedisServer], key: &str) -> usize {
    locked_in(servers, "default", key)
}

/// The same in a namespace.
pub fn locked_in(servers: &[RedisServer], namespace: &str, key: &str) -> usize {
    let key = format!("redislease:lock:{namespace}/{key}");
    servers.iter().filter(|server| server.command(&["EXISTS", &key]).unwrap().integer().unwrap() > 0).count()
}

/// Deletes the keys of a lock.
pub fn delete(servers: &[RedisServer], key: &str) {
    for server in servers {
        server.command(&["DEL", &format!("redislease:lock:default/{key}")]).unwrap();
    }
}

/// The number of servers that have a confirmed term on a key.
pub fn confirmed(servers: &[RedisServer], key: &str) -> usize {
    let key = format!("redislease:lock:default/{key}");
    let value = |server: &RedisServer| server.command(&["GET", &key]).unwrap().text();
    servers.iter().filter_map(value).filter(|value| value.starts_with("t:")).count()
}
