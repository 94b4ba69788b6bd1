//! What happens to the holder's pod.

use std::time::Instant;

use redislease_lab::{Installation, Lease, LeaseState, Result};
use serde_json::json;

use crate::world::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, World, count, keys, shared};

/// A Deployment of three and a lease over it that is held.
pub fn held<'a>(installation: &'a Installation, namespace: &str) -> Result<(Lease<'a>, LeaseState)> {
    installation.deployment(namespace, "billing", 3)?;
    let lease = installation.lease(namespace, "billing", &json!({}))?;
    let state = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    Ok((lease, state))
}

fn another(before: &LeaseState) -> impl FnMut(&LeaseState) -> bool {
    move |now| now.is_active() && now.holder() != before.holder() && now.token() > before.token()
}

/// What the events say of a term, on the lease and on its holder's pod.
fn told(installation: &Installation, namespace: &str, term: &LeaseState, reason: &str, says: &str) -> Result<()> {
    let holder = term.holder().unwrap_or_default();
    let note = format!("term {}: {holder} in lab{says}", term.token().unwrap_or_default());
    for on in [("RedisLease", "billing"), ("Pod", holder)] {
        let event = installation.wait_for_event(namespace, on, reason, &note, SOON)?;
        assert_eq!(event.kind, "Normal", "{event:?}");
    }
    Ok(())
}

#[test]
fn a_graceful_deletion_hands_over_at_once_and_the_label_follows() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "graceful")?;
    lease.wait_for_roles(&first, 3, SOON)?;
    told(installation, "graceful", &first, "Acquired", "")?;
    let began = Instant::now();
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["delete", "pod", "-n", "graceful", pod])?;
    let second = lease.wait("another holder", SOON, another(&first))?;
    assert!(began.elapsed() < SOON, "the proof is used: {:?}", began.elapsed());
    let history = second.json()["status"]["history"][0].clone();
    assert_eq!((&history["pod"], &history["reason"]), (&json!(pod), &json!("HolderStopped")));
    told(installation, "graceful", &first, "Released", " released the lease (reason HolderStopped)")?;
    let was = format!(" (was {pod}, reason HolderStopped, leaderless ");
    told(installation, "graceful", &second, "Acquired", &was)?;
    installation.deployment("graceful", "billing", 3)?;
    lease.wait_for_roles(&second, 3, SOON)
}

#[test]
fn while_the_holder_stops_gracefully_it_keeps_the_lease_and_the_label() -> Result<()> {
    let installation = &shared().installation;
    installation.deployment("stopping", "billing", 3)?;
    let lease = installation.lease("stopping", "billing", &json!({}))?;
    let first = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let pod = first.holder().unwrap_or_default();
    let cluster = installation.control_plane();
    cluster.kubectl(&["annotate", "pod", "-n", "stopping", pod, "lab.redislease.io/stops-after=4s"])?;
    let began = Instant::now();
    cluster.kubectl(&["delete", "pod", "-n", "stopping", pod, "--wait=false"])?;
    lease.wait("not active any more", AFTER_ONE_LEASE, |now| !now.is_active() || now.token() > first.token())?;
    assert!(began.elapsed().as_secs() >= 4, "not before it has stopped: {:?}", began.elapsed());
    lease.wait("another holder", SOON, another(&first)).map(drop)
}

#[test]
fn a_forced_deletion_is_sealed_and_waited_out() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "forced")?;
    let attempt = first.attempt().unwrap_or_default();
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["delete", "pod", "-n", "forced", pod, "--force", "--grace-period=0"])?;
    let began = Instant::now();
    let stopping = lease.wait("Active=False/Stopping", SOON, |now| now.reason("Active") == "Stopping")?;
    assert_eq!(stopping.holder(), first.holder(), "named until its keys have ended");
    installation.wait_for("sealed wherever it stands", SOON, || {
        let keys = keys(installation, "forced", "billing");
        let sealed = count(&keys, attempt, "s") >= 2 && count(&keys, attempt, "t") == 0;
        if sealed { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;
    let left = keys(installation, "forced", "billing").iter().flatten().map(|key| key.left).min().unwrap_or_default();
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert!(began.elapsed() >= left, "{:?} and the keys lived {left:?}", began.elapsed());
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderVanished");
    Ok(())
}

#[test]
fn a_node_that_is_said_to_be_out_of_service_is_proof() -> Result<()> {
    let world = World::new()?;
    let installation = &world.installation;
    installation.deployment("lost", "billing", 3)?;
    // The pod garbage collector comes by every 20 s; until it does, the holder is only NotReady and being deleted.
    let lease = installation.lease("lost", "billing", &json!({"election": {"unhealthyAfter": "5m"}}))?;
    let first = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let pod = first.holder().unwrap_or_default();
    let node = first.json()["status"]["holder"]["node"].as_str().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();
    cluster.lose_node(&node)?;
    cluster.kubectl(&["taint", "node", &node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"])?;
    let path = format!("/api/v1/namespaces/lost/pods/{pod}");
    installation.wait_for("the pod is collected", FIRST_ELECTION, || match cluster.get(&path) {
        Ok(None) => Ok(()),
        Ok(Some(pod)) => Err(pod["metadata"]["deletionTimestamp"].to_string()),
        Err(error) => Err(error.to_string()),
    })?;
    let second = lease.wait("another holder, long before the keys end", SOON, another(&first))?;
    let history = &second.json()["status"]["history"][0];
    assert_eq!((&history["pod"], &history["reason"]), (&json!(pod), &json!("HolderVanished")));
    let graceful =
        world.operator.metrics()?.value("redislease_handover_duration_seconds_count", &[("kind", "graceful")]);
    assert_eq!(graceful, Some(1.0), "counted as one that waited for nothing");
    Ok(())
}

#[test]
fn a_holder_that_is_not_ready_keeps_the_lease_until_unhealthy_after() -> Result<()> {
    let installation = &shared().installation;
    installation.deployment("sick", "billing", 3)?;
    let spec = json!({"election": {"unhealthyAfter": "3s"}});
    let lease = installation.lease("sick", "billing", &spec)?;
    let first = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let pod = first.holder().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();
    for _ in 0..3 {
        cluster.set_pod_ready("sick", &pod, false)?;
        cluster.set_pod_ready("sick", &pod, true)?;
    }
    cluster.set_pod_ready("sick", &pod, false)?;
    let began = Instant::now();
    let ended = lease.wait("ended for its health", SOON, |now| now.reason("Active") == "Stopping")?;
    assert!(began.elapsed().as_millis() >= 2900, "not before 3 s: {:?}", began.elapsed());
    assert_eq!(ended.token(), first.token(), "flapping moved nothing");
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderUnhealthy");
    Ok(())
}

#[test]
fn a_holder_that_is_no_candidate_any_more_loses_the_lease() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "leaver")?;
    let pod = first.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["label", "pod", "-n", "leaver", pod, "app-", "--overwrite"])?;
    let second = lease.wait("another holder", AFTER_ONE_LEASE, another(&first))?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "NoLongerCandidate");
    installation.wait_for("the pod that left carries no label", SOON, || {
        let roles = lease.roles().map_err(|error| error.to_string())?;
        if roles.contains_key(pod) { Err(format!("{roles:?}")) } else { Ok(()) }
    })
}

