//! What a guard says and does.

use std::time::{Duration, Instant};

use redislease_lab::{pause, resume};
use redislease_locker::{AcquireError, Lost, Released};

use crate::support::{LONGEST, PATIENCE, delete, eventually, locked, ms, on, once, servers, three};

#[tokio::test]
async fn a_lock_without_a_majority_is_lost_before_it_expires_and_drops_the_work() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let token = guard.lost_token();
    for server in &servers[..2] {
        server.process().kill().unwrap();
    }
    let began = Instant::now();
    let result = guard.run(std::future::pending::<()>()).await;
    assert_eq!(result, Err(Lost::Expired));
    assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    assert_eq!((guard.check(), guard.valid_for()), (Err(Lost::Expired), Duration::ZERO));
    tokio::time::timeout(PATIENCE, token.cancelled()).await.unwrap();
    assert_eq!(guard.release().await, Released::AlreadyLost(Lost::Expired));
}

#[tokio::test]
async fn verify_sees_keys_that_somebody_has_deleted() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    assert_eq!(guard.verify().await, Ok(guard.token()));
    delete(&servers, "k");
    assert_eq!(guard.check(), Ok(guard.token()), "it only knows what the servers have said");
    assert_eq!(guard.verify().await, Err(Lost::Missing));
    assert_eq!(guard.lost().await, Lost::Missing);
}

