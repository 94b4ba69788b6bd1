//! Servers that answer but refuse single commands.

use redislease_core::op::{Stages, Vote};
use redislease_core::time::Millis;
use redislease_lab::RedisServer;
use redislease_lock::clock;
use redislease_lock::nodes::{Config, Credentials, Misconfiguration, NodeState};

use crate::support::{World, acquire, addresses, config, eventually, extend, one_up, release, servers};

const REFUSING: NodeState = NodeState::Misconfigured(Misconfiguration::Refusing);

/// Creates the user with the permissions in the checklist, modified by `change`.
pub fn grant(server: &RedisServer, change: &[&str]) {
    server.create_user("secret", "rl", change).unwrap();
}

pub fn user() -> Credentials {
    Credentials { username: Some("redislease".into()), password: "secret".into() }
}

fn world(servers: &[RedisServer]) -> World {
    World::start(&Config { credentials: Some(user()), ..config(addresses(servers)) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_reported_before_the_first_lease() {
    for command in ["pexpire", "mget", "pttl", "del"] {
        let servers = servers(1);
        grant(&servers[0], &[&format!("-{command}")]);
        let world = world(&servers);
        let status = world.misconfigured(0, Misconfiguration::Refusing).await;
        let refused = format!("the server refuses the command {} (", command.to_uppercase());
        assert!(status.message.contains(&refused), "{}", status.message);
        assert!(
            status.message.contains("the commands and keys that docs/redis-checklist.md lists"),
            "{}",
            status.message
        );
        assert_eq!(world.ask(0, acquire(1)).await, Vote::Abstained);
        assert_eq!(world.metric(r#"redislease_redis_up{quorum="q",redis_node="a"}"#), 0);

        grant(&servers[0], &[]);
        let status = world.up(0).await;
        assert!(status.message.is_empty());
        assert!(status.last_refusal.unwrap().contains(&refused), "the last refusal stays");
        assert!(matches!(world.ask(0, acquire(1)).await, Vote::Granted(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_permission_is_reported_soon_and_held_terms_are_extended() {
    let servers = servers(1);
    grant(&servers[0], &[]);
    let world = world(&servers);
    world.up(0).await;
    let token = world.hold(0, 1).await;
    grant(&servers[0], &["-set"]);
    let start = clock::now();
    eventually("the request to be refused", || async {
        assert_eq!(world.ask(0, extend(1, token)).await, Vote::Extended);
        (world.status(0).state == REFUSING).then_some(())
    })
    .await;
    // It is tested every 5 s.
    assert!(clock::now().since(start) < Millis(15_000));
    assert_eq!(world.ask(0, extend(1, token)).await, Vote::Extended);
    assert_eq!(world.ask(0, release(1, Stages::All)).await, Vote::Released(1));
    assert_eq!(world.ask(0, acquire(2)).await, Vote::Abstained);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_grants_no_new_term_and_extends_held_ones() {
    let (servers, world) = one_up().await;
    let token = world.hold(0, 1).await;
    servers[0].command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let start = clock::now();
    assert_eq!(world.ask(0, acquire(2)).await, Vote::Unknown);
    eventually("the refusal to be shown", || async {
        assert_eq!(world.ask(0, extend(1, token)).await, Vote::Extended);
        (world.status(0).state == REFUSING).then_some(())
    })
    .await;
    assert!(clock::now().since(start) < Millis(4000), "the refused request triggered the test");
    let message = world.status(0).message;
    assert!(message.contains("free memory or increase `maxmemory`"), "{message}");
    assert_eq!(world.ask(0, release(1, Stages::All)).await, Vote::Released(1));
    servers[0].command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    world.up(0).await;
    assert!(matches!(world.ask(0, acquire(2)).await, Vote::Granted(_)));
}
