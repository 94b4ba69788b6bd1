//! Acquiring a lease on real servers.

use redislease_core::lease::{Publication, Standing};
use redislease_lock::clock;

use super::candidate::{candidate_of, lease, patient, standing_on};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_is_confirmed_published_and_only_then_held() {
    let (servers, _world, candidate) = candidate_of(&patient()).await;
    candidate.want("pod-1");
    let term = candidate.taken().await;
    assert_eq!(&*term.id.holder.0, "pod-1");
    assert!(standing_on(&candidate, &servers, &term.id) >= 2, "a majority has it before it is published");
    let (stop_at, valid_until) = (term.stop_at.unwrap(), term.valid_until.unwrap());
    assert_eq!(valid_until.since(stop_at), patient().stop_budget);

    candidate.published(term.id.attempt, Publication::Unknown);
    candidate.published(term.id.attempt, Publication::Written);
    candidate.held(&term.id).await;
    let mut order: Vec<&str> = candidate
        .history
        .observations()
        .views
        .iter()
        .filter_map(|(_, view)| match view.standing {
            Standing::Idle => None,
            Standing::Acquiring(..) => Some("acquiring"),
            Standing::Publishing(_) => Some("publishing"),
            Standing::Held(_) => Some("held"),
            _ => Some("other"),
        })
        .collect();
    // Renewals change the view too.
    order.dedup();
    assert_eq!(order, ["acquiring", "publishing", "held"]);

    candidate.end(term.id.clone(), true);
    let next = candidate.hold("pod-2").await;
    assert!(next.token > term.id.token, "{next:?} after {term:?}");
    assert_ne!(next.attempt, term.id.attempt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_the_acquire_is_joined_before_the_first_renewal() {
    // The node that refused is asked again after 2 s. The first renewal is due after 5 s.
    let config = patient();
    let (servers, world, candidate) = candidate_of(&config).await;
    let ghost = format!("p:{:032x}:1:ghost", 7);
    let span = lease().renew_interval.0.to_string();
    servers[2].command(&["SET", &world.lock("k"), &ghost, "PX", &span]).unwrap();
    let id = candidate.hold("pod-1").await;
    assert!(!candidate.stands(&servers[2], 't', &id));

    candidate.joined(&servers[2..], &id).await;
    let (began, ..) = candidate.history.taking(id.attempt);
    let took = clock::now().since(began);
    assert!(took < config.renew_interval, "joined after {took:?}:\n{}", candidate.history.story());
    assert!(!candidate.history.renewed().is_empty(), "the grant is confirmed without a round that began after it");
    assert!(candidate.has_kept(&id));
    assert_eq!(standing_on(&candidate, &servers, &id), 3);
}
