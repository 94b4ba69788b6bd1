//! Leases that a cluster holds: a workload runs in one cluster only.

use std::thread;
use std::time::Duration;

use redislease_lab::{Installation, InstallationOptions, Lease, LeaseState, Result};
use serde_json::{Value, json};

use crate::handover::{handover, to_another_cluster};
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, options, redislease, shared_with_rights, the_status_is_kept,
    two_control_planes,
};

const ROLE: &str = "lease.redislease.io/billing";
const TOKEN: &str = "token.redislease.io/billing";
/// Limit for a change that the watch of workloads shows.
const READ_AGAIN: Duration = Duration::from_mins(1);

pub fn switching() -> InstallationOptions {
    InstallationOptions { allow_scale: true, allow_suspend: true, ..options() }
}

fn path(namespace: &str, kind: &str) -> String {
    match kind {
        "CronJob" => format!("/apis/batch/v1/namespaces/{namespace}/cronjobs/billing"),
        _ => format!("/apis/apps/v1/namespaces/{namespace}/{}s/billing", kind.to_lowercase()),
    }
}

/// A Deployment or StatefulSet `billing` that its lease may start and stop.
pub fn consenting(installation: &Installation, of: &str, kind: &str, replicas: u8) -> Result<()> {
    let annotations = json!({"redislease.io/activated-by": "billing"});
    let over = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
    installation.workload(kind, of, "billing", &over)
}

/// The lease of this workload, with three replicas where it is active.
pub fn scaling<'a>(installation: &'a Installation, of: &str, kind: &str) -> Result<Lease<'a>> {
    installation.lease(
        of,
        "billing",
        &json!({
            "granularity": "Cluster",
            "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": "billing"}},
            "activation": {"scale": {"replicas": 3}},
        }),
    )
}

/// Both of them.
pub fn scaled<'a>(installation: &'a Installation, of: &str, kind: &str, replicas: u8) -> Result<Lease<'a>> {
    consenting(installation, of, kind, replicas)?;
    scaling(installation, of, kind)
}

pub fn workload(installation: &Installation, of: &str, kind: &str) -> Result<Value> {
    Ok(installation.control_plane().get(&path(of, kind))?.unwrap_or_default())
}

/// Waits until the workload has the role, and this value in this field of its spec.
fn wait_for(
    installation: &Installation,
    of: &str,
    kind: &str,
    role: &str,
    field: &str,
    value: &Value,
) -> Result<Value> {
    installation.wait_for(&format!("{kind} {of}/billing is {role}, spec.{field} {value}"), READ_AGAIN, || {
        let now = workload(installation, of, kind)?;
        let is_so = now["metadata"]["labels"][ROLE] == role && now["spec"][field] == *value;
        if is_so { Ok(now) } else { Err(format!("{} {}", now["metadata"]["labels"], now["spec"][field])) }
    })
}

pub fn replicas(installation: &Installation, of: &str, role: &str, replicas: u8) -> Result<Value> {
    wait_for(installation, of, "Deployment", role, "replicas", &json!(replicas))
}

#[test]
fn a_workload_runs_in_the_cluster_that_holds_the_lease_and_pods_follow_a_handover() -> Result<()> {
    let _turn = two_control_planes();
    let here = Cluster::of(&switching())?;
    let there = Cluster::of(&InstallationOptions { cluster: "elsewhere".into(), ..switching() })?;
    let (here, there) = (&here.installation, &there.installation);
    thread::scope(|scope| {
        let of_pods = scope.spawn(|| to_another_cluster(here, there));
        a_workload_runs_in_the_cluster_that_holds_the_lease(here, there)?;
        of_pods.join().expect("no panic")
    })
}

fn a_workload_runs_in_the_cluster_that_holds_the_lease(here: &Installation, there: &Installation) -> Result<()> {
    let ours = scaled(here, "scaled", "Deployment", 0)?;
    let first = ours.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(first.holder(), Some("billing"), "the workload");
    let running = replicas(here, "scaled", "active", 3)?;
    assert_eq!(running["metadata"]["annotations"][TOKEN], first.token().unwrap_or_default().to_string());
    let why = ["why", "billing", "--namespace=scaled", "--quorum-namespace=redislease-system"];
    // On a busy machine, the API server can be slower than the timeout of one call.
    let said = here.wait_for("redislease why answers", FIRST_ELECTION, || {
        let output = redislease(here.control_plane().kubeconfig(), &why);
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{output:?}")) }
    })?;
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("the candidate is the Deployment billing itself"), "{said}");
    assert!(said.contains("billing in cluster lab has held the lease"), "{said}");
    // The workload of the other cluster is stopped, although its replicas were created.
    let theirs = scaled(there, "scaled", "Deployment", 2)?;
    theirs.wait("passive", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster")?;
    replicas(there, "scaled", "standby", 0)?;
    // Somebody scales it up.
    there.control_plane().kubectl(&["scale", "deployment", "billing", "--namespace=scaled", "--replicas=5"])?;
    replicas(there, "scaled", "standby", 0)?;

    let done = handover(here, "scaled", &["--to=cluster/elsewhere"]);
    assert!(done.status.success(), "{done:?}");
    replicas(there, "scaled", "active", 3)?;
    let stopped = workload(here, "scaled", "Deployment")?;
    assert_eq!((&stopped["spec"]["replicas"], &stopped["metadata"]["labels"][ROLE]), (&json!(0), &json!("standby")));
    let second = theirs.wait("held", SOON, LeaseState::is_active)?;
    assert!(second.token() > first.token(), "{second}");

    // A deleted lease leaves the workload as it is, without label and token.
    there.control_plane().kubectl(&["delete", "redislease", "billing", "--namespace=scaled"])?;
    there.wait_for("the label is gone", AFTER_ONE_LEASE, || {
        let now = workload(there, "scaled", "Deployment")?;
        let is_left = now["metadata"]["labels"][ROLE].is_string() || now["metadata"]["annotations"][TOKEN].is_string();
        if is_left { Err(now["metadata"].to_string()) } else { Ok(()) }
    })?;
    assert_eq!(workload(there, "scaled", "Deployment")?["spec"]["replicas"], 3);
    // Nobody competes for the lease any more.
    replicas(here, "scaled", "active", 3)?;
    Ok(())
}

