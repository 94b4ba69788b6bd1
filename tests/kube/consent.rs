//! What the operator does not do to workloads of others: each test begins with a workload that runs.

use std::time::Duration;

use redislease_lab::{Installation, Lease, LeaseState, Result};
use serde_json::{Value, json};

use crate::granularity::workload;
use crate::support::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, shared_with_rights, throughout};

/// The quorum of the lab waits for 10 s before it votes, and no attempt lasts as long.
const LONGER_THAN_THE_FIRST_ELECTION: Duration = Duration::from_secs(5);

/// A Deployment with three replicas and these annotations.
fn running(installation: &Installation, of: &str, annotations: &Value) -> Result<()> {
    let over = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 3}});
    installation.workload("Deployment", of, "billing", &over)
}

/// A lease that scales the Deployment.
fn scaling<'a>(installation: &'a Installation, of: &str, name: &str, replicas: u8) -> Result<Lease<'a>> {
    let candidates = json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}});
    let spec =
        json!({"granularity": "Cluster", "candidates": candidates, "activation": {"scale": {"replicas": replicas}}});
    installation.lease(of, name, &spec)
}

/// The Deployment has this generation for a while: nobody changes its spec.
fn is_left_alone(installation: &Installation, of: &str) -> Result<()> {
    throughout(LONGER_THAN_THE_FIRST_ELECTION, |after| {
        let now = workload(installation, of, "Deployment")?;
        assert_eq!(
            (&now["spec"]["replicas"], &now["metadata"]["generation"]),
            (&json!(3), &json!(1)),
            "after {after:?}"
        );
        Ok(())
    })
}

#[test]
fn mistakes_in_an_annotated_workload_do_not_stop_it() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let base = |more: &Value| {
        let mut annotations = json!({"redislease.io/lease": "true", "redislease.io/activation": "scale",
            "redislease.io/active-replicas": "3", "redislease.io/lease-duration": "10s",
            "redislease.io/renew-interval": "1s", "redislease.io/grace-period": "3s"});
        for (key, value) in more.as_object().expect("annotations") {
            annotations[key] = value.clone();
        }
        annotations
    };
    let table = [
        ("misspelt", json!({"redislease.io/quorum": "nowhere"}), "InvalidReference"),
        // The longest lease of the lab's quorum is 10 s.
        ("too-long", json!({"redislease.io/lease-duration": "30s"}), "InvalidSpec"),
    ];
    for (of, mistake, reason) in table {
        running(installation, of, &base(&mistake))?;
        let lease = installation.find_lease(of, "billing");
        let refused = lease.wait(reason, FIRST_ELECTION, |now| now.reason("Ready") == reason)?;
        is_left_alone(installation, of)?;
        let (key, mended) = match reason {
            "InvalidSpec" => ("lease-duration", "10s"),
            _ => ("quorum", "default"),
        };
        assert!(!refused.is_active());
        if reason == "InvalidSpec" {
            installation.annotate(of, "deployment/billing", &[&format!("redislease.io/{key}={mended}")])?;
            let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
            let now = workload(installation, of, "Deployment")?;
            assert_eq!((&now["spec"]["replicas"], held.is_active()), (&json!(3), true), "it ran all the time");
            // The operator changes the lease a moment later: the term goes on.
            installation.annotate(of, "deployment/billing", &["redislease.io/active-replicas=5"])?;
            installation.wait_for("it is scaled", SOON, || {
                let now = workload(installation, of, "Deployment")?;
                if now["spec"]["replicas"] == 5 { Ok(()) } else { Err(now["spec"]["replicas"].to_string()) }
            })?;
            let after = lease.state()?;
            assert_eq!((after.token(), after.is_active()), (held.token(), true), "{after}");
        }
    }
    Ok(())
}

#[test]
fn a_workload_is_scaled_only_by_the_lease_that_it_names() -> Result<()> {
    let installation = &shared_with_rights().installation;
    running(installation, "consent", &json!({}))?;
    let first = scaling(installation, "consent", "first", 2)?;
    let second = scaling(installation, "consent", "second", 1)?;
    for lease in [&first, &second] {
        let refused = lease.wait("refused", FIRST_ELECTION, |now| now.reason("Ready") == "NotPermitted")?;
        let message = refused.message("Ready");
        assert!(message.contains("with the annotation redislease.io/activated-by="), "{message}");
    }
    is_left_alone(installation, "consent")?;

    installation.annotate("consent", "deployment/billing", &["redislease.io/activated-by=first"])?;
    let held = first.wait("held", FIRST_ELECTION * 2, LeaseState::is_active)?;
    let scaled = installation.wait_for("it is scaled", SOON, || {
        let now = workload(installation, "consent", "Deployment")?;
        if now["spec"]["replicas"] == 2 { Ok(now) } else { Err(now["spec"]["replicas"].to_string()) }
    })?;
    let owner = format!("{}.{}", held.uid(), scaled["metadata"]["uid"].as_str().unwrap_or_default());
    assert_eq!(scaled["metadata"]["annotations"]["owner.redislease.io/first"], owner);
    let refused = second.wait("refused", SOON, |now| now.message("Ready").contains("first") && !now.is_active())?;
    assert_eq!(refused.reason("Ready"), "NotPermitted");
    // Nobody writes any more.
    let version = |now: &Value| now["metadata"]["generation"].as_u64();
    throughout(LONGER_THAN_THE_FIRST_ELECTION, |after| {
        let now = workload(installation, "consent", "Deployment")?;
        assert_eq!(version(&now), version(&scaled), "after {after:?}: {}", now["spec"]["replicas"]);
        Ok(())
    })?;

    // The consent is withdrawn: the workload goes on as it is.
    installation.annotate("consent", "deployment/billing", &["redislease.io/activated-by-"])?;
    first.wait("refused again", FIRST_ELECTION, |now| now.reason("Ready") == "NotPermitted" && !now.is_active())?;
    let free = installation.wait_for("its marks are gone", AFTER_ONE_LEASE, || {
        let now = workload(installation, "consent", "Deployment")?;
        let left = now["metadata"].to_string();
        let is_marked = ["lease.redislease.io/", "token.redislease.io/", "owner.redislease.io/"];
        if is_marked.iter().any(|mark| left.contains(mark)) { Err(left) } else { Ok(now) }
    })?;
    assert_eq!(free["spec"]["replicas"], 2);
    Ok(())
}
