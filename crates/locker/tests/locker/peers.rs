//! Bugs that were found in other lock libraries. Each test names them.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Instant;

use redislease_lab::{Cut, Proxy, RedisServer, pause, resume};
use redislease_locker::{AcquireError, Locker, Lost, Released};
use tokio::sync::{Notify, mpsc};

use crate::support::{
    COMMAND_TIMEOUT, LONGEST, PATIENCE, all_up, builder, confirmed, delete, eventually, locked, ms, on, once, servers,
    three,
};

/// redisson#2515: the renewal dies on the first error of a connection.
#[tokio::test]
async fn renewals_go_on_after_a_broken_connection() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    for server in &servers {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        all_up(&locker).await;
    }
    tokio::time::sleep(LONGEST).await;
    assert_eq!(guard.check(), Ok(guard.token()));
}

/// node-redlock#296: acquire returns a lock that has already expired.
#[tokio::test]
async fn a_lock_that_was_granted_too_late_is_an_error() {
    let (servers, locker) = three().await;
    pause(&servers).unwrap();
    let acquire = tokio::spawn(once(&locker, "k").ttl(ms(200)).acquire());
    tokio::time::sleep(ms(300)).await;
    resume(&servers).unwrap();
    let error = acquire.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TooSlow { .. } | AcquireError::NoMajority { .. }), "{error:?}");
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
}

/// node-redlock#369: a retry is blocked by the keys of its own earlier attempt.
#[tokio::test]
async fn a_retry_is_not_blocked_by_its_own_keys() {
    let (servers, locker) = three().await;
    // The majority is then the first server, and the third one, on which the first attempt has written its own key.
    for (server, millis) in servers.iter().zip(["300", "60000"]) {
        server
            .command(&["SET", "redislease:lock:default/k", "p:00000000000000000000000000000001:1:x", "PX", millis])
            .unwrap();
    }
    let began = Instant::now();
    let guard = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    assert!(began.elapsed() < ms(1200), "the other's keys end after 300 ms: {:?}", began.elapsed());
    drop(guard);
}

/// redlock-py#27: a dead node raises an error though a majority answers.
#[tokio::test]
async fn a_dead_node_causes_no_error_in_any_step() {
    let (servers, locker) = three().await;
    servers[2].process().kill().unwrap();
    let mut guard = once(&locker, "k").ttl(ms(600)).acquire().await.unwrap();
    assert_eq!(guard.verify().await, Ok(guard.token()));
    assert_eq!(guard.extend(LONGEST).await, Ok(guard.token()));
    assert_eq!(guard.release().await, Released::Majority);
    assert_eq!(locked(&servers[..2], "k"), 0);
}

/// bsm/redislock 0.9.4: the owner "ab" takes the lock of the owner "abc", because a prefix is compared.
#[tokio::test]
async fn an_owner_does_not_get_the_lock_of_one_whose_name_begins_as_its_own() {
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    let guard = once(&locker, "k").owner("abc").acquire().await.unwrap();
    let refused = once(&other, "k").owner("ab").acquire().await;
    assert!(matches!(&refused, Err(AcquireError::Held { by, .. }) if by == "abc"), "{refused:?}");
    assert_eq!(guard.verify().await, Ok(guard.token()));
}

/// etcd#22082: a late release deletes the lock of the next holder.
#[tokio::test]
async fn a_guard_releases_only_its_own_lock() {
    let (servers, locker) = three().await;
    let other = on(&servers).await;
    for (key, is_noticed) in [("k0", false), ("k1", true)] {
        let old = once(&locker, key).acquire().await.unwrap();
        let token = old.token();
        eventually("the term on every node", || confirmed(&servers, key) == 3).await;
        delete(&servers, key);
        let new = once(&other, key).acquire().await.unwrap();
        if is_noticed {
            assert_eq!(old.lost().await, Lost::Missing);
        }
        old.release().await;
        assert_eq!(new.verify().await, Ok(new.token()), "the late release of {key}");
        assert!(new.token() > token);
    }
}

/// rslock, redsync and redlock-universal: one stopped server delays every acquire, because they wait for the slowest server.
#[tokio::test]
async fn one_stopped_server_delays_no_acquire() {
    let (servers, locker) = three().await;
    let mut spans = Vec::new();
    // One acquire for each stop: after a command timeout, the connection is closed, and nobody waits for it any more.
    for round in 0..9 {
        let stopped = &servers[round % servers.len()..][..1];
        pause(stopped).unwrap();
        let began = Instant::now();
        let guard = once(&locker, &format!("k{round}")).acquire().await.unwrap();
        spans.push(began.elapsed());
        resume(stopped).unwrap();
        guard.release().await;
        all_up(&locker).await;
    }
    spans.sort();
    assert!(spans[spans.len() / 2] < COMMAND_TIMEOUT / 4, "{spans:?}");
}

/// redlock-rb#36 and rslock 0.10: an expired lock is extended; a failed extension deletes the key that survives.
#[tokio::test]
async fn an_expired_lock_is_not_extended_and_keys_of_a_minority_stay() {
    let (servers, locker) = three().await;
    let mut guard = once(&locker, "k").acquire().await.unwrap();
    delete(&servers[..2], "k");
    assert_eq!(guard.extend(LONGEST).await, Err(AcquireError::Lost { key: "k".into(), why: Lost::Missing }));
    assert_eq!(locked(&servers, "k"), 1, "it expires by its TTL, because the work may still go on");
}

