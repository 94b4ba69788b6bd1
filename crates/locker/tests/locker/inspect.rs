//! What other programs see of a lock.

use redislease_lab::{pause, resume};
use redislease_locker::{AcquireError, Inspection, Released};

use crate::support::{LONGEST, confirmed, eventually, locked, ms, on, once, three};

#[tokio::test]
async fn a_lock_is_shown_with_owner_metadata_token_and_time() {
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    assert_eq!(other.inspect("k").await, Inspection::Free);
    let metadata = "{\"order\": 17}\nand: a colon".to_owned() + &"x".repeat(990);
    let guard = once(&locker, "k").owner("worker 1").metadata(&metadata).acquire().await.unwrap();
    eventually("the term on every node", || confirmed(&servers, "k") == 3).await;
    match other.inspect("k").await {
        Inspection::Held { owner, metadata: shown, token, ttl_left } => {
            assert_eq!((owner.as_str(), shown, token), ("worker 1", metadata, guard.token()));
            assert!(ttl_left > ms(300) && ttl_left <= LONGEST, "{ttl_left:?}");
        }
        other => panic!("{other:?}"),
    }
    match once(&other, "k").acquire().await {
        Err(AcquireError::Held { by, .. }) => assert_eq!(by, "worker 1", "without the metadata"),
        other => panic!("{other:?}"),
    }
    assert_eq!(guard.release().await, Released::Majority);
    assert_eq!(other.inspect("k").await, Inspection::Free);
    match once(&locker, "k").metadata("x".repeat(1025)).acquire().await {
        Err(AcquireError::Invalid { key, problem }) => {
            assert_eq!((key.as_deref(), &*problem), (Some("k"), "metadata has 1025 bytes: use up to 1024"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_kept_lock_is_shown_and_servers_that_do_not_answer_decide_nothing() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(ms(300)).hold_at_least(LONGEST).acquire().await.unwrap();
    let token = guard.token();
    assert!(matches!(guard.release().await, Released::Kept { .. }));
    match locker.inspect("k").await {
        Inspection::Held { token: shown, ttl_left, .. } => {
            assert!(shown == token && ttl_left > ms(500) && ttl_left <= LONGEST, "{shown} {ttl_left:?}");
        }
        other => panic!("{other:?}"),
    }
    pause(&servers[..2]).unwrap();
    assert_eq!(locker.inspect("k").await, Inspection::Undecided);
    resume(&servers[..2]).unwrap();
    eventually("the key to expire", || locked(&servers, "k") == 0).await;
}

/// Another program has written to the key. Asking for it is no reason to cut the connections, which would cost other locks their
/// votes.
#[tokio::test]
async fn a_foreign_value_is_undecided_and_disturbs_no_other_lock() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "other").acquire().await.unwrap();
    for (name, command) in [("text", ["SET", "mine"]), ("list", ["RPUSH", "x"])] {
        for server in &servers {
            let key = format!("redislease:lock:default/{name}");
            server.command(&[command[0], &key, command[1]]).unwrap();
        }
        let connections = || {
            let info =
                |server: &redislease_lab::RedisServer| server.command(&["INFO", "stats"]).unwrap().text().unwrap();
            let received = |info: String| {
                info.lines()
                    .find_map(|line| line.strip_prefix("total_connections_received:")?.trim().parse::<u64>().ok())
                    .unwrap()
            };
            servers.iter().map(|server| received(info(server))).sum::<u64>()
        };
        let before = connections();
        assert_eq!(locker.inspect(name).await, Inspection::Undecided, "{name}");
        guard.verify().await.unwrap();
        // Each look at the statistics is a connection of its own.
        assert_eq!(connections(), before + 3, "{name}: the locker has connected again");
    }
}
