//! Two addresses that lead to one server.

use std::time::{Duration, Instant};

use redislease_core::op::Vote;
use redislease_core::quorum::Node;
use redislease_lock::nodes::{Config, Misconfiguration, NodeState, NodeStatus};

use crate::support::{LONGEST, World, acquire, addresses, calls, config, eventually, servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_server_have_one_vote() {
    let servers = servers(3);
    let port = servers[0].address().port();
    let twice = format!("localhost:{port}");
    let world = World::start(&config(addresses(&servers[..2]).chain([twice])));
    let names = [format!("node a (127.0.0.1:{port})"), String::new(), format!("node c (localhost:{port})")];
    let shared = NodeState::Misconfigured(Misconfiguration::SharedServer);
    let without_vote = || async { [0, 2].into_iter().find(|node| world.status(*node).state == shared) };
    let other = eventually("one of the two names has no vote", without_vote).await;
    let first = 2 - other;
    let sentence = format!("leads to the same server as {}: use a separate server", names[first]);
    assert!(world.status(other).message.contains(&sentence), "{}", world.status(other).message);
    world.up(1).await;
    world.up(first).await;
    assert!(matches!(world.ask(first, acquire(1)).await, Vote::Granted(_)));
    assert_eq!(world.ask(other, acquire(1)).await, Vote::Abstained);

    // Both connect again many times, in any order.
    let before = calls(&servers[0], "info");
    eventually("they have connected again", || async {
        servers[0].command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        world.up(first).await;
        // For a moment, it can be down.
        assert_ne!(world.status(other).state, NodeState::Up);
        assert_eq!(world.ask(other, acquire(1)).await, Vote::Abstained);
        (calls(&servers[0], "info") > before + 20).then_some(())
    })
    .await;

    // Also when the server restarts: then it is another one.
    servers[0].process().kill().unwrap();
    servers[0].restart().unwrap();
    world.quarantined(first).await;
    world.up(first).await;
    world.misconfigured(other, Misconfiguration::SharedServer).await;

    // Its votes from the old server may count for the longest lease.
    let moved = Instant::now();
    let address = servers[2].address().to_string();
    world.nodes.set_address(Node(u8::try_from(first).unwrap()), &address);
    let shortly_before = |status: &NodeStatus| status.message.contains("shortly before");
    world.wait(other, "waiting for the votes of the other name", shortly_before).await;
    world.up(other).await;
    assert!(moved.elapsed() >= Duration::from(LONGEST), "{:?}", moved.elapsed());
    world.all_up().await;
}

/// The wrong address was known before a restart. Without that, the node whose name is resolved faster would be the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_misconfigured_does_not_take_the_server_of_another_one() {
    let servers = servers(2);
    let right = format!("localhost:{}", servers[0].address().port());
    let config = Config { connect_last: vec!["a".into()], ..config(addresses(&servers).chain([right])) };
    let world = World::start(&config);
    world.misconfigured(0, Misconfiguration::SharedServer).await;
    world.up(1).await;
    world.up(2).await;
}