/// node-redlock 5 beta: an even number of nodes hangs after a split vote.
#[tokio::test]
async fn two_nodes_and_two_requests_do_not_hang() {
    let servers = servers(2);
    let (first, second) = (on(&servers).await, on(&servers).await);
    for round in 0..20 {
        let key = format!("k{round}");
        let ask = |locker: &Locker| {
            let request = locker.lock(&key).wait(PATIENCE);
            tokio::spawn(async move { request.acquire().await.unwrap().release().await })
        };
        let (one, other) = (ask(&first), ask(&second));
        assert_eq!((one.await.unwrap(), other.await.unwrap()), (Released::Majority, Released::Majority));
    }
}

/// redsync#68: an unlock whose context is cancelled leaves the lock for its whole TTL.
#[tokio::test]
async fn a_release_that_is_cancelled_is_completed() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    // The guard is the last one that needs the connections.
    drop(locker);
    pause(&servers).unwrap();
    let mut release = Box::pin(guard.release());
    assert!(poll_fn(|context| Poll::Ready(release.as_mut().poll(context))).await.is_pending());
    drop(release);
    let began = Instant::now();
    resume(&servers).unwrap();
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
    assert!(began.elapsed() < LONGEST / 2, "{:?}", began.elapsed());
}

/// consul#9788: the next holder starts before the last one has stopped.
#[tokio::test]
async fn the_next_holder_starts_a_stop_budget_after_the_work_was_dropped() {
    let (servers, first) = three().await;
    let second = on(&servers).await;
    let budget = ms(500);
    let guard = once(&first, "k").stop_budget(budget).acquire().await.unwrap();
    let token = guard.token();
    let request = second.lock("k").wait(PATIENCE);
    let next = tokio::spawn(async move { request.acquire().await.map(|guard| (Instant::now(), guard.token())) });
    pause(&servers[1..]).unwrap();
    let stops = Instant::now() + guard.valid_for();
    assert_eq!(guard.run(std::future::pending::<()>()).await, Err(Lost::Expired));
    let stopped = Instant::now();
    resume(&servers[1..]).unwrap();
    let (began, next) = next.await.unwrap().unwrap();
    assert!(began > stopped && began >= stops + budget, "{:?} after the end of the work", began - stopped);
    assert!(next > token);
}

/// A program that is active while it holds the lock, again and again.
struct Program {
    /// Its way to each server.
    proxies: Vec<Proxy>,
    /// Ends its work.
    end: Arc<Notify>,
}

/// The beginning of the work of a program.
struct Turn {
    program: usize,
    token: u64,
    /// The other programs that are active.
    others: usize,
}

impl Program {
    fn start(program: usize, servers: &[RedisServer], active: Arc<AtomicUsize>, turns: mpsc::Sender<Turn>) -> Self {
        let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::to(server.address()).unwrap()).collect();
        let nodes = ["a", "b", "c"].into_iter().zip(&proxies);
        let builder = nodes
            .fold(builder(&[]), |builder, (name, proxy)| builder.node(name, format!("redis://{}", proxy.address())));
        let (locker, end): (Locker, Arc<Notify>) = (builder.build().unwrap(), Arc::default());
        let ended = end.clone();
        tokio::spawn(async move {
            loop {
                let guard = locker.lock("k").stop_budget(ms(500)).wait(PATIENCE).acquire().await.unwrap();
                let work = async {
                    let label = Label(active.clone());
                    let others = label.0.fetch_add(1, SeqCst);
                    turns.send(Turn { program, token: guard.token(), others }).await.unwrap();
                    ended.notified().await;
                };
                let _ = guard.run(work).await;
            }
        });
        Self { proxies, end }
    }
}

/// Says that a program is active.
struct Label(Arc<AtomicUsize>);

impl Drop for Label {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// vault#18117: two pods are labelled active at once. kuberhealthy#1533: after one failed renewal, a program never contends again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_cut_off_is_never_active_beside_another_one_and_contends_again() {
    let (servers, active) = (servers(3), Arc::default());
    let (sender, mut turns) = mpsc::channel(1);
    let start = |number| Program::start(number, &servers, Arc::clone(&active), sender.clone());
    let programs = [start(0), start(1)];
    let mut next = async || {
        let turn = tokio::time::timeout(PATIENCE, turns.recv()).await.expect("a turn").unwrap();
        assert_eq!(turn.others, 0, "active beside program {}", turn.program);
        turn
    };
    let mut turn = next().await;
    for cut in [Some(Cut::Hang), Some(Cut::Reset), None].repeat(2) {
        let Turn { program, token, .. } = turn;
        match cut {
            None => programs[program].end.notify_one(),
            Some(cut) => programs[program].proxies.iter().for_each(|proxy| proxy.cut(cut)),
        }
        turn = next().await;
        while cut.is_some() && turn.program == program {
            turn = next().await;
        }
        programs[program].proxies.iter().for_each(Proxy::restore);
        assert!(turn.token > token);
    }
}
