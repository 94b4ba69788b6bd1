//! Users, passwords that are replaced while a program runs, and prefixes.

use std::collections::BTreeSet;

use crate::support::{LONGEST, PATIENCE, all_up, builder, eventually, ms, no_majority, once, servers, urls};
use redislease_lab::{RedisOptions, RedisServer};
use redislease_locker::{AcquireError, Locker, LockerBuilder, NodeState, Tls};

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

#[tokio::test]
async fn each_prefix_has_its_own_locks_its_own_counter_and_its_own_longest_lease() {
    let servers = servers(3);
    let one = builder(&servers).prefix("one").build().unwrap();
    let two = builder(&servers).prefix("two").longest_lease(LONGEST + ms(500)).build().unwrap();
    all_up(&one).await;
    all_up(&two).await;
    let first = one.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let other = two.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let keys = |pattern: &str| {
        let count = ["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", pattern];
        servers.iter().map(|server| server.command(&count).unwrap().integer().unwrap()).max().unwrap()
    };
    assert_eq!((keys("one:lock:default/k"), keys("two:lock:default/k")), (1, 1));
    let counter = |prefix: &str| {
        let key = format!("{prefix}:fence");
        let value =
            |server: &RedisServer| server.command(&["GET", &key]).unwrap().text().unwrap().parse::<u64>().unwrap();
        servers.iter().map(value).max().unwrap()
    };
    let (before, before_of_one) = (counter("two"), counter("one"));
    let mut token = first.token();
    first.release().await;
    for _ in 0..5 {
        let guard = one.lock("k").wait(PATIENCE).acquire().await.unwrap();
        assert!(guard.token() > token, "{} after {token}", guard.token());
        token = guard.token();
        guard.release().await;
    }
    assert_eq!(counter("two"), before);
    assert!(counter("one") >= before_of_one + 5, "{} after {before_of_one}", counter("one"));
    other.verify().await.unwrap();
    // Another program with the prefix is excluded.
    let same = builder(&servers).prefix("two").longest_lease(LONGEST + ms(500)).build().unwrap();
    all_up(&same).await;
    match once(&same, "k").acquire().await {
        Err(AcquireError::Held { key, .. }) => assert_eq!(key, "k"),
        other => panic!("{other:?}"),
    }
    assert_eq!(keys("redislease*"), 0);
}

/// With the rights that the checklist gives. Only this user may write.
#[tokio::test]
async fn a_user_with_a_password_gets_the_lock_and_a_wrong_password_is_named() {
    let servers = servers(3);
    for server in &servers {
        server.create_user("p@ss:word/%", "redislease", &[]).unwrap();
    }
    let new = || Locker::builder(urls(&servers)).longest_lease(LONGEST).command_timeout(ms(1000));
    let locker = new().credentials("redislease", "p@ss:word/%").build().unwrap();
    all_up(&locker).await;
    let guard = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    let clients = servers[0].command(&["CLIENT", "LIST"]).unwrap().text().unwrap();
    assert!(clients.contains(" user=redislease "), "{clients}");
    let refused = async |builder: LockerBuilder| {
        let locker = builder.build().unwrap();
        eventually("the refusal", || locker.nodes().iter().all(|node| node.message.contains("assword"))).await;
        no_majority(&locker).await
    };
    for (user, password) in [("redislease", "wrong"), ("absent", "p@ss:word/%")] {
        let text = refused(new().credentials(user, password)).await;
        assert!(text.contains("in credentials() or in the URLs"), "{text}");
        assert!(text.starts_with(r#"key "k" cannot be taken, because no majority"#), "{text}");
        assert!(!text.contains("p@ss") && !text.contains("wrong"), "{text}");
    }
    // They replace those of the URLs.
    let with_wrong = servers.iter().map(|server| format!("redis://redislease:wrong@{}", server.address()));
    let right = Locker::builder(with_wrong).longest_lease(LONGEST).credentials("redislease", "p@ss:word/%");
    right.build().unwrap().ready(PATIENCE).await.unwrap();
    guard.verify().await.unwrap();
}
