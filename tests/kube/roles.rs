//! The role labels on the pods, as a watch shows them.

use std::collections::BTreeMap;
use std::time::Duration;

use redislease_lab::{Installation, Lease, LeaseState, Result, Watch, WatchEvent, refuse, refuse_statuses};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, shared, throughout};

/// Event, pod, role and token, in the order of the events.
fn roles_in(watch: &mut Watch) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let read = |event: &WatchEvent| {
        let metadata = &event.object["metadata"];
        let role = &metadata["labels"]["lease.redislease.io/billing"];
        let token = &metadata["annotations"]["token.redislease.io/billing"];
        [event.kind.clone(), text(&metadata["name"]), text(role), text(token)]
    };
    watch.so_far().iter().map(read).collect()
}

/// Changes the holder of the lease four times and checks every event of the pods meanwhile: after no event are two pods
/// `active`, and no pod's token decreases.
fn changes_hands(
    installation: &Installation,
    namespace: &str,
    lease: &Lease<'_>,
    first: LeaseState,
) -> Result<LeaseState> {
    let cluster = installation.control_plane();
    let mut last = first;
    let mut watch = cluster.watch("pods", namespace)?;
    lease.patch(&json!({"spec": {"election": {"unhealthyAfter": "1s"}}}))?;
    let mut sick = String::new();
    for round in 0..4 {
        let pod = last.holder().unwrap_or_default();
        match round {
            // The old holder keeps running: its label must change before that of the new one.
            2 => {
                cluster.set_pod_ready(namespace, pod, false)?;
                pod.clone_into(&mut sick);
            }
            3 => cluster.kubectl(&["delete", "pod", "-n", namespace, pod, "--force", "--grace-period=0"]).map(drop)?,
            _ => cluster.kubectl(&["delete", "pod", "-n", namespace, pod]).map(drop)?,
        }
        last = lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > last.token())?;
    }
    cluster.kubectl(&["delete", "pod", "-n", namespace, &sick])?;
    let holder = last.holder().unwrap_or_default().to_owned();
    installation.wait_for("the watch shows the last holder active", SOON, || {
        let events = roles_in(&mut watch);
        let seen = events.iter().any(|[_, pod, role, _]| *pod == holder && role == "active");
        if seen { Ok(()) } else { Err(format!("{events:?}")) }
    })?;
    let mut roles: BTreeMap<String, String> = BTreeMap::new();
    let mut tokens: BTreeMap<String, u64> = BTreeMap::new();
    let mut active_seen = 0;
    for event in roles_in(&mut watch) {
        let [kind, pod, role, token] = event.clone();
        if kind == "DELETED" {
            roles.remove(&pod);
            continue;
        }
        if let Ok(token) = token.parse() {
            let before = tokens.insert(pod.clone(), token).unwrap_or(0);
            assert!(token >= before, "{event:?} after {before}");
        }
        roles.insert(pod, role);
        let active: Vec<&String> = roles.iter().filter(|(_, role)| *role == "active").map(|(pod, _)| pod).collect();
        assert!(active.len() <= 1, "{active:?} at {event:?}");
        active_seen += active.len();
    }
    assert!(active_seen > 4, "the watch shows the changes");
    Ok(last)
}

/// Vault's registration labelled two pods active at once (vault#18117).
#[test]
fn two_pods_are_never_labelled_active_at_the_same_time() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "watched")?;
    changes_hands(installation, "watched", &lease, first).map(drop)
}

fn wait_for_labels(installation: &Installation, lease: &Lease<'_>, wanted: &[(&str, Option<&str>)]) -> Result<()> {
    let wanted: BTreeMap<&str, Option<&str>> = wanted.iter().copied().collect();
    // A pod whose label was refused for 15 s gets it at most 16 s later.
    installation.wait_for("the labels", FIRST_ELECTION, || {
        let roles = lease.roles()?;
        let labels = |pod: &str| roles.get(pod).and_then(|role| role.label.as_deref());
        let same = wanted.iter().all(|(pod, label)| labels(pod) == *label);
        if same { Ok(()) } else { Err(format!("{roles:?}")) }
    })
}

#[test]
fn a_pod_whose_label_is_refused_does_not_delay_the_labels_of_others() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    installation.deployment("refusing", "billing", 3)?;
    let pods = cluster.kubectl(&["get", "pods", "-n", "refusing", "-o", "jsonpath={.items[*].metadata.name}"])?;
    let [odd, first, second] = pods.split_whitespace().collect::<Vec<_>>()[..] else { panic!("three pods: {pods}") };
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", odd, "redislease.io/exclude=true"])?;
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", first, "redislease.io/priority=1"])?;
    let allowed =
        format!("object.metadata.name != '{odd}' || !('lease.redislease.io/billing' in object.metadata.labels)");
    let label = ["label", "pod", "-n", "refusing", odd, "lease.redislease.io/billing=standby"];
    let refusal = refuse(installation, "refusing", ["", "pods"], &allowed, label.into())?;
    let lease = installation.lease("refusing", "billing", &json!({}))?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(held.holder(), Some(first));
    wait_for_labels(installation, &lease, &[(first, Some("active")), (second, Some("standby")), (odd, None)])?;
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", first, "redislease.io/exclude=true"])?;
    wait_for_labels(installation, &lease, &[(first, Some("standby")), (second, Some("active")), (odd, None)])?;
    refusal.end()?;
    wait_for_labels(installation, &lease, &[(first, Some("standby")), (second, Some("active")), (odd, Some("standby"))])
}

