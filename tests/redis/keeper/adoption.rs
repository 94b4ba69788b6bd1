//! Another process continues a term from the status.

use redislease_core::lease::{EndReason, Standing};

use super::candidate::{Candidate, lease, ready, three, voters};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_process_continues_with_the_same_token() {
    let (servers, world) = three(&lease()).await;
    let first = Candidate::on(&world, &["k"], lease());
    let id = first.hold("pod-1").await;
    drop(first);
    drop(world);

    let world = ready(&servers, &lease()).await;
    let second = Candidate::on(&world, &["k"], lease());
    second.want("pod-2");
    second.adopt(id.clone());
    second.held(&id).await;
    assert!(second.has_kept(&id));
    let times = lease().ttl.0 / lease().renew_interval.0 + 1;
    second.renewed(usize::try_from(times).unwrap()).await;
    assert!(second.has_kept(&id), "longer than the keys of the first process last");
    second.joined(&servers, &id).await;
}

/// Renewal by two processes is not contention: each extends the same term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_may_renew_one_term_and_the_seal_of_either_ends_it() {
    let servers = voters(3);
    let (ours, theirs) = (ready(&servers, &lease()).await, ready(&servers, &lease()).await);
    let first = Candidate::on(&ours, &["k"], lease());
    let id = first.hold("pod-1").await;
    let second = Candidate::on(&theirs, &["k"], lease());
    second.adopt(id.clone());
    second.held(&id).await;
    tokio::join!(first.renewed(4), second.renewed(4));
    assert!(first.has_kept(&id) && second.has_kept(&id));

    first.end(id.clone(), false);
    let loss = second.lost().await;
    assert_eq!((&loss.term.id, loss.reason), (&id, EndReason::Misses));
    first.wait("ended", |view| view.ending.is_none() && view.standing == Standing::Idle).await;
    second.free(&servers).await;
}
