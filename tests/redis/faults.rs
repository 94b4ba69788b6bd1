//! Servers that hang, die, are busy or have too many clients: votes are in time and never wrong.

use std::net::TcpStream;
use std::sync::Arc;

use redislease_core::op::{Stages, Vote};
use redislease_core::time::Millis;
use redislease_lab::{RedisOptions, RedisServer, free_address};
use redislease_lock::clock;
use redislease_lock::nodes::{Config, NodeState, NodeStatus, Reason};

use crate::support::{
    TIMEOUT, World, acquire, addresses, config, extend, get, one_up, password, release, servers, with_args,
};

fn down(reason: Reason) -> impl Fn(&NodeStatus) -> bool {
    move |status| status.state == NodeState::Down && status.reason == Some(reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_stopped_server_ends_with_its_timeout() {
    let servers = servers(2);
    let world = World::on(&servers);
    world.all_up().await;
    let token = world.hold(0, 5).await;
    // The key does not end by itself meanwhile.
    servers[0].command(&["PEXPIRE", &world.lock("k"), "60000"]).unwrap();
    servers[0].process().pause().unwrap();

    let start = clock::now();
    let patience = Millis(100);
    let late = world.send(0, acquire(6), patience);
    let release_5 = world.send(0, release(5, Stages::All), patience);
    let late_extend = world.send(0, extend(5, token), patience);
    assert!(matches!(world.ask(1, acquire(6)).await, Vote::Granted(_)), "the other node is not delayed");
    assert_eq!(late.await.unwrap(), Vote::Unknown);
    let waited = clock::now().since(start);
    assert!(waited >= patience && waited < TIMEOUT, "{waited:?}");
    assert_eq!(release_5.await.unwrap(), Vote::Unknown);
    assert_eq!(late_extend.await.unwrap(), Vote::Unknown);
    let status = world.wait(0, "down", down(Reason::Timeout)).await;
    assert!(status.message.contains("no answer within 2000 ms"), "{}", status.message);
    let start = clock::now();
    assert_eq!(world.send(0, acquire(7), Millis(60_000)).await.unwrap(), Vote::Abstained, "at once");
    assert!(clock::now().since(start) < Millis(10_000));

    servers[0].process().resume().unwrap();
    world.up(0).await;
    // The release shows that the backlog was executed; the acquire before it was too late to take effect.
    assert_eq!(get(&servers[0], &world.lock("k")), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_sent_although_many_requests_have_no_answer() {
    let (servers, world) = one_up().await;
    world.hold(0, 5).await;
    // The key does not end by itself meanwhile.
    servers[0].command(&["PEXPIRE", &world.lock("k"), "60000"]).unwrap();
    servers[0].process().pause().unwrap();
    let acquires: Vec<_> = (100..200).map(|attempt| world.send(0, acquire(attempt), Millis(100))).collect();
    for vote in acquires {
        assert_eq!(vote.await.unwrap(), Vote::Unknown);
    }
    // It is gathered: one request is fewer than a quarter of those without an answer.
    let release = world.send(0, release(5, Stages::All), Millis(60_000));
    assert_eq!(release.await.unwrap(), Vote::Unknown, "the connection is closed");
    servers[0].process().resume().unwrap();
    world.up(0).await;
    assert_eq!(get(&servers[0], &world.lock("k")), None, "the release was in the backlog");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_in_the_backlog_is_not_carried_out() {
    let servers = servers(1);
    let patient = Config { command_timeout: Millis(10_000), ..config(addresses(&servers)) };
    let world = World::start(&patient);
    world.up(0).await;
    servers[0].process().pause().unwrap();
    let give_up = clock::now() + Millis(100);
    assert_eq!(world.send(0, acquire(6), Millis(100)).await.unwrap(), Vote::Unknown);
    // One millisecond is enough, but both clocks are rounded.
    clock::sleep_until(give_up + Millis(10)).await.unwrap();
    servers[0].process().resume().unwrap();
    let behind = world.send(0, release(9, Stages::All), Millis(10_000));
    assert_eq!(behind.await.unwrap(), Vote::Released(0), "the connection stays open");
    assert_eq!(get(&servers[0], &world.lock("k")), None);
    world.shows(r#"redislease_redis_errors_total{kind="late",quorum="q",redis_node="a"}"#, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_no_request_without_a_vote() {
    let (servers, world) = one_up().await;
    let votes: Vec<_> = (0..200).map(|attempt| world.send(0, acquire(attempt), Millis(5000))).collect();
    servers[0].process().kill().unwrap();
    let more: Vec<_> = (200..400).map(|attempt| world.send(0, acquire(attempt), Millis(5000))).collect();
    let start = clock::now();
    for vote in votes.into_iter().chain(more) {
        let vote = vote.await.unwrap();
        assert!(matches!(vote, Vote::Granted(_) | Vote::Refused { .. } | Vote::Unknown | Vote::Abstained), "{vote:?}");
    }
    assert!(clock::now().since(start) < Millis(5000));
    world.wait(0, "down", down(Reason::Refused)).await;
    assert_eq!(world.ask(0, acquire(1)).await, Vote::Abstained);
    servers[0].restart().unwrap();
    world.quarantined(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_at_the_address() {
    let address = free_address().unwrap();
    let world = World::start(&config([address.to_string(), "nowhere.invalid:6379".into()]));
    let status = world.wait(0, "refused", down(Reason::Refused)).await;
    assert!(status.message.starts_with(&format!("node a ({address}): cannot connect")), "{}", status.message);
    world.wait(1, "not resolved", |status| status.reason.is_some()).await;
    assert!(world.metric(r#"redislease_redis_errors_total{kind="refused",quorum="q",redis_node="a"}"#) >= 1);
    assert_eq!(world.metric(r#"redislease_quorum_nodes{quorum="q",state="down"}"#), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_foreign_script_is_named() {
    let server = with_args(&["--busy-reply-threshold", "20"]);
    let world = World::start(&config([server.address().to_string()]));
    world.up(0).await;
    let server = Arc::new(server);
    let busy = server.clone();
    // It answers when the script is killed.
    let script = std::thread::spawn(move || busy.command(&["EVAL", "while true do end", "0"]).map(|_| ()));
    world.wait(0, "busy", down(Reason::Busy)).await;
    server.command(&["SCRIPT", "KILL"]).unwrap();
    assert!(script.join().unwrap().unwrap_err().to_string().contains("killed"));
    world.up(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_clients_is_named() {
    // With a password, the server's error is the answer to the login.
    for secret in [None, Some("secret")] {
        let options = RedisOptions { password: secret.map(str::to_owned), ..RedisOptions::default() };
        let server = RedisServer::start_with(&options).unwrap();
        let taken = TcpStream::connect(server.address()).unwrap();
        server.command(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
        let world =
            World::start(&Config { credentials: secret.map(password), ..config([server.address().to_string()]) });
        let status = world.wait(0, "refused", down(Reason::MaxClients)).await;
        assert!(status.message.contains("max number of clients"), "{}", status.message);
        drop(taken);
        world.quarantined(0).await;
    }
}
