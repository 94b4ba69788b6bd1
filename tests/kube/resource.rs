//! What happens to the RedisLease itself.

use std::time::Duration;

use redislease_lab::{Gate, Installation, Lease, LeaseState, Result};
use serde_json::json;

use crate::holder::held;
use crate::world::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, World, count, keys, options, shared, throughout};

fn no_key_is_left(installation: &Installation, namespace: &str) -> Result<()> {
    installation.wait_for("no key of the lease on any node", AFTER_ONE_LEASE, || {
        let keys = keys(installation, namespace, "billing");
        if keys.iter().all(Option::is_none) { Ok(()) } else { Err(format!("{keys:?}")) }
    })
}

fn no_label_is_left(installation: &Installation, lease: &Lease<'_>) -> Result<()> {
    installation.wait_for("no label and no token on any pod", SOON, || {
        let roles = lease.roles().map_err(|error| error.to_string())?;
        if roles.is_empty() { Ok(()) } else { Err(format!("{roles:?}")) }
    })
}

#[test]
fn a_deleted_lease_leaves_no_key_no_label_and_no_series() -> Result<()> {
    let World { installation, operator } = shared();
    let (lease, state) = held(installation, "deleted")?;
    lease.delete()?;
    let attempt = state.attempt().unwrap_or_default();
    installation.wait_for("sealed, not extended", SOON, || {
        let keys = keys(installation, "deleted", "billing");
        if count(&keys, attempt, "t") == 0 { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;
    no_label_is_left(installation, &lease)?;
    no_key_is_left(installation, "deleted")?;
    let page = operator.metrics()?;
    let left: Vec<&str> = page.text().lines().filter(|line| line.contains("lease_namespace=\"deleted\"")).collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn a_lease_that_is_deleted_and_kept_by_a_finalizer_is_held_by_nobody() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "kept")?;
    lease.patch(&json!({"metadata": {"finalizers": ["example.com/keep"]}}))?;
    let args = ["delete", "redislease", "billing", "-n", "kept", "--wait=false"];
    installation.control_plane().kubectl(&args)?;
    let ended = lease.wait("held by nobody", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    no_label_is_left(installation, &lease)?;
    no_key_is_left(installation, "kept")?;
    assert_eq!(ended.token(), first.token());
    // Its pods are there and Ready: whoever wanted to elect one would have tried more than once.
    throughout(AFTER_ONE_LEASE, |after| {
        let now = lease.state()?;
        assert_eq!((now.holder(), now.transitions()), (None, ended.transitions()), "after {after:?}: {now}");
        let keys = keys(installation, "kept", "billing");
        assert!(keys.iter().all(Option::is_none), "after {after:?}: {keys:?}");
        Ok(())
    })?;
    lease.patch(&json!({"metadata": {"finalizers": null}}))
}

#[test]
fn a_malformed_lease_stops_no_other_and_ends_nothing() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let (lease, first) = held(&installation, "malformed")?;
    let cluster = installation.control_plane();
    // A definition that lets everything pass, as an older or a newer one might.
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
    installation.wait_for("the open definition is served", SOON, || {
        installation.apply(&broken).map_err(|error| error.to_string())
    })?;
    lease.wait_for_roles(&first, 3, SOON)?;
    let holder = first.holder().unwrap_or_default();
    cluster.kubectl(&["label", "pod", "-n", "malformed", holder, "lease.redislease.io/broken=active"])?;
    let patched = json!({"spec": {"gracePeriod": 7}});
    lease.patch(&patched)?;
    operator.restart()?;
    // Nobody renews what nobody can read: its holder is told to stop, and nothing else is taken away.
    let broken = installation.find_lease("malformed", "broken");
    for (lease, pods) in [(&lease, 3), (&broken, 1)] {
        installation.wait_for("standby alone", SOON, || {
            let roles = lease.roles().map_err(|error| error.to_string())?;
            let standby = roles.values().filter(|role| role.label.as_deref() == Some("standby")).count();
            if standby == pods { Ok(()) } else { Err(format!("{roles:?}")) }
        })?;
    }
    // Mended before its keys have ended, it goes on.
    lease.patch(&json!({"spec": {"gracePeriod": "3s"}}))?;
    let after = lease.wait("whole again", SOON, LeaseState::is_active)?;
    assert_eq!((after.attempt(), after.token()), (first.attempt(), first.token()));
    lease.wait_for_roles(&after, 3, SOON)?;
    operator.wait_ready()?;
    let other = installation
        .deployment("malformed", "other", 1)
        .and_then(|()| installation.lease("malformed", "other", &json!({})))?;
    other.wait("another lease is held", SOON, LeaseState::is_active)?;
    broken.delete()?;
    no_label_is_left(&installation, &broken)?;
    let named = operator
        .log()
        .iter()
        .any(|line| line["level"] == "ERROR" && line["name"] == "broken" && line["namespace"] == "malformed");
    assert!(named, "{:?}", operator.log().last());
    Ok(())
}

#[test]
fn a_lease_that_is_created_again_goes_on_counting() -> Result<()> {
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
fn a_lease_that_is_deleted_while_no_operator_runs_leaves_nothing_either() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let (lease, _) = held(&installation, "orphan")?;
    installation.wait_for("labels", SOON, || match lease.roles() {
        Ok(roles) if roles.len() == 3 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    operator.kill()?;
    lease.delete()?;
    no_key_is_left(&installation, "orphan")?;
    assert_eq!(lease.roles()?.len(), 3, "nobody has taken them away yet");
    operator.start_again()?;
    no_label_is_left(&installation, &lease)
}

#[test]
fn a_write_of_another_in_between_conflicts_and_loses_nothing() -> Result<()> {
    let installation = Installation::start(&options())?;
    let cluster = installation.control_plane();
    let gate = Gate::before(cluster.address())?;
    let operator = installation.start_operator_behind(&gate, "operator-0")?;
    let (lease, first) = held(&installation, "busy")?;
    lease.wait_for_roles(&first, 3, SOON)?;
    let conflicts = || -> Result<Option<f64>> {
        let labels = [("kind", "lease_status"), ("result", "conflict")];
        Ok(operator.metrics()?.value("redislease_api_writes_total", &labels))
    };
    assert_eq!(conflicts()?, Some(0.0));

    // The operator does not hear of what the hand writes. Then the nodes give it something to tell.
    gate.hold_answers();
    lease
        .patch(&json!({"metadata": {"annotations": {"example.com/by-hand": "kept"}}, "spec": {"gracePeriod": "2s"}}))?;
    for server in installation.redis() {
        server.command(&["DEL", "redislease:lock:busy/billing"])?;
    }
    // The API server's own count says when its write has been refused.
    let refused = "apiserver_request_total{code=\"409\",";
    installation.wait_for("the status write has conflicted", SOON, || {
        let page = cluster.kubectl(&["get", "--raw=/metrics"]).map_err(|error| error.to_string())?;
        let is_ours = |line: &&str| line.starts_with(refused) && line.contains("resource=\"redisleases\"");
        page.lines().find(is_ours).map(drop).ok_or_else(|| "no conflict".to_owned())
    })?;
    assert_eq!(lease.state()?.attempt(), first.attempt(), "nothing was written over the hand");
    gate.let_go();

    let lost = lease.wait("told all the same", SOON, |now| now.reason("Active") == "LeaseLost")?;
    assert_eq!((lost.token(), lost.transitions()), (first.token(), first.transitions()));
    assert_eq!(lost.json()["status"]["history"][0]["reason"], "KeysMissing");
    let second = lease.wait("another term", AFTER_ONE_LEASE, |now| now.is_active() && now.token() > first.token())?;
    assert_eq!(conflicts()?, Some(1.0), "told once, and then read what stood there");
    assert_eq!(second.transitions(), first.transitions() + 1);
    assert_eq!(second.json()["status"]["history"].as_array().map(Vec::len), Some(1));
    assert_eq!(second.json()["metadata"]["annotations"]["example.com/by-hand"], "kept");
    assert_eq!(second.json()["spec"]["gracePeriod"], "2s");
    lease.wait_for_roles(&second, 3, SOON)
}

#[test]
fn a_status_that_a_hand_falsifies_does_not_move_the_lease() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "falsified")?;
    let cluster = installation.control_plane();
    let lower = json!({"status": {"fencingToken": 1}}).to_string();
    let args = ["patch", "redislease", "billing", "-n", "falsified", "--subresource=status", "--type=merge", "-p"];
    let refused = cluster.kubectl(&[&args[..], &[lower.as_str()]].concat()).unwrap_err().to_string();
    assert!(refused.contains("fencingToken"), "{refused}");
    let other = json!({"status": {"candidates": {"total": 77, "eligible": 77}}}).to_string();
    cluster.kubectl(&[&args[..], &[other.as_str()]].concat())?;
    let mended = lease.wait("mended", SOON, |now| now.json()["status"]["candidates"]["total"] == 3)?;
    assert_eq!((mended.token(), mended.attempt()), (first.token(), first.attempt()));
    lease.wait("still active", FIRST_ELECTION, LeaseState::is_active).map(drop)
}

#[test]
fn no_attempt_begins_while_the_api_server_does_not_answer() -> Result<()> {
    let installation = Installation::start(&options())?;
    let gate = Gate::before(installation.control_plane().address())?;
    let operator = installation.start_operator_behind(&gate, "operator-0")?;
    installation.deployment("unanswered", "billing", 3)?;
    installation.wait_for_quorum("admitted", FIRST_ELECTION, |quorum| quorum.count("Up") == 3)?;
    // Another process's value holds the key for a while: time to cut the operator off before its first term can begin.
    for server in installation.redis() {
        let value = format!("t:{}:5:somebody", "0".repeat(32));
        server.command(&["SET", "redislease:lock:unanswered/billing", &value, "PX", "8000"])?;
    }
    let lease = installation.lease("unanswered", "billing", &json!({}))?;
    lease.wait("refused", SOON, |now| now.reason("Ready") == "KeyHeldByOtherLease")?;
    // All that was written has been answered: only the next attempt is left to do.
    installation.wait_for("the event and three labels were taken", SOON, || {
        let page = operator.metrics().map_err(|error| error.to_string())?;
        let taken = |kind| page.value("redislease_api_writes_total", &[("kind", kind), ("result", "ok")]);
        let taken = (taken("event"), taken("pod_role"));
        if taken.0 >= Some(1.0) && taken.1 >= Some(3.0) { Ok(()) } else { Err(format!("{taken:?}")) }
    })?;
    gate.hold_answers();
    let ours = || keys(&installation, "unanswered", "billing").into_iter().flatten().any(|key| key.number() != 5);
    // Longer than the value lives, and then than a lease: a term that could not be published would keep others out.
    throughout(Duration::from_secs(18), |after| {
        assert!(!ours(), "after {after:?}: {:?}", keys(&installation, "unanswered", "billing"));
        Ok(())
    })?;
    assert!(keys(&installation, "unanswered", "billing").iter().all(Option::is_none), "the lease is free");
    gate.let_go();
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(held.transitions(), 1, "{held}");
    lease.wait_for_roles(&held, 3, FIRST_ELECTION)
}