#[test]
fn a_former_holder_is_labelled_standby_although_the_status_cannot_be_written() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    let (lease, before) = held(installation, "unwritten")?;
    lease.wait_for_roles(&before, 3, SOON)?;
    let pod = before.holder().unwrap_or_default();
    let refusal = refuse_statuses(installation, "unwritten")?;
    cluster.kubectl(&["annotate", "pod", "-n", "unwritten", pod, "redislease.io/exclude=true"])?;
    wait_for_labels(installation, &lease, &[(pod, Some("standby"))])?;
    let roles = lease.roles()?;
    assert!(roles.values().all(|role| role.label.as_deref() != Some("active")), "{roles:?}");
    assert!(lease.state()?.is_active(), "the status is unchanged");
    refusal.end()?;
    let after = lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > before.token())?;
    assert_ne!(after.holder(), Some(pod));
    lease.wait_for_roles(&after, 3, AFTER_ONE_LEASE)
}

/// Selector and template have the label of a lease: a ReplicaSet releases each pod whose label changes, and makes another one.
#[test]
fn pods_that_are_selected_by_the_label_are_not_replaced_without_end() -> Result<()> {
    let installation = &shared().installation;
    for (name, role) in [("looped", "active"), ("stranger", "standby")] {
        let labels = json!({"lease.redislease.io/looped": role});
        let spec =
            json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}});
        installation.workload("Deployment", "looped", name, &json!({ "spec": spec }))?;
    }
    let candidates = json!({"selector": {"matchLabels": {"app": "looped"}}});
    let spec = json!({"candidates": candidates, "election": {"requireReady": false}});
    let lease = installation.lease("looped", "looped", &spec)?;
    lease.wait("the condition", AFTER_ONE_LEASE, |now| {
        now.reason("Ready") == "InvalidReference" && now.message("Ready").contains("from its template")
    })?;
    let cluster = installation.control_plane();
    let pods = |app: &str| -> Result<Vec<String>> {
        let args = ["get", "pods", "-n", "looped", "-l", &format!("app={app}"), "-o", "name"];
        Ok(cluster.kubectl(&args)?.lines().map(str::to_owned).collect())
    };
    let stranger = pods("stranger")?;
    assert_eq!(stranger.len(), 2);
    throughout(Duration::from_secs(5), |after| {
        assert_eq!(pods("stranger")?, stranger, "after {after:?}");
        let looped = pods("looped")?;
        assert!(looped.len() <= 6, "after {after:?}: {looped:?}");
        Ok(())
    })
}

/// A label of a template is none of the operator, also if no lease has its name.
#[test]
fn a_start_of_the_operator_takes_no_pod_from_its_controller() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let cluster = installation.control_plane();
    let labels = json!({"lease.redislease.io/ghost": "active"});
    for kind in ["StatefulSet", "Deployment"] {
        let spec =
            json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}});
        installation.workload(kind, "ghosts", &kind.to_lowercase(), &json!({ "spec": spec }))?;
    }
    let pods = || -> Result<Vec<Value>> {
        let list = cluster.get("/api/v1/namespaces/ghosts/pods?labelSelector=app")?.unwrap_or_default();
        let pods = list["items"].as_array().cloned().unwrap_or_default().into_iter();
        let parts =
            |pod: Value| json!([pod["metadata"]["uid"], pod["metadata"]["labels"], pod["metadata"]["annotations"]]);
        Ok(pods.map(parts).collect())
    };
    installation.wait_for("four pods", FIRST_ELECTION, || match pods() {
        Ok(pods) if pods.len() == 4 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let before = pods()?;
    // The operator has written the label of this one, and the lease is deleted.
    let marked = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "marked", "namespace": "ghosts", "labels": {"lease.redislease.io/gone": "active"},
        "annotations": {"token.redislease.io/gone": "7"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]}});
    for start in ["first", "second"] {
        operator.stop()?;
        installation.apply(&marked)?;
        operator.start_again()?;
        installation.wait_for("the label of the lease that is gone is removed", FIRST_ELECTION, || {
            let pod = cluster.get("/api/v1/namespaces/ghosts/pods/marked")?;
            let labels = &pod.unwrap_or_default()["metadata"]["labels"];
            if labels["lease.redislease.io/gone"].is_null() { Ok(()) } else { Err(labels.to_string()) }
        })?;
        throughout(Duration::from_secs(2), |after| {
            assert_eq!(pods()?, before, "{after:?} after the {start} start");
            Ok(())
        })?;
    }
    operator.stop().map(drop)
}
