//! etcd is restored from a backup: resource versions go back, and what was written since the backup is lost.

use std::time::Duration;

use redislease_lab::{Installation, Lease, LeaseState, Result};
use serde_json::{Value, json};

use crate::granularity::{replicas, scaled, switching, workload};
use crate::holder::held;
use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, count, keys, throughout};

/// Limit until everything is right again: the term that the backup does not know ends with its keys, and a new one begins. A write that
/// is repeated because its answer was lost can wait for 31 s.
const CONVERGED: Duration = Duration::from_mins(1);

/// The resource versions move so far ahead of the backup that no later write of this test reaches them.
fn write_much(installation: &Installation) -> Result<()> {
    let item = |number: u32| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("many-{number}"), "namespace": "default"}});
    installation.apply(&json!({"apiVersion": "v1", "kind": "List", "items": (0..300).map(item).collect::<Value>()}))
}

/// A term that the backup does not know.
fn next_term(lease: &Lease<'_>, before: &LeaseState) -> Result<LeaseState> {
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    lease.wait("no holder", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    lease.patch(&json!({"spec": {"suspend": false}}))?;
    lease.wait("another term", FIRST_ELECTION, |now| now.is_active() && now.token() > before.token())
}

#[test]
fn after_a_restore_of_etcd_everything_is_right_again() -> Result<()> {
    let Cluster { operator, installation } = Cluster::of(&switching())?;
    let cluster = installation.control_plane();
    let (pods, of_pod) = held(&installation, "restored")?;
    let scales = scaled(&installation, "restored-scaled", "Deployment", 0)?;
    let of_workload = scales.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    replicas(&installation, "restored-scaled", "active", 3)?;
    pods.wait_for_roles(&of_pod, 3, FIRST_ELECTION)?;

    let backup = cluster.back_up()?;
    let of_pod = next_term(&pods, &of_pod)?;
    let of_workload = next_term(&scales, &of_workload)?;
    replicas(&installation, "restored-scaled", "active", 3)?;
    // A lease that the backup does not know.
    let (_, late) = held(&installation, "restored-late")?;
    write_much(&installation)?;
    cluster.restore(&backup)?;

    let right = |lease: &Lease<'_>, last: &LeaseState| {
        lease.wait("held with no lower token", CONVERGED, |now| now.is_active() && now.token() >= last.token())
    };
    let now = right(&pods, &of_pod)?;
    pods.wait_for_roles(&now, 3, CONVERGED)?;
    let token = right(&scales, &of_workload)?.token().unwrap_or_default().to_string();
    installation.wait_for("the workload has the token of the status", CONVERGED, || {
        let shown = workload(&installation, "restored-scaled", "Deployment")?;
        let carried = &shown["metadata"]["annotations"]["token.redislease.io/billing"];
        let is_right = *carried == *token && shown["spec"]["replicas"] == 3;
        if is_right { Ok(()) } else { Err(format!("{} {}", shown["metadata"], shown["spec"]["replicas"])) }
    })?;
    let attempt = late.attempt().unwrap_or_default();
    installation.wait_for("nobody renews the lease that does not exist any more", AFTER_ONE_LEASE, || {
        let keys = keys(&installation, "restored-late", "billing");
        if count(&keys, attempt, "t") == 0 { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;

    // The watches work: the operator sees later changes, and nothing else moves.
    cluster.kubectl(&["scale", "deployment", "billing", "--namespace=restored-scaled", "--replicas=5"])?;
    replicas(&installation, "restored-scaled", "active", 3)?;
    let before = pods.state()?;
    let holder = before.holder().unwrap_or_default();
    cluster.kubectl(&["delete", "pod", "-n", "restored", holder])?;
    let next = pods.wait("another holder", CONVERGED, |now| now.is_active() && now.token() > before.token())?;
    pods.wait_for_roles(&next, 3, CONVERGED)?;
    throughout(Duration::from_secs(5), |after| {
        assert_eq!(pods.state()?.attempt(), next.attempt(), "after {after:?}");
        Ok(())
    })?;
    operator.stop().map(drop)
}
