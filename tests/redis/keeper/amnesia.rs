//! Nodes that lose data while a lease is held: they lose their vote, the term continues, and they join it again.

use redislease_core::lease::{Config, Standing};
use redislease_core::time::{Drift, Millis};
use redislease_lock::clock;

use super::candidate::{Candidate, candidate_of, lease, process, standing_on, term};
use crate::support::{eventually, kill};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_old_snapshot_has_no_vote_for_its_old_terms() {
    let config = Config { ttl: Millis(5000), ..lease() };
    let (servers, world, candidate) = candidate_of(&config).await;
    let old = candidate.hold("pod-1").await;
    candidate.joined(&servers[2..], &old).await;
    let older = servers[2].save().unwrap();
    candidate.end(old.clone(), true);
    candidate.free(&servers[2..]).await;
    let id = candidate.hold_on_all("pod-2", &servers).await;

    servers[2].restart_from(&older).unwrap();
    assert!(candidate.stands(&servers[2], 't', &old), "it holds a term that was released");
    world.quarantined(2).await;
    // No process continues that term because of this node.
    let other = Candidate::on(&world, &["k"], config.clone());
    other.adopt(old.clone());
    assert_eq!(other.lost().await.term.id, old);

    world.up(2).await;
    candidate.joined(&servers[2..], &id).await;
    assert!(candidate.has_kept(&id), "{:?}", candidate.view());
    candidate.end(id.clone(), true);
    // Its counter was lower too.
    let next = candidate.hold("pod-3").await;
    assert!(next.token > id.token);
}

/// All nodes being empty also looks like a total loss: no process holds the lease until all lost leases have expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_all_nodes_empty_a_longest_lease_passes_before_the_next_term() {
    let (servers, world, candidate, id) = term().await;
    kill(&servers);
    let loss = candidate.lost().await;
    assert_eq!(loss.term.id, id);
    let since = clock::now();
    let wall = clock::unix_micros();
    for server in &servers {
        server.restart_empty().unwrap();
    }
    let other = process(&servers, &lease());
    let rival = Candidate::on(&other, &["k"], lease());
    rival.want("pod-2");

    let next = eventually("a holder", || async {
        let taken = |candidate: &Candidate| match candidate.view().standing {
            Standing::Publishing(term) if term.id != id => {
                candidate.history.taken_at(term.id.attempt).map(|at| (at, term.id))
            }
            _ => None,
        };
        taken(&candidate).or_else(|| taken(&rival))
    })
    .await;
    let (at, next) = next;
    assert!(at >= since + Drift::STANDARD.most(lease().ttl), "held {:?} after the restart", at.since(since));
    assert!(next.token > id.token, "{next:?} after {id:?}");
    assert!(next.token.0 > wall, "the token comes from the clocks: no node has {id:?}");
    let keeps = standing_on(&candidate, &servers, &next);
    assert!(keeps >= 2, "{keeps}");
    drop(world);
}
