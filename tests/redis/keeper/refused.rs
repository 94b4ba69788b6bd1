//! Servers that refuse commands that renewals need: no term begins that could not be renewed.

use std::time::Duration;

use redislease_core::lease::Standing;
use redislease_lock::nodes::{self, Misconfiguration};

use super::candidate::{Candidate, lease, voters};
use crate::refusals::{grant, user};
use crate::support::{World, addresses, config};

/// Without this check the lease was acquired and lost every 19 s, on a quorum that was reported as healthy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_permission_to_extend_no_term_begins_and_the_nodes_report_why() {
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
    for node in 0..3 {
        let status = world.misconfigured(node, Misconfiguration::Refusing).await;
        assert!(status.message.contains("refuses the command PEXPIRE"), "{}", status.message);
    }
    let candidate = Candidate::on(&world, &["k"], lease());
    candidate.want("pod-1");
    tokio::time::sleep(Duration::from(lease().ttl)).await;
    let observed = candidate.history.observations().views.clone();
    assert!(observed.iter().all(|(_, view)| view.standing.term().is_none()), "{observed:?}");

    for server in &servers {
        grant(server, &[]);
    }
    let term = candidate.taken().await;
    assert!(matches!(candidate.view().standing, Standing::Publishing(_)), "{term:?}");
}
