//! TLS to real servers: certificates that are right, wrong and missing. tests/kube/certificates.rs replaces them.

use std::collections::BTreeSet;

use redislease_core::check::ops;
use redislease_core::op::{Op, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Millis;
use redislease_lab::{Authority, Identity, RedisOptions, RedisServer, RedisTls};
use redislease_lock::nodes::{Config, NodeState, NodeStatus, Reason, Tls, TlsFiles};

use crate::support::{World, addresses, config, eventually, password, servers};

/// The authority of a test, and one of which the other party knows nothing.
struct Authorities {
    ours: Authority,
    other: Authority,
}

impl Authorities {
    fn new() -> Self {
        Self { ours: Authority::new("ours").unwrap(), other: Authority::new("other").unwrap() }
    }
}

/// What the server of the name `localhost` and 127.0.0.1 has.
fn on_localhost(authority: &Authority) -> Identity {
    authority.sign(&["localhost", "127.0.0.1"]).unwrap()
}

/// A server that accepts every client.
fn server(identity: Identity) -> RedisServer {
    start(RedisTls { identity, client_ca: None }, None)
}

fn start(tls: RedisTls, password: Option<&str>) -> RedisServer {
    let password = password.map(str::to_owned);
    RedisServer::start_with(&RedisOptions { password, tls: Some(tls), ..RedisOptions::default() }).unwrap()
}

fn files(authority: &Authority, client: Option<&Identity>) -> TlsFiles {
    let bytes = |identity: &Identity| (identity.certificate.clone().into_bytes(), identity.key.clone().into_bytes());
    TlsFiles { ca: authority.certificate().into_bytes(), client: client.map(bytes), server_name: None }
}

fn tls_addresses(servers: &[RedisServer]) -> impl Iterator<Item = String> {
    servers.iter().map(|server| server.tls_address().unwrap().to_string())
}

fn tls_config(servers: &[RedisServer], files: TlsFiles) -> Config {
    Config { tls: Some(Tls::new(files).unwrap()), longest_lease: TTL, ..config(tls_addresses(servers)) }
}

/// The message of the only node of this quorum, after the first failed connection.
async fn message(config: &Config) -> (Reason, String) {
    let world = World::start(config);
    let failed = |status: &NodeStatus| status.state == NodeState::Down && status.reason.is_some();
    let status = world.wait(0, "down", failed).await;
    assert!(status.message.starts_with(&format!("node a ({}): ", status.address)), "{}", status.message);
    (status.reason.unwrap(), status.message)
}

/// Long enough for several reconnects on a busy machine.
const TTL: Millis = Millis(5000);

fn extend(token: u64) -> Op {
    ops::extend(5, token, TTL)
}

/// The IDs of the server's connections with TLS.
fn tls_clients(server: &RedisServer) -> BTreeSet<String> {
    let list = server.command(&["CLIENT", "LIST"]).unwrap().text().unwrap();
    let address = format!(" laddr={} ", server.tls_address().unwrap());
    let with_tls = list.lines().filter(|line| line.contains(&address));
    with_tls.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Takes the lease on this node.
async fn hold(world: &World, node: usize) -> u64 {
    let token = world.granted(node, ops::acquire(5, TTL, "pod")).await;
    world.confirmed(node, 5, token, token).await;
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_held_with_mutual_tls_and_a_password() {
    let authorities = Authorities::new();
    let tls =
        || RedisTls { identity: on_localhost(&authorities.ours), client_ca: Some(authorities.other.certificate()) };
    let servers: Vec<_> = (0..3).map(|_| start(tls(), Some("secret"))).collect();
    let client = authorities.other.sign(&["redislease"]).unwrap();
    let config = Config {
        credentials: Some(password("secret")),
        ..tls_config(&servers, files(&authorities.ours, Some(&client)))
    };
    let world = World::start(&config);
    world.all_up().await;
    for node in 0..3 {
        let token = hold(&world, node).await;
        assert!(matches!(world.ask(node, extend(token)).await, Vote::Extended));
    }
    assert_eq!(tls_clients(&servers[0]).len(), 1, "the connection uses TLS");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_failure_of_tls_has_an_instruction() {
    let Authorities { ours, other } = Authorities::new();
    let good = server(on_localhost(&ours));
    let expired = server(ours.sign_expired(&["localhost", "127.0.0.1"]).unwrap());
    let named = server(ours.sign(&["redis-0.example.com"]).unwrap());
    let mutual = start(RedisTls { identity: on_localhost(&ours), client_ca: Some(ours.certificate()) }, None);
    let client = |identity: &Identity| files(&ours, Some(identity));
    let stranger = other.sign(&["client"]).unwrap();
    let outdated = ours.sign_expired(&["client"]).unwrap();
    let plain = config(addresses(std::slice::from_ref(&good)));
    let of = |server: &RedisServer, files: TlsFiles| tls_config(std::slice::from_ref(server), files);
    for (what, config, says) in [
        ("another authority", of(&good, files(&other, None)), "add the authority that signed it to `ca.crt`"),
        ("an expired certificate", of(&expired, files(&ours, None)), "the server's certificate has expired: renew it"),
        (
            "another name",
            of(&named, files(&ours, None)),
            "is not for the name `127.0.0.1` (it is for redis-0.example.com): issue one",
        ),
        ("no client certificate", of(&mutual, files(&ours, None)), "add the keys `tls.crt` and `tls.key`"),
        (
            "an untrusted client",
            of(&mutual, client(&stranger)),
            "does not trust the authority of the client's certificate",
        ),
        ("an expired client", of(&mutual, client(&outdated)), "the client's certificate has expired: replace"),
        (
            "a port without TLS",
            Config { tls: Some(Tls::new(files(&ours, None)).unwrap()), ..plain.clone() },
            "use the address of its `tls-port`, or remove `spec.tls`",
        ),
    ] {
        let (reason, message) = message(&config).await;
        assert!(message.contains(says), "{what}: {message}");
        assert_eq!(reason, Reason::Tls, "{what}: {message}");
    }
    let tls_port = config(tls_addresses(std::slice::from_ref(&good)));
    let (_, message) = message(&tls_port).await;
    assert!(message.contains("set `spec.tls`"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_name_replaces_the_host_of_the_address() {
    let Authorities { ours, .. } = Authorities::new();
    let servers = [server(ours.sign(&["redis.example.com"]).unwrap())];
    let named = TlsFiles { server_name: Some("redis.example.com".into()), ..files(&ours, None) };
    World::start(&tls_config(&servers, named)).up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_certificates_nothing_is_sent() {
    let servers = servers(1);
    let tls = Tls::unavailable("spec.tls.secretRef names secret system/redis-tls, which does not exist");
    let config = Config { tls: Some(tls), credentials: Some(password("secret")), ..config(addresses(&servers)) };
    let (reason, message) = message(&config).await;
    assert_eq!(reason, Reason::Tls);
    assert!(
        message.contains("no TLS connection is possible: spec.tls.secretRef names secret system/redis-tls"),
        "{message}"
    );
    let stats = servers[0].command(&["INFO", "commandstats"]).unwrap().text().unwrap();
    assert!(!stats.contains("cmdstat_auth"), "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_moves_to_tls_one_address_at_a_time() {
    let Authorities { ours, .. } = Authorities::new();
    let servers: Vec<_> = (0..3).map(|_| server(on_localhost(&ours))).collect();
    let world = World::start(&Config { longest_lease: TTL, ..config(addresses(&servers)) });
    world.all_up().await;
    let mut tokens = Vec::new();
    for node in 0..3 {
        tokens.push(hold(&world, node).await);
    }
    world.nodes.set_tls(Some(Tls::new(files(&ours, None)).unwrap()));
    for (index, address) in tls_addresses(&servers).enumerate() {
        world.nodes.set_address(Node(u8::try_from(index).unwrap()), &address);
        let moved = |status: &NodeStatus| status.address == address && status.state == NodeState::Up;
        world.wait(index, "up with TLS", moved).await;
        for (node, token) in tokens.iter().enumerate() {
            eventually("an extension on every node", || async {
                matches!(world.ask(node, extend(*token)).await, Vote::Extended).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_many_mistakes_the_server_still_gets_what_it_accepted() {
    let Authorities { ours, other } = Authorities::new();
    let tls = RedisTls { identity: on_localhost(&ours), client_ca: Some(ours.certificate()) };
    let servers = [start(tls, Some("right"))];
    let client = |authority: &Authority| files(&ours, Some(&authority.sign(&["client"]).unwrap()));
    let credentials = Some(password("right"));
    let world = World::start(&Config { credentials, ..tls_config(&servers, client(&ours)) });
    world.up(0).await;
    for wrong in ["1", "2", "3", "4", "5"] {
        world.nodes.set_credentials(Some(password(wrong)));
        world.nodes.set_tls(Some(Tls::new(client(&other)).unwrap()));
    }
    let is_outdated =
        |status: &NodeStatus| status.state == NodeState::Up && status.message.contains("an earlier password");
    world.wait(0, "the current values are refused", is_outdated).await;
    let before = tls_clients(&servers[0]);
    servers[0].command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    eventually("another connection", || async {
        let now = tls_clients(&servers[0]);
        (world.status(0).state == NodeState::Up && now.iter().any(|id| !before.contains(id))).then_some(())
    })
    .await;
    world.wait(0, "connected with the accepted values", is_outdated).await;
}
