//! Workloads that run already and are named by a lease: nothing stops them without an answer.

use std::time::Duration;

use redislease_lab::{Installation, LeaseState, Result};
use serde_json::{Value, json};

use crate::granularity::{namespace, replicas, scaled, switching, workload};
use crate::support::{Cluster, FIRST_ELECTION, throughout};

const ROLE: &str = "lease.redislease.io/billing";

/// Checks for a while that the Deployment `billing` has this number of replicas and no role.
fn is_untouched(installation: &Installation, of: &str, count: u8) -> Result<()> {
    throughout(Duration::from_secs(5), |after| {
        let now = workload(installation, of, "Deployment")?;
        let found = (&now["spec"]["replicas"], &now["metadata"]["labels"][ROLE]);
        assert_eq!(found, (&json!(count), &Value::Null), "{of} after {after:?}");
        Ok(())
    })
}

#[test]
fn a_mistake_in_the_annotations_does_not_stop_a_running_workload() -> Result<()> {
    let cluster = Cluster::of(&switching())?;
    let installation = &cluster.installation;
    for (of, annotations, reason) in [
        ("misspelt", &["redislease.io/quorum=defualt"][..], "InvalidReference"),
        // The longest lease of the quorum is 10 s, and the default lease is longer.
        ("unfit", &[], "InvalidSpec"),
    ] {
        installation.deployment(of, "billing", 3)?;
        let all = [
            &["redislease.io/lease=true", "redislease.io/activation=scale", "redislease.io/active-replicas=3"],
            annotations,
        ];
        let args = [&["annotate", "--namespace", of, "deployment/billing"], &all.concat()[..]].concat();
        installation.control_plane().kubectl(&args)?;
        let lease = installation.find_lease(of, "billing");
        lease.wait("not Ready", FIRST_ELECTION, |now| now.reason("Ready") == reason)?;
        is_untouched(installation, of, 3)?;
    }
    Ok(())
}

#[test]
fn a_lease_of_pods_never_elects_a_workload() -> Result<()> {
    let cluster = Cluster::of(&switching())?;
    let installation = &cluster.installation;
    namespace(installation, "negative")?;
    let clustered = scaled(installation, "negative", "Deployment", 0)?;
    clustered.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    // Every pod has this label, and the Deployment has not.
    let absent = json!([{"key": "app", "operator": "DoesNotExist"}]);
    let pods = installation.lease(
        "negative",
        "pods",
        &json!({"candidates": {"selector": {"matchExpressions": absent}}, "election": {"requireReady": false}}),
    )?;
    pods.wait("without candidates", FIRST_ELECTION, |now| now.reason("Ready") == "NoCandidate")?;
    Ok(())
}

#[test]
fn only_the_lease_that_a_workload_names_starts_and_stops_it() -> Result<()> {
    let cluster = Cluster::of(&switching())?;
    let installation = &cluster.installation;
    let named = scaled(installation, "named", "Deployment", 2)?;
    let spec = json!({
        "granularity": "Cluster",
        "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}},
        "activation": {"scale": {"replicas": 2}},
    });
    let other = installation.lease("named", "other", &spec)?;
    named.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let refused = other.wait("refused", FIRST_ELECTION, |now| now.reason("Ready") == "NotPermitted")?;
    assert!(refused.to_string().contains("names the lease billing"), "{refused}");
    replicas(installation, "named", "active", 3)?;
    let version = workload(installation, "named", "Deployment")?["metadata"]["generation"].clone();
    throughout(Duration::from_secs(5), |after| {
        let now = workload(installation, "named", "Deployment")?;
        assert_eq!(now["metadata"]["generation"], version, "after {after:?}");
        Ok(())
    })?;
    // Its owner takes the consent back: what the operator wrote is removed, and the workload runs on.
    let args = ["annotate", "--namespace=named", "deployment/billing", "redislease.io/activated-by-"];
    installation.control_plane().kubectl(&args)?;
    named.wait("not permitted", FIRST_ELECTION, |now| now.reason("Ready") == "NotPermitted" && !now.is_active())?;
    let marks = ["token", "owner", "withdrawn"].map(|mark| format!("{mark}.redislease.io/billing"));
    installation.wait_for("nothing of the lease is left on the workload", FIRST_ELECTION, || {
        let now = workload(installation, "named", "Deployment").map_err(|error| error.to_string())?;
        let metadata = &now["metadata"];
        let is_left =
            metadata["labels"][ROLE].is_string() || marks.iter().any(|mark| metadata["annotations"][mark].is_string());
        if is_left { Err(metadata.to_string()) } else { Ok(()) }
    })?;
    assert_eq!(workload(installation, "named", "Deployment")?["spec"]["replicas"], 3);
    Ok(())
}
