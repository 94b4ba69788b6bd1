//! Helpers: real servers, processes that use them, and requests to them.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Registry, TextEncoder};
use redis::aio::MultiplexedConnection;
use redislease::metrics::nodes::NodeMetrics;
use redislease::metrics::panics::Panics;
use redislease_core::check::ops;
pub use redislease_core::check::ops::{confirm, release, seal};
use redislease_core::marker::Membership;
use redislease_core::op::{Op, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Millis;
use redislease_core::wire::replies::Value;
use redislease_lab::{RedisOptions, RedisServer};
use redislease_lock::clock;
use redislease_lock::nodes::script::{self, Script};
use redislease_lock::nodes::{
    Config, Credentials, Misconfiguration, NodeConfig, NodeState, NodeStatus, Nodes, Request,
};
use tokio::sync::oneshot;

pub const PREFIX: &str = "rl";
/// Short, so that a quarantine is short too.
pub const LONGEST: Millis = Millis(1000);
/// The time from writing a wait ticket to the vote.
pub const QUARANTINE: Millis = Millis(1012);
/// Long, so that a busy machine does not count as a broken server.
pub const TIMEOUT: Millis = Millis(2000);
/// The timeout of every wait, with tolerance for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `probe` returns a value.
///
/// # Panics
/// Names `what` if the value does not appear in time.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "still waiting for {what} after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The value of a key.
pub fn get(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key]).unwrap().text()
}

pub fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start().unwrap()).collect()
}

/// One server, and a process on it, for which it votes.
pub async fn one_up() -> (Vec<RedisServer>, World) {
    let servers = servers(1);
    let world = World::on(&servers);
    world.up(0).await;
    (servers, world)
}

/// A connection for calls of the scripts.
pub async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for script in Script::ALL {
        script.load().query_async::<redis::Value>(&mut connection).await.unwrap();
    }
    connection
}

/// A reply without errors in it.
pub fn plain(value: redis::Value) -> Value {
    script::value(value, &mut Vec::new())
}

pub fn kill(servers: &[RedisServer]) {
    for server in servers {
        server.process().kill().unwrap();
    }
}

pub fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "f00d".into() }
}

/// A configuration of `addresses`, named `a`, `b`, …
pub fn config(addresses: impl IntoIterator<Item = String>) -> Config {
    let named = |(index, address)| NodeConfig { name: char::from(b'a' + index).to_string(), address };
    Config {
        quorum: "q".into(),
        nodes: (0..).zip(addresses).map(named).collect(),
        key_prefix: PREFIX.into(),
        membership: membership(),
        longest_lease: LONGEST,
        command_timeout: TIMEOUT,
        credentials: None,
        tls: None,
        has_statuses: false,
        connect_last: Vec::new(),
    }
}

/// One process that uses a quorum.
pub struct World {
    pub nodes: Nodes,
    pub registry: Registry,
    pub panics: Panics,
}

impl World {
    pub fn start(config: &Config) -> Self {
        let registry = Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = NodeMetrics::register(&registry, &panics).unwrap();
        Self { nodes: Nodes::start(config, metrics.quorum(config)).unwrap(), registry, panics }
    }

    /// A process on these servers.
    pub fn on(servers: &[RedisServer]) -> Self {
        Self::start(&config(addresses(servers)))
    }

    pub fn status(&self, node: usize) -> NodeStatus {
        self.nodes.watch().borrow()[node].clone()
    }

    /// Waits for a status of `node`.
    pub async fn wait(&self, node: usize, what: &str, fits: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let mut watch = self.nodes.watch();
        let waited = tokio::time::timeout(PATIENCE, watch.wait_for(|statuses| fits(&statuses[node]))).await;
        match waited {
            Ok(statuses) => statuses.unwrap()[node].clone(),
            Err(elapsed) => panic!("node {node} is not {what}, {elapsed}: {:?}", self.status(node)),
        }
    }

    pub async fn up(&self, node: usize) -> NodeStatus {
        self.wait(node, "up", |status| status.state == NodeState::Up).await
    }

    pub async fn all_up(&self) {
        for node in self.nodes.quorum().nodes() {
            self.up(node.index()).await;
        }
    }