#[test]
fn a_cron_job_is_suspended_without_the_lease_and_a_stateful_set_is_scaled() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let annotations = json!({"redislease.io/activated-by": "billing"});
    installation.workload("CronJob", "resumed", "billing", &json!({"metadata": {"annotations": annotations}}))?;
    let lease = installation.lease(
        "resumed",
        "billing",
        &json!({
            "granularity": "Cluster",
            "candidates": {"workloadRef": {"apiVersion": "batch/v1", "kind": "CronJob", "name": "billing"}},
            "activation": {"suspend": true},
        }),
    )?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    wait_for(installation, "resumed", "CronJob", "active", "suspend", &json!(false))?;
    assert_eq!(held.json()["status"]["candidates"]["eligible"], 1, "{held}");
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    wait_for(installation, "resumed", "CronJob", "standby", "suspend", &json!(true))?;

    let lease = scaled(installation, "stateful", "StatefulSet", 0)?;
    lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    wait_for(installation, "stateful", "StatefulSet", "active", "replicas", &json!(3))?;
    // The workload is deleted: nothing proves that its pods have stopped.
    installation.control_plane().kubectl(&["delete", "statefulset", "billing", "--namespace=stateful"])?;
    let ended =
        lease.wait("ended", READ_AGAIN, |now| now.json()["status"]["history"][0]["reason"] == "HolderVanished")?;
    assert!(!ended.is_active(), "{ended}");
    lease.wait("the reference is invalid", READ_AGAIN, |now| now.reason("Ready") == "InvalidReference")?;
    Ok(())
}

/// Its ReplicaSet runs on, and a workload of another cluster must not start beside it. The next workload of the name adopts both.
#[test]
fn a_lease_of_an_annotated_workload_keeps_its_term_after_an_orphaning_deletion() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let cluster = installation.control_plane();
    let annotations = json!({
        "redislease.io/lease": "true",
        "redislease.io/activation": "scale",
        "redislease.io/active-replicas": "3",
        "redislease.io/lease-duration": "10s",
        "redislease.io/renew-interval": "2s",
        "redislease.io/grace-period": "2s",
    });
    let over = json!({"metadata": {"annotations": annotations}});
    // The garbage collector learns of a new kind up to half a minute later. Until then it does not take the workload from the owners of
    // the lease, and deletes the lease later.
    installation.workload("Deployment", "collected", "first", &over)?;
    installation.find_lease("collected", "first").wait("created", SOON, |_| true)?;
    cluster.kubectl(&["delete", "deployment", "first", "--namespace=collected"])?;
    cluster.kubectl(&["wait", "redislease/first", "--namespace=collected", "--for=delete", "--timeout=90s"])?;
    installation.workload("Deployment", "orphaned", "billing", &over)?;
    let lease = installation.find_lease("orphaned", "billing");
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    replicas(installation, "orphaned", "active", 3)?;
    cluster.kubectl(&["delete", "deployment", "billing", "--namespace=orphaned", "--cascade=orphan"])?;
    lease.wait("the reference is invalid", READ_AGAIN, |now| now.reason("Ready") == "InvalidReference")?;
    the_status_is_kept(&lease, &held, AFTER_ONE_LEASE)?;
    let sets = cluster.get("/apis/apps/v1/namespaces/orphaned/replicasets")?.unwrap_or_default();
    assert_eq!(sets["items"][0]["spec"]["replicas"], 3, "it runs on");
    installation.workload("Deployment", "orphaned", "billing", &over)?;
    replicas(installation, "orphaned", "active", 3)?;
    let now = lease.state()?;
    assert!(now.is_active() && now.token() == held.token(), "the term is that of the new workload: {now}");
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    replicas(installation, "orphaned", "standby", 0)?;
    cluster.kubectl(&["delete", "deployment", "billing", "--namespace=orphaned", "--timeout=60s"])?;
    Ok(())
}

#[test]
fn without_leases_by_annotation_the_operator_sees_a_change_of_its_workload() -> Result<()> {
    // Without the watch, the workload is read every 10 s.
    const WATCHED: Duration = Duration::from_secs(5);
    let cluster = Cluster::of(&InstallationOptions { annotations: false, ..switching() })?;
    let installation = &cluster.installation;
    let lease = scaled(installation, "unannotated", "Deployment", 0)?;
    lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    replicas(installation, "unannotated", "active", 3)?;
    for other in [5, 1] {
        let to = format!("--replicas={other}");
        installation.control_plane().kubectl(&["scale", "deployment", "billing", "--namespace=unannotated", &to])?;
        installation.wait_for("the replicas are corrected", WATCHED, || {
            let now = workload(installation, "unannotated", "Deployment")?;
            if now["spec"]["replicas"] == 3 { Ok(()) } else { Err(now["spec"]["replicas"].to_string()) }
        })?;
    }
    Ok(())
}
