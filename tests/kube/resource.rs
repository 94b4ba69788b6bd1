//! The RedisLease is deleted, created again, malformed or changed by other clients.

use std::time::Duration;

use redislease_lab::{Cut, Installation, InstallationOptions, Lease, LeaseState, Proxy, Result};
use serde_json::json;

use crate::holder::held;
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, count, installation, is, keys, no_key_is_left, options, shared,
    throughout,
};

fn no_label_is_left(installation: &Installation, lease: &Lease<'_>) -> Result<()> {
    installation.wait_for("no label and no token on any pod", SOON, || {
        let roles = lease.roles()?;
        if roles.is_empty() { Ok(()) } else { Err(format!("{roles:?}")) }
    })
}

#[test]
fn a_deleted_lease_leaves_no_key_no_label_and_no_series() -> Result<()> {
    let Cluster { installation, operator } = shared();
    let (lease, state) = held(installation, "deleted")?;
    lease.delete()?;
    let attempt = state.attempt().unwrap_or_default();
    installation.wait_for("sealed, not extended", SOON, || {
        let keys = keys(installation, "deleted", "billing");
        if count(&keys, attempt, "t") == 0 { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;
    no_label_is_left(installation, &lease)?;
    no_key_is_left(installation, "deleted")?;
    operator.wait_for_metrics(SOON, |page| {
        let left = page.text().lines().find(|line| line.contains("lease_namespace=\"deleted\""));
        left.map_or(Ok(()), |left| Err(left.to_owned()))
    })
}

#[test]
fn a_deleted_namespace_ends_with_its_lease_and_leaves_no_key() -> Result<()> {
    let installation = &shared().installation;
    held(installation, "doomed")?;
    installation.control_plane().kubectl(&["delete", "namespace", "doomed", "--timeout=90s"])?;
    no_key_is_left(installation, "doomed")
}

#[test]
fn a_malformed_lease_affects_no_other_lease() -> Result<()> {
    // The keys must outlive the restart of the operator and the checks before the correction.
    let options = InstallationOptions { quorum: json!({"maxLeaseDuration": "30s"}), ..options() };
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    installation.deployment("malformed", "billing", 3)?;
    let lease = installation.lease("malformed", "billing", &json!({"leaseDuration": "30s"}))?;
    let first = lease.wait("held", FIRST_ELECTION * 3, LeaseState::is_active)?;
    lease.wait_for_roles(&first, 3, SOON)?;
    let cluster = installation.control_plane();
    cluster.not_again();
    // A CRD without validation, as an older or newer version might be.
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let open = json!([
        {"op": "remove", "path": "/spec/versions/0/selectableFields"},
        {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": anything},
    ])
    .to_string();
    cluster.kubectl(&["patch", "crd", "redisleases.redislease.io", "--type=json", "-p", &open])?;
    let broken = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": "broken", "namespace": "malformed"},
        "spec": {"candidates": 7, "leaseDuration": {}},
    });
    installation.wait_for("the changed CRD is served", SOON, || Ok(installation.apply(&broken)?))?;
    lease.wait_for_roles(&first, 3, SOON)?;
    let holder = first.holder().unwrap_or_default();
    cluster.kubectl(&["annotate", "pod", "-n", "malformed", holder, "token.redislease.io/broken=1"])?;
    cluster.kubectl(&["label", "pod", "-n", "malformed", holder, "lease.redislease.io/broken=active"])?;
    let patched = json!({"spec": {"gracePeriod": 7}});
    lease.patch(&patched)?;
    operator.restart()?;
    // The operator cannot read these leases, so it does not renew them. It labels their pods `standby` and removes no
    // label.
    let broken = installation.find_lease("malformed", "broken");
    for (lease, pods) in [(&lease, 3), (&broken, 1)] {
        installation.wait_for("all pods are labelled standby", SOON, || {
            let roles = lease.roles()?;
            let standby = roles.values().filter(|role| role.label.as_deref() == Some("standby")).count();
            if standby == pods { Ok(()) } else { Err(format!("{roles:?}")) }
        })?;
    }
    // The lease is corrected before its keys expire, so its term continues.
    lease.patch(&json!({"spec": {"gracePeriod": "3s"}}))?;
    let after = lease.wait("active again", SOON, LeaseState::is_active)?;
    assert_eq!((after.attempt(), after.token()), (first.attempt(), first.token()));
    lease.wait_for_roles(&after, 3, SOON)?;
    operator.wait_ready()?;
    let other = installation
        .deployment("malformed", "other", 1)
        .and_then(|()| installation.lease("malformed", "other", &json!({})))?;
    other.wait("another lease is held", SOON, LeaseState::is_active)?;
    broken.delete()?;
    no_label_is_left(&installation, &broken)?;
    operator.wait_for_log("the malformed lease", SOON, |line| {
        line["level"] == "ERROR" && line["name"] == "broken" && line["namespace"] == "malformed"
    })
}

#[test]
fn the_tokens_of_a_recreated_lease_keep_growing() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "again")?;
    lease.delete()?;
    let lease = installation.lease("again", "billing", &json!({}))?;
    let second = lease.wait("held again", AFTER_ONE_LEASE, LeaseState::is_active)?;
    assert_ne!(second.uid(), first.uid());
    assert!(second.token() > first.token(), "{:?} after {:?}", second.token(), first.token());
    Ok(())
}

