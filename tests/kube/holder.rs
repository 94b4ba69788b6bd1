//! The holder's pod is deleted, lost, not Ready, or no longer a candidate.

use std::time::Instant;

use redislease_lab::{Installation, Lease, LeaseState, Result};
use serde_json::{Value, json};

use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, count, is, keys, shared};

/// A Deployment with three pods and a held lease whose status is complete.
pub fn held<'a>(installation: &'a Installation, namespace: &str) -> Result<(Lease<'a>, LeaseState)> {
    installation.deployment(namespace, "billing", 3)?;
    let lease = installation.lease(namespace, "billing", &json!({}))?;
    let state = lease.wait("held, with three candidates", FIRST_ELECTION, |now| {
        now.is_active() && now.json()["status"]["candidates"]["eligible"] == 3
    })?;
    // The labels follow the answer to the write of the status: now the operator knows that the term is published.
    lease.wait_for_roles(&state, 3, SOON)?;
    Ok((lease, state))
}

/// A Deployment with this many pods, and a held lease with these fields of its spec.
pub fn held_by<'a>(
    installation: &'a Installation,
    namespace: &str,
    pods: usize,
    spec: &Value,
) -> Result<(Lease<'a>, LeaseState)> {
    installation.deployment(namespace, "billing", pods)?;
    let lease = installation.lease(namespace, "billing", spec)?;
    let state = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    Ok((lease, state))
}

pub fn another(before: &LeaseState) -> impl FnMut(&LeaseState) -> bool {
    move |now| now.is_active() && now.holder() != before.holder() && now.token() > before.token()
}

/// Waits for the event about a term on the lease and on its holder's pod.
pub fn wait_for_events(
    installation: &Installation,
    namespace: &str,
    term: &LeaseState,
    reason: &str,
    says: &str,
) -> Result<()> {
    let holder = term.holder().unwrap_or_default();
    let note = format!("term {}: {holder} in lab{says}", term.token().unwrap_or_default());
    wait_for_event_on_both(installation, namespace, holder, ("Normal", reason), &note)
}

/// Waits for an event on the lease and on this pod, with this type and reason.
pub fn wait_for_event_on_both(
    installation: &Installation,
    namespace: &str,
    pod: &str,
    (kind, reason): (&str, &str),
    says: &str,
) -> Result<()> {
    for on in [("RedisLease", "billing"), ("Pod", pod)] {
        let event = installation.wait_for_event(namespace, on, reason, says, SOON)?;
        assert_eq!(event.kind, kind, "{event:?}");
    }
    Ok(())
}

#[test]
fn a_graceful_deletion_hands_over_at_once_and_moves_the_label() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "graceful")?;
    lease.wait_for_roles(&first, 3, SOON)?;
    wait_for_events(installation, "graceful", &first, "Acquired", "")?;
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["delete", "pod", "-n", "graceful", pod])?;
    // Without the proof it would take at least 8 s: a lease duration minus one renewal interval.
    let second = lease.wait("another holder", SOON, another(&first))?;
    let history = second.json()["status"]["history"][0].clone();
    assert_eq!((&history["pod"], &history["reason"]), (&json!(pod), &json!("HolderStopped")));
    wait_for_events(installation, "graceful", &first, "Released", " released the lease (reason HolderStopped)")?;
    let was = format!(" (was {pod}, reason HolderStopped, leaderless ");
    wait_for_events(installation, "graceful", &second, "Acquired", &was)?;
    installation.deployment("graceful", "billing", 3)?;
    lease.wait_for_roles(&second, 3, SOON)
}

#[test]
fn a_terminating_holder_keeps_the_lease_until_it_has_stopped() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held_by(installation, "stopping", 3, &json!({}))?;
    let pod = first.holder().unwrap_or_default();
    let cluster = installation.control_plane();
    cluster.kubectl(&["annotate", "pod", "-n", "stopping", pod, "lab.redislease.io/stops-after=4s"])?;
    let began = Instant::now();
    cluster.kubectl(&["delete", "pod", "-n", "stopping", pod, "--wait=false"])?;
    lease.wait("the term has ended", AFTER_ONE_LEASE, |now| !now.is_active() || now.token() > first.token())?;
    assert!(began.elapsed().as_secs() >= 4, "the pod stops after 4 s; the lease moved after {:?}", began.elapsed());
    let second = lease.wait("another holder", SOON, another(&first))?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderStopped");
    Ok(())
}

