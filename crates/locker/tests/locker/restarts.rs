//! Servers that restart without their data while requests wait.

use std::time::Instant;

use redislease_locker::{Locker, Node, NodeState, Released};

use crate::support::{LONGEST, PATIENCE, all_up, confirmed, eventually, ms, on, once, servers, three, urls};

const fn waits(node: &Node) -> bool {
    matches!(node.state, NodeState::Waits(_))
}

#[tokio::test]
async fn a_server_that_restarts_empty_twice_gives_the_lock_to_no_request_that_waits() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    eventually("the term on every node", || confirmed(&servers, "k") == 3).await;
    let other = on(&servers).await;
    let waiting = tokio::spawn(other.lock("k").wait(PATIENCE).acquire());
    servers[0].restart_empty().unwrap();
    eventually("the server to wait", || waits(&other.nodes()[0])).await;
    tokio::time::sleep(LONGEST / 2).await;
    // The wait begins again.
    servers[0].restart_empty().unwrap();
    let again = Instant::now();
    eventually("the server to wait again", || waits(&other.nodes()[0])).await;
    while again.elapsed() + ms(100) < LONGEST {
        assert!(!waiting.is_finished());
        assert!(other.nodes()[0].state != NodeState::Up, "after {:?}", again.elapsed());
        assert_eq!(guard.check(), Ok(guard.token()));
        tokio::time::sleep(ms(20)).await;
    }
    eventually("the server to vote again", || other.nodes()[0].state == NodeState::Up).await;
    assert_eq!(guard.verify().await, Ok(guard.token()));
    assert!(!waiting.is_finished());
    let token = guard.token();
    assert_eq!(guard.release().await, Released::Majority);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
}

/// Two programs in one process: each has its own connections, and their locks in two namespaces are different ones.
#[tokio::test]
async fn two_lockers_in_one_process_share_servers_and_the_counter_and_end_separately() {
    let servers = servers(3);
    // Long, so that a busy machine loses no lock.
    let (longest, timeout) = (LONGEST * 2, ms(1000));
    let builder = |namespace: &str| {
        Locker::builder(urls(&servers)).longest_lease(longest).command_timeout(timeout).namespace(namespace)
    };
    let (shop, bank) = (builder("shop").build().unwrap(), builder("bank").build().unwrap());
    all_up(&shop).await;
    all_up(&bank).await;
    let mut tokens = Vec::new();
    let (mut of_shop, mut of_bank) = (Vec::new(), Vec::new());
    for number in 0..8 {
        let key = format!("k{number}");
        of_shop.push(once(&shop, &key).acquire().await.unwrap());
        of_bank.push(once(&bank, &key).acquire().await.unwrap());
        tokens.extend([of_shop[number].token(), of_bank[number].token()]);
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "one counter: {tokens:?}");
    shop.shutdown().await;
    assert!(of_shop.iter().all(|guard| guard.check().is_err()));
    for guard in of_bank {
        assert_eq!(guard.verify().await, Ok(guard.token()));
        assert_eq!(guard.release().await, Released::Majority);
    }
}