#[test]
fn a_lease_that_is_deleted_while_no_operator_runs_leaves_no_key_and_no_label() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let (lease, _) = held(&installation, "orphan")?;
    installation.wait_for("labels", SOON, || match lease.roles() {
        Ok(roles) if roles.len() == 3 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    operator.kill()?;
    lease.delete()?;
    no_key_is_left(&installation, "orphan")?;
    assert_eq!(lease.roles()?.len(), 3, "no operator has removed them yet");
    operator.start_again()?;
    no_label_is_left(&installation, &lease)
}

#[test]
fn a_conflicting_write_of_another_client_is_not_overwritten() -> Result<()> {
    let installation = installation()?;
    let cluster = installation.control_plane();
    let proxy = Proxy::to(cluster.address())?;
    let operator = installation.start_operator_behind(&proxy, "operator-0")?;
    let (lease, first) = held(&installation, "busy")?;
    lease.wait_for_roles(&first, 3, SOON)?;
    let conflict = [("kind", "lease_status"), ("result", "conflict")];
    let conflicts = |is| operator.wait_for_metric("redislease_api_writes_total", &conflict, SOON, is);
    conflicts(is(0.0))?;
    // The API server counts its refusals.
    let refusals = || {
        let labels = [("code", "409"), ("resource", "redisleases")];
        cluster.metrics().map(|page| page.value("apiserver_request_total", &labels).unwrap_or_default())
    };
    let before = refusals()?;

    // The operator does not receive the change that the test makes now. Then it loses the term and must write that.
    proxy.cut(Cut::HoldReplies);
    lease
        .patch(&json!({"metadata": {"annotations": {"example.com/by-hand": "kept"}}, "spec": {"gracePeriod": "2s"}}))?;
    for server in installation.redis() {
        server.command(&["DEL", "redislease:lock:busy/billing"])?;
    }
    installation.wait_for("the status write has conflicted", SOON, || match refusals()? {
        now if now > before => Ok(()),
        _ => Err("no conflict".to_owned()),
    })?;
    assert_eq!(lease.state()?.attempt(), first.attempt(), "the status write was refused");
    proxy.restore();

    let lost = lease.wait("the loss is written", SOON, |now| now.reason("Active") == "LeaseLost")?;
    assert_eq!((lost.token(), lost.transitions()), (first.token(), first.transitions()));
    assert_eq!(lost.json()["status"]["history"][0]["reason"], "KeysMissing");
    let second = lease.wait("another term", AFTER_ONE_LEASE, |now| now.is_active() && now.token() > first.token())?;
    // It wrote once, then read the object, and then wrote again.
    conflicts(is(1.0))?;
    assert_eq!(second.transitions(), first.transitions() + 1);
    assert_eq!(second.json()["status"]["history"].as_array().map(Vec::len), Some(1));
    assert_eq!(second.json()["metadata"]["annotations"]["example.com/by-hand"], "kept");
    assert_eq!(second.json()["spec"]["gracePeriod"], "2s");
    lease.wait_for_roles(&second, 3, SOON)
}

#[test]
fn a_status_that_another_client_changes_is_corrected_and_ends_no_term() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "falsified")?;
    let cluster = installation.control_plane();
    let lower = json!({"status": {"fencingToken": 1}}).to_string();
    let args = ["patch", "redislease", "billing", "-n", "falsified", "--subresource=status", "--type=merge", "-p"];
    let refused = cluster.kubectl(&[&args[..], &[lower.as_str()]].concat()).unwrap_err().to_string();
    assert!(refused.contains("fencingToken"), "{refused}");
    let other = json!({"status": {"candidates": {"total": 77, "eligible": 77}}}).to_string();
    cluster.kubectl(&[&args[..], &[other.as_str()]].concat())?;
    // The operator waits for 5 s between two writes that change only the counts.
    let mended = lease.wait("corrected", AFTER_ONE_LEASE, |now| now.json()["status"]["candidates"]["total"] == 3)?;
    assert_eq!((mended.token(), mended.attempt()), (first.token(), first.attempt()));
    lease.wait("still active", FIRST_ELECTION, LeaseState::is_active).map(drop)
}

