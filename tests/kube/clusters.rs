//! Two clusters that share a lease on one quorum.

use redislease_lab::{LeaseState, Process, Result};
use serde_json::json;

use crate::holder::held;
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, keys, no_key_is_left, rounds, throughout, two_control_planes,
};

/// An API server fault, and its recovery.
type Failure = fn(&Process) -> Result<()>;

#[test]
fn a_cluster_without_its_api_server_does_not_take_a_shared_lease() -> Result<()> {
    let _turn = two_control_planes();
    let (here, there) = (Cluster::start()?, Cluster::start()?);
    let installation = &here.installation;
    let (ours, _) = held(installation, "two-clusters")?;
    let other = &there.installation;
    other.deployment("two-clusters", "billing", 3)?;
    let theirs = other.lease("two-clusters", "billing", &json!({}))?;
    theirs.wait("passive", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster")?;

    let api_server = other.control_plane().api_server();
    let failures: [(&str, Failure, Failure); 2] =
        [("hangs", Process::pause, Process::resume), ("is down", Process::kill, Process::start)];
    for (how, fails, recovers) in &failures[..failures.len().min(rounds())] {
        let before = ours.wait("held", SOON, LeaseState::is_active)?;
        fails(api_server)?;
        // The lease is free for longer than one lease duration. Only the other cluster contends, and it cannot publish a
        // term.
        ours.patch(&json!({"spec": {"suspend": true}}))?;
        ours.wait("no holder", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
        no_key_is_left(installation, "two-clusters")?;
        throughout(AFTER_ONE_LEASE, |after| {
            let keys = keys(installation, "two-clusters", "billing");
            assert!(keys.iter().all(Option::is_none), "its API server {how}, after {after:?}: {keys:?}");
            Ok(())
        })?;
        ours.patch(&json!({"spec": {"suspend": false}}))?;
        let after = ours.wait("held at once", SOON, LeaseState::is_active)?;
        assert!(after.token() > before.token());

        // The keys of a vanished holder must expire. Both clusters may know the time, and only one may contend.
        let pod = after.holder().unwrap_or_default();
        let force = ["delete", "pod", "-n", "two-clusters", pod, "--force", "--grace-period=0"];
        installation.control_plane().kubectl(&force)?;
        let next =
            ours.wait("another holder", AFTER_ONE_LEASE, |now| now.is_active() && now.token() > after.token())?;

        recovers(api_server)?;
        other.control_plane().wait_ready()?;
        let passive = theirs
            .wait("passive", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster" && !now.is_active())?;
        assert!(passive.token() < next.token(), "the other cluster published no term meanwhile: {passive}");
        assert_eq!(ours.state()?.attempt(), next.attempt());
    }
    Ok(())
}
