//! Passwords that are replaced while a program runs.

use std::collections::BTreeSet;

use crate::support::{LONGEST, PATIENCE, all_up, eventually, ms};
use redislease_lab::{RedisOptions, RedisServer};
use redislease_locker::{Locker, NodeState, Tls};

#[tokio::test]
async fn a_new_password_is_used_for_new_connections_and_the_locks_stay() {
    let one = RedisOptions { password: Some("one".into()), ..RedisOptions::default() };
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start_with(&one).unwrap()).collect();
    let with = |password: &str| {
        let urls = servers.iter().map(|server| format!("redis://:{password}@{}", server.address()));
        Locker::builder(urls).longest_lease(LONGEST).command_timeout(ms(1000))
    };
    let locker = with("one").build().unwrap();
    all_up(&locker).await;
    let guard = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    for server in &servers {
        server.set_password("two").unwrap();
    }
    let kill = |server: &RedisServer| server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    kill(&servers[0]);
    eventually("the wrong password", || locker.nodes()[0].state == NodeState::Down).await;
    locker.set_access(&with("two")).unwrap();
    all_up(&locker).await;
    guard.verify().await.unwrap();
    let with_tls = Locker::builder(["rediss://a:1", "rediss://b:1", "rediss://c:1"]).tls(Tls::new(""));
    assert!(locker.set_access(&with_tls).is_err());
}

/// The order for a password is: first in the program, then on the servers.
#[tokio::test]
async fn a_password_is_added_while_a_program_runs() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
    let with = |login: &str| {
        let urls = servers.iter().map(|server| format!("redis://{login}{}", server.address()));
        Locker::builder(urls).longest_lease(LONGEST).command_timeout(ms(1000))
    };
    let locker = with("").build().unwrap();
    all_up(&locker).await;
    let server = &servers[0];
    let kill = || server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    // Those on which the node is asked for votes. New values are also tested on a connection of their own.
    let connections = || {
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap().text().unwrap();
        let asked = clients.lines().filter(|client| client.contains(" cmd=evalsha "));
        asked.filter_map(|client| Some(client.split_once(' ')?.0.to_owned())).collect::<BTreeSet<_>>()
    };
    let reconnect = async || {
        let before = connections();
        kill();
        eventually("another connection", || connections().difference(&before).next().is_some()).await;
        all_up(&locker).await;
    };
    let says = |text: &str| locker.nodes()[0].message.contains(text);
    for login in ["app:one@", ":one@"] {
        locker.set_access(&with(login)).unwrap();
        reconnect().await;
        eventually("the earlier password is named", || says("is connected with an earlier password")).await;
    }
    server.set_password("one").unwrap();
    reconnect().await;
    eventually("no message", || locker.nodes()[0].message.is_empty()).await;
    locker.set_access(&with(":wrong@")).unwrap();
    server.set_password("two").unwrap();
    kill();
    eventually("the answer to the new password", || says("Password authentication failed")).await;
}
