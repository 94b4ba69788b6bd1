//! Servers that refuse what renewals need: no term begins that could not be kept.

use std::time::Duration;

use redislease::nodes::{self, Misconfiguration, NodeState};
use redislease_core::lease::Standing;

use super::candidate::{Candidate, lease, voters};
use crate::refusals::{grant, user};
use crate::support::{World, addresses, config};

/// Every 19 s the lease was taken and lost again, under a quorum that looked well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_extend_no_term_begins_and_the_nodes_say_why() {
    let servers = voters(3);
    for server in &servers {
        grant(server, &["-pexpire"]);
    }
    let world = World::start(&nodes::Config {
        longest_lease: lease().ttl,
        command_timeout: lease().command_timeout,
        credentials: Some(user()),
        ..config(addresses(&servers))
    });
    let refusing = NodeState::Misconfigured(Misconfiguration::Refusing);
    for node in 0..3 {
        let status = world.wait(node, "refusing", |status| status.state == refusing).await;
        assert!(status.message.contains("refuses the command PEXPIRE"), "{}", status.message);
    }
    let candidate = Candidate::on(&world, &["k"], lease());
    candidate.want("pod-1");
    tokio::time::sleep(Duration::from(lease().ttl)).await;
    let told = candidate.history.told().views.clone();
    assert!(told.iter().all(|(_, view)| view.standing.term().is_none()), "{told:?}");

    for server in &servers {
        grant(server, &[]);
    }
    let term = candidate.taken().await;
    assert!(matches!(candidate.lease.view().standing, Standing::Publishing(_)), "{term:?}");
}
