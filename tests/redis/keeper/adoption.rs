//! Another process continues a term from the status.

use redislease_core::lease::{Config, EndReason, Standing, TermId};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::Millis;
use redislease_lab::{pause, resume};
use redislease_lock::clock;

use super::candidate::{Candidate, candidate_of, lease, patient, ready, standing_on, three, voters};
use crate::support::{eventually, kill};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_term_whose_keys_are_gone_is_lost_at_once() {
    let (servers, _world, candidate) = candidate_of(&patient()).await;
    let id = TermId { attempt: Attempt(77), token: Token(5), holder: Holder("pod-1".into()) };
    let start = clock::now();
    candidate.adopt(id.clone());
    let loss = candidate.lost().await;
    assert_eq!((&loss.term.id, loss.reason), (&id, EndReason::Misses));
    assert!(loss.at.since(start) < Millis(5000), "without waiting for an interval or a TTL");
    assert!(servers.iter().all(|server| candidate.is_free(server)), "no key is set again");
    let held = |standing: &Standing| matches!(standing, Standing::Held(_));
    assert!(!candidate.history.observations().views.iter().any(|(_, view)| held(&view.standing)));
}

/// A term is identified by its attempt and its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_is_not_adopted_under_another_token() {
    let servers = voters(3);
    let (ours, theirs) = (ready(&servers, &patient()).await, ready(&servers, &patient()).await);
    let first = Candidate::on(&ours, &["k"], patient());
    let id = first.hold("pod-1").await;
    // Nor with a prefix of the token, or a longer token with this prefix.
    for token in [id.token.0 / 10, id.token.0 + 1, id.token.0 * 2] {
        let second = Candidate::on(&theirs, &["other"], patient());
        second.adopt(TermId { token: Token(token), ..id.clone() });
        assert_eq!(second.lost().await.reason, EndReason::Misses);
    }
    let second = Candidate::on(&theirs, &["k"], patient());
    second.adopt(TermId { token: Token(id.token.0 / 10), ..id.clone() });
    assert_eq!(second.lost().await.reason, EndReason::Misses);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_term_without_a_quorum_is_uncertain_then_lost() {
    let (servers, world) = three(&lease()).await;
    kill(&servers[1..]);
    let reached = Candidate::on(&world, &["k"], lease());
    // The nodes may be unknown, for example after the quorum was deleted.
    let blind = Candidate::of(None, [world.lock("k")].into(), lease());
    for candidate in [&reached, &blind] {
        let id = TermId { attempt: Attempt(77), token: Token(5), holder: Holder("pod-1".into()) };
        let start = clock::now();
        candidate.adopt(id.clone());
        // A process that can confirm the term has time to do so before it is lost.
        eventually("unconfirmed", || async {
            matches!(candidate.view().standing, Standing::Uncertain(_)).then_some(())
        })
        .await;
        candidate.unconfirmed_shown(id.attempt);
        let loss = candidate.lost().await;
        assert_eq!((&loss.term.id, loss.reason), (&id, EndReason::NeverConfirmed));
        let ends = lease().drift.most(lease().ttl);
        assert!(loss.at >= start + ends, "{:?} after {start:?}", loss.at);
        assert!(loss.at < start + ends + Millis(1000), "{:?} after {start:?}", loss.at);
        let observed = candidate.history.observations();
        let uncertain = observed.views.iter().find(|(_, view)| matches!(view.standing, Standing::Uncertain(_)));
        let (at, _) = uncertain.expect("to be uncertain");
        assert!(*at >= start + lease().renew_interval, "{at:?} after {start:?}");
        assert!(*at < start + lease().renew_interval + Millis(1000), "{at:?} after {start:?}");
        let adopting = |standing: &Standing| matches!(standing, Standing::Adopting(_));
        assert!(observed.views.iter().filter(|(when, _)| when < at).all(|(_, view)| adopting(&view.standing)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncertain_term_is_held_again_when_the_quorum_is_back() {
    let config = Config { ttl: Millis(10_000), ..lease() };
    let (servers, world) = three(&config).await;
    let first = Candidate::on(&world, &["k"], config.clone());
    let id = first.hold("pod-1").await;
    pause(&servers[1..]).unwrap();
    drop(first);
    let second = Candidate::on(&world, &["k"], config.clone());
    second.adopt(id.clone());
    second.wait("uncertain", |view| matches!(view.standing, Standing::Uncertain(_))).await;
    resume(&servers[1..]).unwrap();
    second.held(&id).await;
    eventually("two nodes to keep it", || async { (standing_on(&second, &servers, &id) >= 2).then_some(()) }).await;
}
