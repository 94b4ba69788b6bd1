//! Thousands of new locks by one locker.

use std::time::{Duration, Instant};

use crate::support::{PATIENCE, ms, servers, urls};
use redislease_locker::{Guard, Locker};

const LOCKS: usize = 10_000;
/// Long enough for all of them on a busy machine, and short, because new servers wait for it.
const TTL: Duration = Duration::from_secs(5);

/// Attempts that wait for turns, as after an outage, take 5 s on every machine.
const AT_MOST: Duration = if cfg!(debug_assertions) { ms(1500) } else { ms(750) };

async fn all(locker: &Locker, round: usize) -> (Vec<Guard>, Duration) {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..LOCKS {
        let request = locker.lock(format!("r{round}-k{number}")).ttl(TTL).wait(PATIENCE);
        tasks.spawn(async move { request.acquire().await.unwrap() });
    }
    let guards = tasks.join_all().await;
    (guards, began.elapsed())
}

/// Attempts of new locks wait for no turn: only attempts that repeat others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_new_locks_wait_for_no_turn() {
    let servers = servers(3);
    let locker = Locker::builder(urls(&servers)).longest_lease(TTL).command_timeout(ms(5000)).build().unwrap();
    locker.ready(PATIENCE).await.unwrap();
    // On a busy machine the first rounds may take longer.
    let began = Instant::now();
    for round in 0.. {
        let (guards, took) = all(&locker, round).await;
        println!("{LOCKS} new locks in {took:?}");
        if took < AT_MOST {
            return;
        }
        assert!(began.elapsed() < 3 * PATIENCE, "{LOCKS} new locks took {took:?}, and less in no earlier round");
        for guard in guards {
            guard.release().await;
        }
    }
}