/// The operator could not publish a term then, and would block every other cluster.
#[test]
fn no_attempt_begins_while_the_api_server_hangs_or_is_down() -> Result<()> {
    let installation = installation()?;
    let proxy = Proxy::to(installation.control_plane().address())?;
    let operator = installation.start_operator_behind(&proxy, "operator-0")?;
    installation.wait_for_quorum("admitted", FIRST_ELECTION, |quorum| quorum.count("Up") == 3)?;
    for (namespace, fault) in [("silent", Cut::HoldReplies), ("down", Cut::Reset)] {
        let written = || -> Result<[f64; 2]> {
            let page = operator.metrics()?;
            let ok = |kind| page.value("redislease_api_writes_total", &[("kind", kind), ("result", "ok")]);
            Ok([ok("event"), ok("pod_role")].map(Option::unwrap_or_default))
        };
        let before = written()?;
        installation.deployment(namespace, "billing", 3)?;
        // A foreign value postpones the first attempt until the fault.
        for server in installation.redis() {
            let value = format!("t:{}:5:somebody", "0".repeat(32));
            server.command(&["SET", &format!("redislease:lock:{namespace}/billing"), &value, "PX", "14000"])?;
        }
        let lease = installation.lease(namespace, "billing", &json!({}))?;
        lease.wait("refused", SOON, |now| now.reason("Ready") == "KeyHeldByOtherLease")?;
        // All earlier writes have been answered, so the next write uses an idle connection.
        installation.wait_for("the event and three labels were written", SOON, || {
            let [events, roles] = written()?;
            let new = (events - before[0], roles - before[1]);
            if new.0 >= 1.0 && new.1 >= 3.0 { Ok(()) } else { Err(format!("{new:?}")) }
        })?;
        proxy.cut(fault);
        // The foreign value expires after at most 14 s. From then on the keys are free.
        throughout(Duration::from_secs(20), |after| {
            let keys = keys(&installation, namespace, "billing");
            let taken = keys.iter().flatten().filter(|key| !key.value.ends_with(":somebody")).count();
            assert_eq!(taken, 0, "{fault:?}, after {after:?}: {keys:?}");
            Ok(())
        })?;
        proxy.restore();
        let first = lease.wait("published", FIRST_ELECTION, LeaseState::is_active)?;
        assert_eq!(first.transitions(), 1, "{first}");
        lease.wait_for_roles(&first, 3, FIRST_ELECTION)?;
    }
    Ok(())
}
