//! The examples, each the story of a library that people come from. They run as they are written, with shorter times.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};

use redislease_lab::RedisServer;
use redislease_locker::{AcquireError, Locker};
use rustix::process::{Pid, Signal, kill_process};

use crate::fencing::{Redis, Store as _};
use crate::support::{COMMAND_TIMEOUT, LONGEST, PATIENCE, confirmed, eventually, once, servers, three, urls};

#[path = "../../examples/redislock.rs"]
mod redislock;
#[path = "../../examples/redisson.rs"]
mod redisson;
#[path = "../../examples/redlock_go.rs"]
mod redlock_go;
#[path = "../../examples/restarts.rs"]
mod restarts;
#[path = "../../examples/scheduled_task.rs"]
mod scheduled_task;
#[path = "../../examples/set_nx.rs"]
mod set_nx;

#[tokio::test]
async fn from_redlock_in_go() {
    redlock_go::story(urls(&servers(3)), LONGEST).await.unwrap();
}

#[tokio::test]
async fn from_set_nx_on_one_server() {
    let server = servers(1);
    set_nx::story(urls(&server).remove(0), LONGEST).await.unwrap();
}

#[tokio::test]
async fn from_setnx_and_redlock_notes() {
    scheduled_task::story(urls(&servers(3)), LONGEST).await.unwrap();
}

#[tokio::test]
async fn from_setnx_after_a_restart() {
    let servers = servers(3);
    let restart = async || {
        // Shortly after the lock was acquired, the loss of a server can end it.
        eventually("the term on every node", || confirmed(&servers, "foo") == 3).await;
        servers[0].restart_empty().unwrap();
    };
    restarts::story(urls(&servers), LONGEST, restart).await.unwrap();
}

#[tokio::test]
async fn from_redisson() {
    redisson::story(urls(&servers(3)), LONGEST).await.unwrap();
}

#[tokio::test]
async fn from_bsm_redislock() {
    redislock::story(urls(&servers(3)), LONGEST).await.unwrap();
}

/// The variable with the servers of the process that the next tests start.
const SERVERS: &str = "REDISLEASE_TEST_SERVERS";

/// It says its token, and again for each line of its input, without a look at its guard. It ends without an unlock.
#[tokio::test]
#[ignore = "run by the next tests, as a process of its own"]
async fn a_process_that_holds_the_lock() {
    let urls = std::env::var(SERVERS).unwrap();
    let locker = Locker::builder(urls.split(',')).longest_lease(LONGEST).command_timeout(COMMAND_TIMEOUT);
    let locker = locker.build().unwrap();
    let guard = locker.lock("account").wait(PATIENCE).acquire().await.unwrap();
    eprintln!("{}", guard.token());
    std::io::stdin().lines().for_each(|_| eprintln!("{}", guard.token()));
    std::process::exit(0);
}

/// That process.
struct Holder(Child, BufReader<ChildStderr>);

impl Holder {
    fn start(servers: &[RedisServer]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "stories::a_process_that_holds_the_lock", "--ignored", "--nocapture"]);
        process
            .env(SERVERS, urls(servers).join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = process.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self(child, errors)
    }

    /// The token that it says next.
    fn token(&mut self) -> u64 {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("no token: {line}"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The garbage collection of the story of Redisson: the holder stands still for longer than its lease, and then it writes.
#[tokio::test]
async fn the_late_write_of_a_process_that_was_paused_is_rejected() {
    let (servers, locker) = three().await;
    let store = Redis(RedisServer::start().unwrap());
    let mut holder = Holder::start(&servers);
    assert!(store.write("in time", holder.token()));
    holder.signal(Signal::STOP);
    let next = locker.lock("account").wait(PATIENCE).acquire().await.unwrap();
    assert!(store.write("next", next.token()));
    holder.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    holder.signal(Signal::CONT);
    assert!(!store.write("late", holder.token()));
    assert_eq!(store.value(), "next");
    assert_eq!(next.verify().await, Ok(next.token()));
}

/// The story of Redlock in Go: the program ends without `Unlock`.
#[tokio::test]
async fn the_lock_of_a_process_that_ends_without_an_unlock_expires_with_its_ttl() {
    let (servers, locker) = three().await;
    let mut holder = Holder::start(&servers);
    let token = holder.token();
    drop(holder.0.stdin.take());
    assert!(holder.0.wait().unwrap().success());
    match once(&locker, "account").acquire().await {
        Err(AcquireError::Held { free_in, .. }) => assert!(free_in <= LONGEST, "{free_in:?}"),
        other => panic!("the lock is not held: {other:?}"),
    }
    let next = locker.lock("account").wait(PATIENCE).acquire().await.unwrap();
    assert!(next.token() > token);
}
