//! A program on the servers of an operator. The operator is the lock layer with the configuration that the operator uses.

use std::sync::Arc;
use std::time::Duration;

use redislease_core::marker::{Membership, fingerprint};
use redislease_core::op::Token;
use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use redislease_lab::RedisServer;
use redislease_lock::nodes::{Config, NodeConfig, NodeState as State, Nodes};
use redislease_locker::{Locker, LockerBuilder, Node, NodeState};

use crate::support::{LONGEST, PATIENCE, all_up, eventually, ms, no_majority, once, servers};

const NAMES: [&str; 3] = ["redis-0", "redis-1", "redis-2"];
/// A token that a resource shows.
const SHOWN: u64 = 3_000_000_000_000_000;

/// The nodes of an operator, and the task that reads the statuses when a counter begins again.
struct Operator(Nodes, tokio::task::JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.1.abort();
    }
}

/// Starts what an operator starts for a quorum. It reads all statuses when it is asked to.
fn operator(servers: &[RedisServer]) -> Operator {
    let nodes = NAMES.iter().zip(servers);
    let longest = Millis::from(LONGEST);
    let quorum = Quorum::of(3).unwrap();
    let fingerprint = fingerprint(&NAMES, quorum.majority(), longest, "redislease");
    let nodes = Nodes::start(
        &Config {
            quorum: "main".into(),
            nodes: nodes
                .map(|(name, server)| NodeConfig { name: (*name).into(), address: server.address().to_string() })
                .collect(),
            key_prefix: "redislease".into(),
            membership: Membership { generation: 1, fingerprint: fingerprint.as_str().into() },
            longest_lease: longest,
            command_timeout: Millis(1000),
            credentials: None,
            tls: None,
            has_statuses: true,
            connect_last: Vec::new(),
        },
        Arc::new(()),
    );
    let nodes = nodes.unwrap();
    nodes.raise_floor(Token(SHOWN));
    nodes.floor_complete();
    let (mut requests, reader) = (nodes.floor_requests(), nodes.clone());
    let reads = tokio::spawn(async move {
        while requests.changed().await.is_ok() {
            let request = *requests.borrow_and_update();
            reader.floor_read(request);
        }
    });
    Operator(nodes, reads)
}

async fn admitted(servers: &[RedisServer]) -> Operator {
    let operator = operator(servers);
    let statuses = operator.0.watch();
    eventually("the operator to admit the servers", || statuses.borrow().iter().all(|node| node.state == State::Up))
        .await;
    operator
}

fn program(servers: &[RedisServer]) -> LockerBuilder {
    let builder = Locker::builder::<&str>([]).longest_lease(LONGEST).command_timeout(ms(1000));
    NAMES
        .iter()
        .zip(servers)
        .fold(builder, |builder, (name, server)| builder.node(*name, format!("redis://{}", server.address())))
}

fn marker(server: &RedisServer) -> String {
    server.command(&["GET", "redislease:marker"]).unwrap().text().unwrap_or_default()
}

/// Waits until every server is refused, and returns the error of a request.
async fn refused(locker: &Locker) -> String {
    eventually("the mismatch", || locker.nodes().iter().all(|node| node.state == NodeState::Misconfigured)).await;
    no_majority(locker).await
}

#[tokio::test]
async fn a_program_beside_an_operator_votes_at_once_and_its_tokens_are_above_those_of_the_resources() {
    let servers = servers(3);
    let operator = admitted(&servers).await;
    let before: Vec<String> = servers.iter().map(marker).collect();
    let locker = program(&servers).beside_operator().build().unwrap();
    // The servers do not wait again.
    locker.ready(LONGEST / 2).await.unwrap();
    let guard = locker.lock("k").acquire().await.unwrap();
    assert!(guard.token() > SHOWN, "{}", guard.token());
    guard.verify().await.unwrap();
    guard.release().await;
    assert_eq!(servers.iter().map(marker).collect::<Vec<_>>(), before);
    drop(operator);
}

/// Only the operator knows the tokens of its resources, so only it may begin a new counter.
#[tokio::test]
async fn a_program_beside_an_operator_never_admits_a_server() {
    let servers = servers(3);
    let operator = admitted(&servers).await;
    let locker = program(&servers).beside_operator().build().unwrap();
    all_up(&locker).await;
    let last = locker.lock("k").acquire().await.unwrap().token();
    // The operator is gone, and then a majority loses its data.
    drop(operator);
    for server in &servers[..2] {
        server.restart_empty().unwrap();
    }
    let waits = |node: &Node| matches!(node.state, NodeState::Waits(_));
    eventually("two servers to wait", || locker.nodes()[..2].iter().all(waits)).await;
    let text = locker.nodes()[0].to_string();
    assert!(text.ends_with("the operator lets it vote when the longest lease has passed"), "{text}");
    let until = std::time::Instant::now() + LONGEST + Duration::from_secs(1);
    while std::time::Instant::now() < until {
        assert!(once(&locker, "k").acquire().await.is_err());
        assert!(locker.nodes()[..2].iter().all(|node| node.state != NodeState::Up), "{:?}", locker.nodes());
        tokio::time::sleep(ms(20)).await;
    }
    assert!(servers[..2].iter().all(|server| marker(server).starts_with("wait:")));
    let mut text = String::new();
    eventually("the advice", || {
        text = locker.nodes()[0].to_string();
        text.contains("see that the operator runs")
    })
    .await;
    assert!(!text.contains("API server") && !text.contains("statuses"), "{text}");
    // The operator comes back, and it has read the statuses.
    let _operator = admitted(&servers).await;
    let next = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    assert!(next.token() > last.max(SHOWN), "{} after {last}", next.token());
}

#[tokio::test]
async fn programs_that_do_not_agree_with_the_operator_are_refused_with_a_sentence() {
    let servers = servers(3);
    let _operator = admitted(&servers).await;
    let text = refused(&program(&servers).build().unwrap()).await;
    assert!(text.contains("call beside_operator() with the same node names, prefix and longest lease"), "{text}");
    assert!(text.contains("nodes redis-0 (") && text.matches("its marker names").count() == 1, "{text}");
    assert!(!text.contains("spec") && !text.contains("RedisQuorum"), "{text}");
    let other = program(&servers).longest_lease(LONGEST + ms(500)).beside_operator().build().unwrap();
    let text = refused(&other).await;
    // The servers store only hashes of both sides.
    let ours = "(nodes redis-0, redis-1, redis-2, majority 2, longest lease 2s, prefix redislease). An operator";
    assert!(text.contains("ours is 1:") && text.contains(ours), "{text}");
    assert!(text.contains(": use the same node names, prefix and longest lease as the operator"), "{text}");
    assert!(servers.iter().all(|server| !marker(server).starts_with("wait:")), "the operator's markers stay");
}
