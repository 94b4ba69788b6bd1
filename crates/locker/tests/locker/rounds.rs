//! How many rounds an acquire takes.

use redislease_lab::RedisServer;

use crate::support::{eventually, locked, three};

/// How often the scripts of a server have written a value.
fn writes(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().text().unwrap();
    let of_set = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
    of_set.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// With a second round, a server writes the key twice, and the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_takes_one_round_once_the_counters_are_known() {
    let (servers, locker) = three().await;
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let before: Vec<u64> = servers.iter().map(writes).collect();
        let guard = locker.lock("one").acquire().await.unwrap();
        eventually("all servers to hold the lock", || locked(&servers, "one") == 3).await;
        let most = servers.iter().zip(&before).map(|(server, before)| writes(server) - before).max();
        rounds.push(most.unwrap());
        guard.release().await;
        // The lease has ended too: the locker has none.
        eventually("the lock to be free", || locked(&servers, "one") == 0).await;
    }
    assert_eq!(rounds[1], 2, "the key and the counter: {rounds:?}");
}
