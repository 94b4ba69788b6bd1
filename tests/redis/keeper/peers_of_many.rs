//! Known bugs of other Redis locks and leader electors, each reproduced with several holders.

use redislease_core::lease::{Config, Publication, Standing};
use redislease_core::op::{Grant, Stage, Stages, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use redislease_lock::clock;

use super::candidate::{Candidate, lease, patient, ready, standing_on, voters};
use crate::support::{acquire, confirm, eventually, extend, get, release, seal};

/// Two clients of node-redlock 5 beta on an even number of nodes split the votes and hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_vote_of_an_even_number_of_nodes_is_tried_again() {
    let servers = voters(4);
    let config = Config { quorum: Quorum::of(4).unwrap(), ..patient() };
    assert_eq!(config.quorum.majority(), 3);
    let (ours, theirs) = (ready(&servers, &config).await, ready(&servers, &config).await);
    let mut last = None;
    let mut tries = 0;
    for round in 0..20 {
        // A new keeper has no backoff: both start at once.
        let rivals = [&ours, &theirs].map(|world| Candidate::on(world, &["k"], config.clone()));
        // The order alternates; otherwise the same process would always win.
        rivals[round % 2].want("pod");
        rivals[1 - round % 2].want("pod");
        let taken = |candidate: &Candidate| match candidate.lease.view().standing {
            Standing::Publishing(term) => Some(term.id),
            _ => None,
        };
        let ids = eventually("one to win", || async {
            let ids = [taken(&rivals[0]), taken(&rivals[1])];
            ids.iter().any(Option::is_some).then_some(ids)
        })
        .await;
        let [winner] = ids.iter().flatten().collect::<Vec<_>>()[..] else { panic!("two won: {ids:?}") };
        assert!(last.is_none_or(|last| winner.token > last), "{winner:?} after {last:?}");
        last = Some(winner.token);
        let (ahead, behind) = if ids[0].is_some() { (&rivals[0], &rivals[1]) } else { (&rivals[1], &rivals[0]) };
        tries += rivals.iter().map(|rival| rival.history.attempts().len()).sum::<usize>();
        behind.lease.forget();
        behind.wait("idle", |view| view.standing == Standing::Idle).await;
        ahead.lease.end(winner.clone(), true);
        ahead.free(&servers).await;
    }
    println!("{tries} tries for 20 terms");

    // And a permanent split: a process that never returns has grants on two of four nodes.
    let ghost = format!("p:{:032x}:1:ghost", 7);
    for server in &servers[..2] {
        server.command(&["SET", &ours.lock("k"), &ghost, "PX", "1500"]).unwrap();
    }
    let candidate = Candidate::on(&ours, &["k"], config);
    candidate.want("pod");
    candidate.taken().await;
    assert!(candidate.history.attempts().len() > 1, "the first attempt was split");
}

/// bsm/redislock compares a prefix of the value: a client with the token "ab" releases the lock of "abc".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_a_common_prefix_is_another_name() {
    let servers = voters(3);
    let world = ready(&servers, &patient()).await;
    let short = Candidate::on(&world, &["ab"], patient());
    let long = Candidate::on(&world, &["abc"], patient());
    let (of_short, of_long) = tokio::join!(short.hold("pod"), long.hold("pod-1"));
    short.joined(&servers, &of_short).await;
    long.joined(&servers, &of_long).await;
    short.lease.end(of_short, true);
    short.free(&servers).await;
    assert_eq!(standing_on(&long, &servers, &of_long), servers.len());
    assert!(long.has_kept(&of_long));

    // One key: its owner is attempt 12 with token 50, and others have a part of that, or more than it.
    let vote = world.ask(0, acquire(0x12)).await;
    let Vote::Granted(Grant(grant)) = vote else { panic!("{vote:?}") };
    for other in [0x1, 0x123] {
        for op in [confirm(other, grant, 50), extend(other, 50), seal(other)] {
            let vote = world.ask(0, op.clone()).await;
            assert!(matches!(vote, Vote::Miss(Some(_))), "{op:?}: {vote:?}");
        }
        assert_eq!(world.ask(0, release(other, Stages::All)).await, Vote::Released(0));
    }
    assert!(matches!(world.ask(0, confirm(0x12, grant, 50)).await, Vote::Confirmed { .. }));
    for other in [extend(0x1, 50), extend(0x123, 50), extend(0x12, 5), extend(0x12, 500), seal(0x1), seal(0x123)] {
        let vote = world.ask(0, other.clone()).await;
        assert!(matches!(vote, Vote::Miss(Some(_))), "{other:?}: {vote:?}");
    }
    for other in [0x1, 0x123] {
        assert_eq!(world.ask(0, release(other, Stages::All)).await, Vote::Released(0));
    }
    assert_eq!(get(&servers[0], &world.lock("k")), Some(format!("t:{:032x}:50:pod-18", 0x12)));
}

/// In etcd a stale unlock deletes the lock of the next holder (etcd#22082).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_end_leaves_the_newer_term_alone() {
    let servers = voters(3);
    let config = Config { renew_interval: Millis(500), ..patient() };
    let (ours, theirs) = (ready(&servers, &config).await, ready(&servers, &config).await);
    let first = Candidate::on(&ours, &["k"], config.clone());
    let old = first.hold("pod-1").await;
    first.lease.end(old.clone(), true);
    first.free(&servers).await;
    let second = Candidate::on(&theirs, &["k"], config);
    let new = second.hold_on_all("pod-2", &servers).await;
    // From a process that knows the term only from the status, as a seal and as a release, and from the new holder's own
    // process.
    for proof in [false, true] {
        first.lease.end(old.clone(), proof);
        second.lease.end(old.clone(), proof);
    }
    first.lease.retire();
    eventually("every node to answer the release", || async { first.lease.has_ended().then_some(()) }).await;
    second.renewed(1).await;
    assert_eq!(standing_on(&second, &servers, &new), 3);
    assert!(second.has_kept(&new), "{:?}", second.lease.view());
}

/// kured's lock stays permanently when the node that acquired it is deleted (kured#822).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_of_a_vanished_process_expires() {
    let servers = voters(3);
    let (ours, theirs) = (ready(&servers, &lease()).await, ready(&servers, &lease()).await);
    let gone = Candidate::on(&ours, &["k"], lease());
    gone.want("pod-1");
    // It dies after the second round and before its status write: no other process may delete its keys.
    let id = gone.taken().await.id;
    gone.lease.published(id.attempt, Publication::Unknown);
    gone.lease.close().await;
    drop(ours);
    let stopped = clock::now();
    let next = Candidate::on(&theirs, &["k"], lease());
    next.want("pod-2");
    let view = next.wait("refused", |view| view.refused_by.is_some()).await;
    let by = view.refused_by.unwrap();
    assert_eq!((by.attempt, by.stage), (id.attempt, Stage::Term));
    let term = next.taken().await.id;
    assert!(term.token > id.token);
    let waited = next.history.taken_at(term.attempt).unwrap().since(stopped);
    assert!(waited <= lease().ttl + Millis(3000), "{waited:?}");
}
