//! Requests to nodes on real servers: one vote each, in order, in time.

use redislease_core::op::{Grant, Stage, Stages, Stored, Vote};
use redislease_core::time::Millis;
use redislease_lock::clock;
use redislease_lock::nodes::{Config, NodeState};

use crate::refusals::{grant, user};
use crate::support::{World, acquire, addresses, config, confirm, extend, one_up, release, seal, servers};

/// The ACL permissions in the checklist are sufficient for the whole life of a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_in_the_documentation_are_sufficient() {
    let servers = servers(1);
    grant(&servers[0], &[]);
    let world = World::start(&Config { credentials: Some(user()), ..config(addresses(&servers)) });
    world.up(0).await;
    let token = world.hold(0, 1).await;
    assert_eq!(world.ask(0, extend(1, token)).await, Vote::Extended);
    let vote = world.ask(0, acquire(2)).await;
    assert!(matches!(&vote, Vote::Refused { by, .. } if by.metadata == "pod-1"), "{vote:?}");
    assert!(matches!(world.ask(0, seal(1)).await, Vote::Sealed { .. }));
    assert_eq!(world.ask(0, release(1, Stages::All)).await, Vote::Released(1));
    assert!(world.metric(r#"redislease_redis_command_duration_seconds_count{quorum="q",redis_node="a"}"#) >= 6);
    // The heartbeat reads the marker each second.
    let end = clock::now() + Millis(2500);
    while clock::now() < end {
        assert_eq!(world.status(0).state, NodeState::Up, "{}", world.status(0).message);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let refused = servers[0].command(&["ACL", "LOG"]).unwrap();
    assert!(!format!("{refused:?}").contains("redislease"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_vote_abstains_at_once_but_releases() {
    let servers = servers(1);
    let world = World::on(&servers);
    world.quarantined(0).await;
    for op in [acquire(1), confirm(1, 1, 1), extend(1, 1), seal(1)] {
        assert_eq!(world.ask(0, op).await, Vote::Abstained);
    }
    let attempt = redislease_core::op::Attempt(1);
    let left = Stored { stage: Stage::Pending, attempt, number: 9, metadata: "m".into() };
    servers[0].command(&["SET", &world.lock("k"), &left.to_string(), "PX", "60000"]).unwrap();
    assert_eq!(world.ask(0, release(1, Stages::Pending)).await, Vote::Released(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_reach_the_server_in_the_order_of_sending() {
    let servers = servers(1);
    // On a busy machine one long burst is slower than a timeout.
    let patient = Config { command_timeout: Millis(20_000), ..config(addresses(&servers)) };
    let world = World::start(&patient);
    world.up(0).await;
    let patience = Millis(20_000);
    let mut last = Grant::Numbered(0);
    for burst in 0..40 {
        // They use one key: if a release overtook its acquire, the next acquire would be refused.
        let pairs: Vec<_> = (burst * 500..(burst + 1) * 500)
            .map(|attempt| {
                let granted = world.send(0, acquire(attempt), patience);
                (granted, world.send(0, release(attempt, Stages::Pending), patience))
            })
            .collect();
        for (granted, released) in pairs {
            let vote = granted.await.unwrap();
            let Vote::Granted(grant) = vote else { panic!("{vote:?}") };
            assert!(grant > last, "{grant:?} after {last:?}");
            last = grant;
            assert_eq!(released.await.unwrap(), Vote::Released(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_values_make_the_vote_unknown() {
    let (servers, world) = one_up().await;
    let protocol = r#"redislease_redis_errors_total{kind="protocol",quorum="q",redis_node="a"}"#;
    servers[0].command(&["SET", &world.lock("k"), "mine"]).unwrap();
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Unknown);
    assert_eq!(world.ask(0, extend(1, 1)).await, Vote::Unknown);
    assert_eq!(world.ask(0, release(1, Stages::All)).await, Vote::Released(0), "foreign values are not deleted");
    world.shows(protocol, 2).await;
    servers[0].command(&["DEL", &world.lock("k")]).unwrap();
    servers[0].command(&["LPUSH", &world.lock("k"), "mine"]).unwrap();
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Unknown);
    world.shows(protocol, 3).await;
    world.up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_nodes_answers_everything_and_closes_the_connections() {
    let (servers, world) = one_up().await;
    servers[0].process().pause().unwrap();
    let pending: Vec<_> = (0..50).map(|attempt| world.send(0, acquire(attempt), Millis(60_000))).collect();
    let start = clock::now();
    let World { nodes, registry, .. } = world;
    drop(nodes);
    let page = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(!page.contains(r#"quorum="q""#), "{page}");
    for vote in pending {
        assert_eq!(vote.await.unwrap(), Vote::Unknown);
    }
    assert!(clock::now().since(start) < Millis(10_000));
    servers[0].process().resume().unwrap();
    crate::support::eventually("the connection to be closed", || async {
        let clients = servers[0].command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap().text().unwrap();
        (clients.lines().count() == 1).then_some(())
    })
    .await;
}
