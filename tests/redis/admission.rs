//! When a real server may vote: never before all leases that it may have lost have expired.

use std::time::Duration;

use redislease_core::marker::Membership;
use redislease_core::op::{Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};
use redislease_lab::{RedisOptions, RedisServer};
use redislease_lock::clock;
use redislease_lock::nodes::{Config, Misconfiguration, NodeState, NodeStatus, Reason};

use crate::support::{
    QUARANTINE, World, acquire, addresses, config, eventually, get, membership, password, servers, with_args,
};

fn fence(server: &RedisServer) -> u64 {
    get(server, "rl:fence").map_or(0, |fence| fence.parse().unwrap())
}

/// Raises the fence of `node` by a term with `token`.
async fn term(world: &World, node: usize, attempt: u128, token: u64) {
    let grant = world.granted(node, acquire(attempt)).await;
    world.confirmed(node, attempt, grant, token).await;
}

/// Node 2 lost data at `since`: it waits, then votes again with a counter above `token`.
async fn comes_back(world: &World, server: &RedisServer, since: Time, token: u64) {
    let status = world.quarantined(2).await;
    assert!(status.message.contains("it may have lost data (first start"), "{}", status.message);
    assert_eq!(world.ask(2, acquire(77)).await, Vote::Abstained);
    world.up(2).await;
    let waited = clock::now().since(since);
    assert!(waited >= QUARANTINE, "admitted after {waited:?}");
    assert_eq!(fence(server), token, "the counter of the other two nodes");
    assert_eq!(get(server, "rl:marker"), Some(format!("{}:1:f00d", server.run_id().unwrap())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_installation_waits_once() {
    let servers = servers(3);
    let start = clock::now();
    let before = clock::unix_micros();
    let world = World::on(&servers);
    for node in 0..servers.len() {
        let status = world.quarantined(node).await;
        let NodeState::Quarantined { until } = status.state else { panic!("{status:?}") };
        assert!(until >= start + QUARANTINE, "{until:?}");
    }
    assert_eq!(world.metric(r#"redislease_quorum_nodes{quorum="q",state="quarantined"}"#), 3);
    world.all_up().await;
    assert!(clock::now().since(start) >= QUARANTINE);
    for server in &servers {
        assert!(fence(server) >= before, "seeded by the clocks: {}", fence(server));
        assert_eq!(get(server, "rl:marker"), Some(format!("{}:1:f00d", server.run_id().unwrap())));
    }
    assert_eq!(world.metric(r#"redislease_quorum_nodes{quorum="q",state="up"}"#), 3);
    assert_eq!(world.metric(r#"redislease_redis_up{quorum="q",redis_node="b"}"#), 1);

    let second = World::on(&servers);
    let mut watch = second.nodes.watch();
    let quarantined = |status: &NodeStatus| matches!(status.state, NodeState::Quarantined { .. });
    while !watch.borrow_and_update().iter().all(|status| status.state == NodeState::Up) {
        assert!(!watch.borrow().iter().any(quarantined), "the nodes keep their markers for another process");
        watch.changed().await.unwrap();
    }
    let offset = second.status(0).clock_offset_ms.unwrap();
    assert!(offset.abs() < 1000, "{offset} ms on one machine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_shown_by_a_status_is_below_every_new_one() {
    let servers = servers(1);
    let world = World::on(&servers);
    world.nodes.raise_floor(Token(4_000_000_000_000_000));
    world.nodes.raise_floor(Token(5));
    world.up(0).await;
    assert_eq!(fence(&servers[0]), 4_000_000_000_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_data_waits_and_is_seeded_with_the_counter_of_the_others() {
    let servers = servers(3);
    let world = World::on(&servers);
    world.all_up().await;
    let restarts = || world.metric(r#"redislease_redis_restarts_total{quorum="q",redis_node="c"}"#);
    let token = fence(&servers[0]).max(fence(&servers[1])) + 1000;

    let older = servers[2].save().unwrap();
    term(&world, 0, 1, token).await;
    let since = clock::now();
    servers[2].restart_empty().unwrap();
    comes_back(&world, &servers[2], since, token).await;
    assert_eq!(restarts(), 1);

    term(&world, 1, 2, token + 1).await;
    let since = clock::now();
    servers[2].restart_from(&older).unwrap();
    assert!(get(&servers[2], "rl:marker").is_some(), "its old snapshot has a marker");
    comes_back(&world, &servers[2], since, token + 1).await;
    assert_eq!(restarts(), 2);

    let since = clock::now();
    servers[2].restart_full().unwrap();
    comes_back(&world, &servers[2], since, token + 1).await;

    eventually("the term on node 0 to end", || async { (get(&servers[0], &world.lock("k")).is_none()).then_some(()) })
        .await;
    term(&world, 0, 3, token + 2).await;
    let same = servers[2].run_id().unwrap();
    let since = clock::now();
    servers[2].command(&["FLUSHALL"]).unwrap();
    comes_back(&world, &servers[2], since, token + 2).await;
    assert_eq!(servers[2].run_id().unwrap(), same, "the server process did not restart");
    assert_eq!(restarts(), 3);

    for lost in [&["DEL", "rl:fence"][..], &["SET", "rl:fence", "of another program"]] {
        let since = clock::now();
        servers[2].command(lost).unwrap();
        comes_back(&world, &servers[2], since, token + 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_cannot_be_a_node_and_a_promoted_one_waits() {
    let servers = servers(2);
    let (master, replica) = (&servers[0], &servers[1]);
    let first = World::on(&servers[..1]);
    first.up(0).await;
    let port = master.address().port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    eventually("the replica to have the marker", || async { get(replica, "rl:marker") }).await;

    let world = World::on(&servers[1..]);
    let status = world.misconfigured(0, Misconfiguration::Replica).await;
    assert!(
        status.message.starts_with(&format!("node a ({}): role is `slave`", replica.address())),
        "{}",
        status.message
    );
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Abstained, "no request is sent");
    assert_eq!(world.metric(r#"redislease_quorum_nodes{quorum="q",state="misconfigured"}"#), 1);

    let since = clock::now();
    replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    world.quarantined(0).await;
    world.up(0).await;
    assert!(clock::now().since(since) >= QUARANTINE, "the copied marker names its former master");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_becomes_a_replica_loses_its_vote() {
    let servers = servers(2);
    let world = World::on(&servers[..1]);
    world.up(0).await;
    let port = servers[1].address().port().to_string();
    servers[0].command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Unknown);
    world.misconfigured(0, Misconfiguration::Replica).await;
}

/// Makes `server` a replica of `master`.
fn replicate(server: &RedisServer, master: &RedisServer) {
    server.command(&["REPLICAOF", "127.0.0.1", &master.address().port().to_string()]).unwrap();
}

/// `other` gets the data of `master`, and then `master` one key more. Returns the marker, which both have.
async fn copy_without_a_key(master: &RedisServer, other: &RedisServer) -> String {
    replicate(other, master);
    let marker = eventually("the other to have the marker", || async { get(other, "rl:marker") }).await;
    other.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    master.command(&["SET", "rl:lock:shop/billing", "granted after the cut"]).unwrap();
    marker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_drop_keys_has_no_vote() {
    let server = with_args(&["--maxmemory-policy", "allkeys-lru"]);
    let world = World::start(&config([server.address().to_string()]));
    let status = world.misconfigured(0, Misconfiguration::Eviction).await;
    assert!(status.message.contains("set `maxmemory-policy noeviction`"), "{}", status.message);
    assert_eq!(get(&server, "rl:marker"), None, "nothing is written to it");

    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    world.up(0).await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).unwrap();
    world.misconfigured(0, Misconfiguration::Eviction).await;
    let since = clock::now();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    world.up(0).await;
    assert!(clock::now().since(since) >= QUARANTINE, "leases may have been dropped, and the marker not");
}

/// The operator process that observed the eviction has ended when the server is reconfigured, and the next process has
/// not observed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_have_dropped_keys_waits_also_for_the_next_process() {
    let servers = servers(1);
    let policy = |policy: &str| servers[0].command(&["CONFIG", "SET", "maxmemory-policy", policy]).unwrap();
    let first = World::on(&servers);
    first.up(0).await;
    policy("allkeys-lru");
    first.misconfigured(0, Misconfiguration::Eviction).await;
    let waits = || get(&servers[0], "rl:marker").is_some_and(|marker| marker.starts_with("wait:"));
    eventually("the marker to be replaced", || async { waits().then_some(()) }).await;
    drop(first);
    policy("noeviction");
    let since = clock::now();
    let second = World::on(&servers);
    second.up(0).await;
    assert!(clock::now().since(since) >= QUARANTINE, "voted after {:?}", clock::now().since(since));
}

/// The same for a master that is temporarily a replica: a replica accepts no writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_a_replica_waits_also_for_the_next_process() {
    let servers = servers(2);
    let (master, other) = (&servers[0], &servers[1]);
    let first = World::on(&servers[..1]);
    first.up(0).await;
    let marker = copy_without_a_key(master, other).await;
    drop(first);

    replicate(master, other);
    eventually("the key to be lost", || async { get(master, "rl:lock:shop/billing").is_none().then_some(()) }).await;
    master.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    assert_eq!(get(master, "rl:marker"), Some(marker), "the marker names this server, and leases are missing");
    let since = clock::now();
    let second = World::on(&servers[..1]);
    second.up(0).await;
    assert!(clock::now().since(since) >= QUARANTINE, "voted after {:?}", clock::now().since(since));
    drop(second);

    // After this admission it votes at once.
    let third = World::on(&servers[..1]);
    let mut watch = third.nodes.watch();
    while watch.borrow_and_update()[0].state != NodeState::Up {
        assert!(!matches!(watch.borrow()[0].state, NodeState::Quarantined { .. }), "{:?}", watch.borrow()[0]);
        watch.changed().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_counter_is_seeded_before_every_status_was_read() {
    let servers = servers(1);
    let world = World::start(&Config { has_statuses: true, ..config(addresses(&servers)) });
    world.quarantined(0).await;
    let since = clock::now();
    clock::sleep_until(since + QUARANTINE + Millis(500)).await.unwrap();
    let waiting = |status: &NodeStatus| status.message.contains("the API server has not listed them yet");
    let status = world.wait(0, "tell that it waits for the statuses", waiting).await;
    assert!(matches!(status.state, NodeState::Quarantined { .. }), "{status:?}");
    world.nodes.raise_floor(Token(4_000_000_000_000_000));
    let mut requests = world.nodes.floor_requests();
    world.nodes.floor_complete();
    requests.wait_for(|requested| *requested > 0).await.unwrap();
    assert_ne!(world.status(0).state, NodeState::Up, "only a watch has shown the statuses, and it may be behind");
    world.nodes.raise_floor(Token(4_000_000_000_000_001));
    world.nodes.floor_read(*requests.borrow());
    world.up(0).await;
    assert_eq!(fence(&servers[0]), 4_000_000_000_000_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_has_no_vote() {
    let sentinel = RedisServer::start_with(&RedisOptions { sentinel: true, ..RedisOptions::default() }).unwrap();
    let world = World::start(&config([sentinel.address().to_string()]));
    let status = world.misconfigured(0, Misconfiguration::Replica).await;
    assert!(status.message.contains("redis_mode is `sentinel`"), "{}", status.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_configuration_is_reported_permanently() {
    let servers = servers(1);
    World::on(&servers).up(0).await;
    let other = Membership { generation: 1, fingerprint: "beef".into() };
    let world = World::start(&Config { membership: other, ..config(addresses(&servers)) });
    let status = world.misconfigured(0, Misconfiguration::ConfigMismatch).await;
    let sentence = "its marker names the configuration 1:f00d, ours is 1:beef";
    assert!(status.message.contains(sentence), "{}", status.message);
    // What the fingerprint covers.
    assert!(status.message.contains("(node names, majority, maxLeaseDuration, keyPrefix)"), "{}", status.message);
    assert!(status.message.contains("or choose a new keyPrefix"), "{}", status.message);
    assert!(status.message.ends_with("delete the marker on every node (the key `rl:marker`)"), "{}", status.message);
    assert_eq!(world.metric(r#"redislease_quorum_config_mismatch{quorum="q"}"#), 1);
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Abstained);
    tokio::time::sleep(Duration::from(QUARANTINE)).await;
    assert_eq!(world.status(0).state, status.state);
    assert_eq!(
        get(&servers[0], "rl:marker"),
        Some(membership().marker(servers[0].run_id().unwrap().into()).to_string())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_configuration_cannot_take_over_a_node_that_lost_data() {
    let servers = servers(3);
    let ours = World::on(&servers);
    ours.all_up().await;
    // Its longest lease is shorter, so its wait ends before that of this configuration.
    let hasty = Config {
        membership: Membership { generation: 1, fingerprint: "beef".into() },
        longest_lease: Millis(200),
        ..config(addresses(&servers))
    };
    let hasty = World::start(&hasty);
    for node in 0..3 {
        hasty.misconfigured(node, Misconfiguration::ConfigMismatch).await;
    }
    servers[0].command(&["FLUSHALL"]).unwrap();
    let refused = |status: &NodeStatus| status.message.contains("another node votes under another configuration");
    let status = hasty.wait(0, "a seed that is refused", refused).await;
    assert!(matches!(status.state, NodeState::Quarantined { .. }), "{status:?}");
    let marker = membership().marker(servers[0].run_id().unwrap().into()).to_string();
    eventually("ours to admit it", || async { (get(&servers[0], "rl:marker")? == marker).then_some(()) }).await;
    ours.up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_named_and_a_new_one_is_used() {
    let server =
        RedisServer::start_with(&RedisOptions { password: Some("right".into()), ..RedisOptions::default() }).unwrap();
    let world =
        World::start(&Config { credentials: Some(password("wrong")), ..config([server.address().to_string()]) });
    let refused = |status: &NodeStatus| status.reason == Some(Reason::Auth);
    let status = world.wait(0, "refused", refused).await;
    assert_eq!(status.state, NodeState::Down);
    assert!(!status.message.contains("wrong"), "no password in a status: {}", status.message);
    assert!(world.metric(r#"redislease_redis_errors_total{kind="auth",quorum="q",redis_node="a"}"#) >= 1);
    world.nodes.set_credentials(Some(password("right")));
    world.up(0).await;

    world.nodes.set_credentials(Some(password("not yet")));
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    eventually("the connection to be lost", || async {
        (world.ask(0, acquire(1)).await == Vote::Abstained).then_some(())
    })
    .await;
    world.wait(0, "down", |status| status.state == NodeState::Down).await;
    world.up(0).await;
    world.nodes.set_credentials(None);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    world.wait(0, "refused", refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_a_new_address_gets_no_password_that_was_removed() {
    let [server, other] = ["right", "removed"].map(|secret| {
        let options = RedisOptions { password: Some(secret.into()), ..RedisOptions::default() };
        RedisServer::start_with(&options).unwrap()
    });
    let world =
        World::start(&Config { credentials: Some(password("removed")), ..config([server.address().to_string()]) });
    let refused = |status: &NodeStatus| status.reason == Some(Reason::Auth);
    world.wait(0, "refused", refused).await;
    world.nodes.set_credentials(Some(password("right")));
    world.up(0).await;
    let address = other.address().to_string();
    world.nodes.set_address(Node(0), &address);
    world.wait(0, "refused at the new address", |status| status.address == address && refused(status)).await;
    world.nodes.set_credentials(Some(password("removed")));
    world.up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_tested_when_it_changes_and_the_connection_stays() {
    let server =
        RedisServer::start_with(&RedisOptions { password: Some("first".into()), ..RedisOptions::default() }).unwrap();
    let world =
        World::start(&Config { credentials: Some(password("first")), ..config([server.address().to_string()]) });
    world.up(0).await;
    let connections = || server.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap().text().unwrap_or_default();
    let id = |list: &str| list.lines().find(|line| line.contains(" cmd=evalsha ")).map(|line| line[..8].to_owned());
    let before = id(&connections());
    for credentials in [Some(password("second")), None] {
        world.nodes.set_credentials(credentials);
        let refused =
            |status: &NodeStatus| status.state == NodeState::Up && status.message.contains("an earlier password");
        let status = world.wait(0, "the password is refused", refused).await;
        assert!(!status.message.contains("second"), "no password in a status: {}", status.message);
        world.nodes.set_credentials(Some(password("first")));
        world.wait(0, "the password is accepted", |status| status.message.is_empty()).await;
    }
    // The secret is changed first, then the server.
    world.nodes.set_credentials(Some(password("second")));
    world.wait(0, "the password is refused", |status| !status.message.is_empty()).await;
    server.set_password("second").unwrap();
    world.wait(0, "the password is accepted", |status| status.message.is_empty()).await;
    assert_eq!(id(&connections()), before, "the open connection stays");
}