#[test]
fn after_a_forced_deletion_the_term_is_sealed_and_its_keys_expire() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "forced")?;
    let attempt = first.attempt().unwrap_or_default();
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["delete", "pod", "-n", "forced", pod, "--force", "--grace-period=0"])?;
    let stopping = lease.wait("Active=False/Stopping", SOON, |now| now.reason("Active") == "Stopping")?;
    assert_eq!(stopping.holder(), first.holder(), "status names the holder until its keys have ended");
    installation.wait_for("no node has an unsealed key of the term", SOON, || {
        let keys = keys(installation, "forced", "billing");
        let sealed = count(&keys, attempt, "s") >= 2 && count(&keys, attempt, "t") == 0;
        if sealed { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;
    let began = Instant::now();
    let left = keys(installation, "forced", "billing").iter().flatten().map(|key| key.left).min();
    let left = left.expect("a node answers with its key");
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert!(began.elapsed() >= left, "another pod held after {:?}; the keys lived for {left:?}", began.elapsed());
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderVanished");
    Ok(())
}

#[test]
fn the_out_of_service_taint_proves_that_a_lost_holder_has_stopped() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    // The pod garbage collector runs every 20 s; until then the holder is NotReady and terminating.
    let spec = json!({"election": {"unhealthyAfter": "5m"}});
    let (lease, first) = held_by(&installation, "out-of-service", 3, &spec)?;
    let pod = first.holder().unwrap_or_default();
    let node = first.json()["status"]["holder"]["node"].as_str().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();
    cluster.lose_node(&node)?;
    cluster.kubectl(&["taint", "node", &node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"])?;
    let path = format!("/api/v1/namespaces/out-of-service/pods/{pod}");
    installation.wait_for("the pod is deleted", FIRST_ELECTION, || match cluster.get(&path) {
        Ok(None) => Ok(()),
        Ok(Some(pod)) => Err(pod["metadata"]["deletionTimestamp"].to_string()),
        Err(error) => Err(error.to_string()),
    })?;
    let second = lease.wait("another holder before the keys expire", SOON, another(&first))?;
    let history = &second.json()["status"]["history"][0];
    assert_eq!((&history["pod"], &history["reason"]), (&json!(pod), &json!("HolderVanished")));
    // The operator counts the handover when the API server has answered its status write. The new status can be read
    // before that.
    let graceful = [("kind", "graceful")];
    operator.wait_for_metric("redislease_handover_duration_seconds_count", &graceful, SOON, is(1.0))
}

#[test]
fn a_holder_that_is_not_ready_keeps_the_lease_for_unhealthy_after() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held_by(installation, "sick", 3, &json!({"election": {"unhealthyAfter": "3s"}}))?;
    let pod = first.holder().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();
    for _ in 0..3 {
        cluster.set_pod_ready("sick", &pod, false)?;
        cluster.set_pod_ready("sick", &pod, true)?;
    }
    let began = Instant::now();
    cluster.set_pod_ready("sick", &pod, false)?;
    // Stopping lasts until the keys expire.
    let ended = lease
        .wait("the term of the unhealthy holder ends", AFTER_ONE_LEASE, |now| now.reason("Active") == "Stopping")?;
    assert!(began.elapsed().as_secs() >= 3, "unhealthyAfter is 3 s; the term ended after {:?}", began.elapsed());
    assert_eq!(ended.token(), first.token(), "short changes of readiness end no term");
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderUnhealthy");
    Ok(())
}

#[test]
fn a_holder_that_is_no_longer_a_candidate_loses_the_lease() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "leaver")?;
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["label", "pod", "-n", "leaver", pod, "app-", "--overwrite"])?;
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "NoLongerCandidate");
    installation.wait_for("the former candidate has no label", SOON, || {
        let roles = lease.roles()?;
        if roles.contains_key(pod) { Err(format!("{roles:?}")) } else { Ok(()) }
    })
}