    pub async fn misconfigured(&self, node: usize, why: Misconfiguration) -> NodeStatus {
        self.wait(node, "misconfigured", |status| status.state == NodeState::Misconfigured(why)).await
    }

    pub async fn quarantined(&self, node: usize) -> NodeStatus {
        self.wait(node, "quarantined", |status| matches!(status.state, NodeState::Quarantined { .. })).await
    }

    pub fn lock(&self, key: &str) -> String {
        self.nodes.keyspace().lock("ns", key)
    }

    /// Sends a request now; returns a receiver for its vote.
    pub fn send(&self, node: usize, op: Op, patience: Millis) -> oneshot::Receiver<Vote> {
        let (reply, vote) = oneshot::channel();
        self.send_about("k", node, op, patience, move |vote| reply.send(vote).unwrap());
        vote
    }

    /// Sends a request about the lease `key` to `node`.
    pub fn send_about(
        &self,
        key: &str,
        node: usize,
        op: Op,
        patience: Millis,
        reply: impl FnOnce(Vote) + Send + 'static,
    ) {
        let keys: Arc<[String]> = [self.lock(key)].into();
        let request = Request { keys, op, give_up_at: clock::now() + patience };
        self.nodes.send(Node(u8::try_from(node).unwrap()), request, reply);
    }

    pub async fn ask(&self, node: usize, op: Op) -> Vote {
        self.send(node, op, TIMEOUT).await.unwrap()
    }

    /// Asks for a grant. Returns its number.
    pub async fn granted(&self, node: usize, acquire: Op) -> u64 {
        let vote = self.ask(node, acquire).await;
        let Vote::Granted(grant) = vote else { panic!("{vote:?}") };
        grant.number()
    }

    pub async fn confirmed(&self, node: usize, attempt: u128, grant: u64, token: u64) {
        let vote = self.ask(node, confirm(attempt, grant, token)).await;
        assert!(matches!(vote, Vote::Confirmed { .. }), "{vote:?}");
    }

    /// Takes the lease `k` on one node. Returns the token.
    pub async fn hold(&self, node: usize, attempt: u128) -> u64 {
        let grant = self.granted(node, acquire(attempt)).await;
        self.confirmed(node, attempt, grant, grant).await;
        grant
    }

    /// The value of an integer series on the metrics page.
    pub fn metric(&self, series: &str) -> u64 {
        self.find_metric(series).unwrap_or_else(|page| panic!("no {series} in\n{page}"))
    }

    /// Waits until the series has this value: a vote can arrive before it is counted.
    pub async fn shows(&self, series: &str, value: u64) {
        let what = format!("{series} {value}");
        eventually(&what, || async { (self.find_metric(series) == Ok(value)).then_some(()) }).await;
    }

    fn find_metric(&self, series: &str) -> Result<u64, String> {
        let page = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap()).ok_or(page.clone())
    }
}

/// Writes terms of `holder` on the keys `{lock}1`, `{lock}2`, …, with the number of the key as attempt and token.
pub fn write_terms(server: &RedisServer, lock: &str, count: usize, holder: &str, ttl: Millis) {
    let set = "for i = 1, ARGV[2] do \
                 redis.call('SET', ARGV[1] .. i, string.format('t:%032x:%d:', i, i) .. ARGV[3], 'PX', ARGV[4]) \
               end";
    server.command(&["EVAL", set, "0", lock, &count.to_string(), holder, &ttl.0.to_string()]).unwrap();
}

/// How often `server` executed `command`, including in scripts.
pub fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().text().unwrap();
    let count = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    count.map_or(0, |count| count.split(',').next().unwrap().parse().unwrap())
}

pub fn addresses(servers: &[RedisServer]) -> impl Iterator<Item = String> {
    servers.iter().map(|server| server.address().to_string())
}

pub fn with_args(args: &[&str]) -> RedisServer {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    RedisServer::start_with(&RedisOptions { args, ..RedisOptions::default() }).unwrap()
}

pub fn password(password: &str) -> Credentials {
    Credentials { username: None, password: password.to_owned() }
}

pub fn acquire(attempt: u128) -> Op {
    ops::acquire(attempt, LONGEST, &format!("pod-{attempt}"))
}

pub fn extend(attempt: u128, token: u64) -> Op {
    ops::extend(attempt, token, LONGEST)
}
