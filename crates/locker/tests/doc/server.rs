// What the examples of the documentation hide: a real server for each of them.

#[allow(unused_imports)]
use std::time::Duration;

use redislease_lab::RedisServer;
#[allow(unused_imports)]
use redislease_locker::{AcquireError, Inspection, Locker, Lost, Released};

type Done = Result<(), Box<dyn std::error::Error>>;

/// A server of its own, and a locker when it votes.
fn server() -> (RedisServer, Locker) {
    let server = RedisServer::start().expect("redis-server starts");
    let locker = Locker::builder([format!("redis://{}", server.address())]).single_node();
    let locker = locker.longest_lease(Duration::from_secs(1)).build().expect("valid");
    runtime().block_on(locker.ready(Duration::from_secs(20))).expect("the server votes");
    (server, locker)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

/// Runs an example.
#[allow(dead_code)]
fn with_locker(example: impl AsyncFnOnce(Locker) -> Done) {
    let (_server, locker) = server();
    runtime().block_on(example(locker)).expect("the example succeeds");
}