#[test]
fn the_annotated_pod_is_preferred_and_the_excluded_one_never_elected() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    installation.deployment("choice", "billing", 3)?;
    let pods = cluster.kubectl(&["get", "pods", "-n", "choice", "-o", "jsonpath={.items[*].metadata.name}"])?;
    let pods: Vec<&str> = pods.split_whitespace().collect();
    cluster.kubectl(&["annotate", "pod", "-n", "choice", pods[2], "redislease.io/priority=5"])?;
    cluster.kubectl(&["annotate", "pod", "-n", "choice", pods[0], "redislease.io/exclude=true"])?;
    cluster.kubectl(&["annotate", "pod", "-n", "choice", pods[1], "redislease.io/priority=high"])?;
    let lease = installation.lease("choice", "billing", &json!({}))?;
    let held = lease.wait("held, with the verdicts", FIRST_ELECTION, |now| {
        now.is_active() && now.json()["status"]["candidates"]["eligible"] == 1
    })?;
    assert_eq!(held.holder(), Some(pods[2]));
    let mut verdicts: Vec<(&str, &str)> = held.json()["status"]["candidates"]["ineligible"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["pod"].as_str().unwrap_or_default(), one["reason"].as_str().unwrap_or_default()))
        .collect();
    verdicts.sort_unstable();
    let mut wanted = [(pods[0], "Excluded"), (pods[1], "InvalidPriority")];
    wanted.sort_unstable();
    assert_eq!(verdicts, wanted);
    Ok(())
}

#[test]
fn without_a_priority_the_oldest_ready_pod_is_elected() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    // Its namespace gets the account that pods need.
    installation.deployment("ages", "others", 1)?;
    // Their names are in the opposite order. The API server knows whole seconds: each is created in another one.
    let names = ["z-not-ready", "y-oldest-ready", "x-younger", "a-youngest"];
    let created = "--output=jsonpath={.metadata.creationTimestamp}";
    let create = |name: &str, dry_run: &str| {
        cluster.kubectl(&["run", name, "-n", "ages", "--image=none", "--labels=app=aged", dry_run, created])
    };
    let mut last = String::new();
    for name in names {
        installation.wait_for("another second", SOON, || {
            let now = create(name, "--dry-run=server").map_err(|error| error.to_string())?;
            if now == last { Err(now) } else { Ok(()) }
        })?;
        last = create(name, "--dry-run=none")?;
    }
    cluster.kubectl(&["wait", "pod", "-n", "ages", "-l", "app=aged", "--for=condition=Ready", "--timeout=30s"])?;
    cluster.set_pod_ready("ages", names[0], false)?;
    let spec = json!({"candidates": {"selector": {"matchLabels": {"app": "aged"}}}});
    let lease = installation.lease("ages", "billing", &spec)?;
    let held = lease.wait("held, all four seen", FIRST_ELECTION, |now| {
        now.is_active() && now.json()["status"]["candidates"]["total"] == 4
    })?;
    assert_eq!((held.holder(), held.transitions()), (Some(names[1]), 1));
    Ok(())
}

#[test]
fn suspended_it_is_held_by_nobody_and_comes_back_with_a_greater_token() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "suspended")?;
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    let ended = lease.wait("suspended", SOON, |now| now.reason("Ready") == "Suspended" && !now.is_active())?;
    assert_eq!(ended.reason("Active"), "Stopping");
    let free = lease.wait("held by nobody", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    assert_eq!((free.reason("Active"), free.token()), ("Unheld".to_owned(), first.token()));
    assert!(keys(installation, "suspended", "billing").iter().all(Option::is_none), "the keys have ended");
    let roles = lease.roles()?;
    assert!(roles.values().all(|role| role.label.as_deref() == Some("standby")), "{roles:?}");
    lease.patch(&json!({"spec": {"suspend": false}}))?;
    let second = lease.wait("held again", AFTER_ONE_LEASE, LeaseState::is_active)?;
    assert!(second.token() > first.token());
    Ok(())
}
