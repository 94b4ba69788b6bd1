//! The examples, each the story of a library that people come from. They run as they are written, with shorter times.

use crate::support::{LONGEST, confirmed, eventually, servers, urls};

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