/// A call that waited for the next regular renewal would take most of its interval.
#[tokio::test]
async fn verify_takes_no_renewal_interval() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(LONGEST).renew_every(ms(500)).acquire().await.unwrap();
    let began = Instant::now();
    for _ in 0..40 {
        assert_eq!(guard.verify().await, Ok(guard.token()));
    }
    assert!(began.elapsed() < ms(5000), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_lock_can_be_extended_up_to_the_longest_lease() {
    let (servers, locker) = three().await;
    let mut guard = once(&locker, "k").ttl(ms(500)).acquire().await.unwrap();
    assert_eq!(guard.extend(LONGEST).await, Ok(guard.token()));
    assert!(guard.valid_for() > ms(500), "{:?}", guard.valid_for());
    for ttl in [LONGEST + ms(1), ms(1499)] {
        match guard.extend(ttl).await {
            Err(error @ AcquireError::Invalid { .. }) => {
                let begin = format!("key \"k\": it cannot be extended to {ttl:?}: use 1.5s, the present ttl, to 1.5s");
                assert!(error.to_string().starts_with(&begin), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    delete(&servers, "k");
    assert_eq!(
        guard.extend(LONGEST).await,
        Err(AcquireError::Lost { key: "k".into(), why: Lost::Missing }),
        "a lock without keys is not extended"
    );
}

#[tokio::test]
async fn a_lock_ends_after_the_longest_time_it_may_be_held() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(ms(600)).max_hold(ms(300)).acquire().await.unwrap();
    let mut renewals = guard.renewals();
    assert_eq!(guard.run(std::future::pending::<()>()).await, Err(Lost::MaxHold));
    assert_eq!(guard.check(), Err(Lost::MaxHold));
    assert_eq!(renewals.next().await, Err(Lost::MaxHold), "no renewal made it valid for longer than that");
    // The guard is still there, and the lock ends all the same.
    eventually("the keys to expire", || locked(&servers, "k") == 0).await;
    let next = locker.lock("k").acquire().await.unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn a_release_after_a_loss_returns_when_the_servers_have_deleted_the_keys() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(LONGEST).max_hold(ms(50)).acquire().await.unwrap();
    assert_eq!(guard.lost().await, Lost::MaxHold);
    pause(&servers).unwrap();
    let mut release = Box::pin(guard.release());
    assert!(tokio::time::timeout(ms(50), &mut release).await.is_err(), "no server has answered");
    resume(&servers).unwrap();
    assert_eq!(release.await, Released::AlreadyLost(Lost::MaxHold));
    eventually("the keys to be deleted", || locked(&servers, "k") == 0).await;
}

#[tokio::test]
async fn the_work_may_borrow_the_guard_and_return_a_value() {
    let (_servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let work = async {
        tokio::task::yield_now().await;
        guard.check().map(|token| token + 1)
    };
    assert_eq!(guard.run(work).await, Ok(Ok(guard.token() + 1)));
    assert_eq!(guard.release().await, Released::Majority);
}

#[tokio::test]
async fn each_renewal_is_reported_and_the_loss_ends_them() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(ms(600)).acquire().await.unwrap();
    assert!(guard.valid_for() > Duration::ZERO && guard.valid_for() <= ms(540), "less the stop budget");
    let mut renewals = guard.renewals();
    for _ in 0..3 {
        tokio::time::timeout(PATIENCE, renewals.next()).await.unwrap().unwrap();
        assert!(guard.valid_for() > ms(200), "{:?}", guard.valid_for());
    }
    delete(&servers, "k");
    let lost = async { while renewals.next().await.is_ok() {} };
    tokio::time::timeout(PATIENCE, lost).await.unwrap();
    assert_eq!(renewals.next().await, Err(Lost::Missing));
}

#[tokio::test]
async fn the_end_of_a_guard_ends_its_renewals_and_is_no_loss() {
    let (_servers, locker) = three().await;
    for is_released in [true, false] {
        let guard = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
        let mut renewals = guard.renewals();
        if is_released {
            guard.release().await;
        } else {
            drop(guard);
        }
        let end = async { while renewals.next().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, end).await.unwrap();
        assert_eq!(renewals.next().await, Err(Lost::Released));
        locker.lock("k").wait(PATIENCE).acquire().await.unwrap().release().await;
        assert_eq!(renewals.next().await, Err(Lost::Released), "also when the servers have answered");
    }
}

/// A timer of the operating system for each of them would need more file descriptors than many processes may have. Without one, the
/// thread that renews all locks did nothing but ask for it again.
#[tokio::test]
async fn a_thousand_locks_with_max_hold_share_one_timer() {
    let (_servers, locker) = three().await;
    let timers = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        names.filter(|name| name.to_string_lossy().contains("timerfd")).count()
    };
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..1000 {
        tasks.spawn(locker.lock(format!("k{number}")).wait(PATIENCE).max_hold(ms(1000)).acquire());
    }
    let guards: Vec<_> = tasks.join_all().await.into_iter().map(Result::unwrap).collect();
    // Other tests in this process have lockers too.
    assert!(timers() < 500, "{}", timers());
    let longer = locker.lock("longer").max_hold(PATIENCE).acquire().await.unwrap();
    let shorter = locker.lock("shorter").max_hold(ms(50)).acquire().await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, shorter.lost()).await.unwrap(), Lost::MaxHold);
    for guard in &guards {
        assert_eq!(tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap(), Lost::MaxHold);
    }
    assert_eq!(longer.check(), Ok(longer.token()));
}

/// Another program can have the lock before all servers have answered the release.
#[tokio::test]
async fn the_token_is_cancelled_by_a_drop_before_any_server_answers() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    let (cancelled, token) = (guard.lost_token(), guard.lost_token());
    cancelled.cancel();
    pause(&servers).unwrap();
    assert!(!token.is_cancelled(), "each call has its own token");
    let began = Instant::now();
    drop(guard);
    token.cancelled().await;
    assert!(began.elapsed() < ms(800), "the command timeout is a second: {:?}", began.elapsed());
    resume(&servers).unwrap();
}

/// A loop without an `await` asks only the token.
#[tokio::test]
async fn a_token_that_is_asked_for_after_the_loss_is_cancelled() {
    let (_servers, locker) = three().await;
    for _ in 0..20 {
        let guard = once(&locker, "k").max_hold(ms(20)).acquire().await.unwrap();
        eventually("the loss", || guard.check().is_err()).await;
        assert!(guard.lost_token().is_cancelled());
        guard.release().await;
    }
}

/// The thread of the nodes may end before a task on it has its turn.
#[tokio::test]
async fn the_token_is_cancelled_also_by_the_last_guard_of_a_locker() {
    let servers = servers(1);
    for _ in 0..5 {
        let locker = on(&servers).await;
        let guard = locker.lock("k").acquire().await.unwrap();
        let token = guard.lost_token();
        drop(locker);
        drop(guard);
        tokio::time::timeout(PATIENCE, token.cancelled()).await.unwrap();
    }
}
