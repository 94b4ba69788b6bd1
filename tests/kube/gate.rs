//! Leases whose pods start only after their election: `spec.activation.schedulingGate`.

use std::collections::BTreeSet;
use std::time::Duration;

use redislease_lab::{ControlPlane, Installation, InstallationOptions, Lease, LeaseState, Result, SYSTEM, Watch};
use serde_json::{Value, json};

use crate::handover::handover;
use crate::holder::{wait_for_event_on_both, wait_for_events};
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, change_rules, is, options, set_rules, shared_with_rights,
    the_term_is_kept, throughout,
};

const GATE: &str = "lease.redislease.io/billing";
const TOKEN: &str = "token.redislease.io/billing";
const STARTED: &str = "started.redislease.io/billing";

fn gated() -> InstallationOptions {
    InstallationOptions { allow_scheduling_gate: true, ..options() }
}

/// Applies a namespace and a workload `billing` whose pods have the scheduling gate of the lease. `spec` are more fields of its
/// spec. A second call changes it.
fn workload(installation: &Installation, namespace: &str, kind: &str, image: &str, spec: &Value) -> Result<()> {
    let mut over = json!({"spec": spec});
    let containers = json!([{"name": "main", "image": image}]);
    over["spec"]["template"] = json!({"spec": {"containers": containers, "schedulingGates": [{"name": GATE}]}});
    installation.workload(kind, namespace, "billing", &over)
}

/// A Deployment with three pods.
fn deployment(installation: &Installation, namespace: &str) -> Result<()> {
    let spec = json!({"replicas": 3, "strategy": {"type": "Recreate"}});
    workload(installation, namespace, "Deployment", "none", &spec)
}

/// A lease of the pods of the workload `billing`. `spec` are more fields of its spec.
fn lease<'a>(installation: &'a Installation, namespace: &str, kind: &str, spec: &Value) -> Result<Lease<'a>> {
    let target = json!({"apiVersion": "apps/v1", "kind": kind, "name": "billing"});
    let mut whole = json!({"activation": {"schedulingGate": true}, "candidates": {"workloadRef": target}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    installation.lease(namespace, "billing", &whole)
}

/// How many pods have the image `none`, and how many have the image `new`.
fn images(installation: &Installation, namespace: &str) -> Result<(usize, usize)> {
    let pods = pods(installation, namespace)?;
    let of = |image: &str| pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == image).count();
    Ok((of("none"), of("new")))
}

/// Waits until there are so many pods with each image, and checks that this and the term stay so.
fn update_stops_at(
    installation: &Installation,
    namespace: &str,
    lease: &Lease<'_>,
    term: &LeaseState,
    wanted: (usize, usize),
) -> Result<()> {
    installation.wait_for(&format!("{wanted:?} old and new pods"), SOON, || {
        let found = images(installation, namespace)?;
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    })?;
    throughout(Duration::from_secs(3), |_| {
        assert_eq!(images(installation, namespace)?, wanted);
        assert_eq!(lease.state()?.token(), term.token());
        Ok(())
    })
}

/// The pods of a namespace.
fn pods(installation: &Installation, namespace: &str) -> Result<Vec<Value>> {
    let list = installation.control_plane().get(&format!("/api/v1/namespaces/{namespace}/pods"))?.unwrap_or_default();
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether only the gate of the lease keeps the pod from its start.
fn waits(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"] == json!([{"name": GATE}]) && pod["spec"]["nodeName"].is_null()
}

/// Whether there are three pods, and each of them waits. The pod of [`catch_up`] does not count.
fn no_pod_runs(installation: &Installation, namespace: &str) -> std::result::Result<(), String> {
    let pods: Vec<Value> = pods(installation, namespace)?.into_iter().filter(|pod| name(pod) != "last").collect();
    if pods.len() == 3 && pods.iter().all(waits) { Ok(()) } else { Err(format!("{pods:?}")) }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Waits for a term after the one of `before`, whose pod is Ready while both other pods wait. Returns the lease and the pod.
fn running(
    installation: &Installation,
    lease: &Lease<'_>,
    namespace: &str,
    before: Option<&LeaseState>,
    within: Duration,
) -> Result<(LeaseState, Value)> {
    let state = lease.wait("held, and the status is complete", within, |now| {
        let status = &now.json()["status"];
        now.is_active()
            && now.token() > before.and_then(LeaseState::token)
            && status["candidates"] == json!({"total": 3, "eligible": 3})
            && status["holder"]["node"].is_string()
    })?;
    let pod = installation.wait_for("only the holder runs", SOON, || {
        let pods = pods(installation, namespace)?;
        let holder = pods.iter().find(|pod| Some(name(pod)) == state.holder() && is_ready(pod));
        let others = pods.iter().filter(|pod| waits(pod)).count();
        holder.filter(|_| pods.len() == 3 && others == 2).cloned().ok_or_else(|| format!("{pods:?}"))
    })?;
    let token = state.token().map(|token| token.to_string()).unwrap_or_default();
    let annotations = &pod["metadata"]["annotations"];
    let started = format!("{token}.{}", pod["metadata"]["uid"].as_str().unwrap_or_default());
    assert_eq!((&annotations[TOKEN], &annotations[STARTED]), (&json!(token), &json!(started)), "{pod}");
    assert_eq!(pod["metadata"]["labels"][GATE], "active", "{pod}");
    assert_eq!(pod["spec"]["nodeName"], state.json()["status"]["holder"]["node"], "{pod}");
    lease.wait_for_roles(&state, 3, SOON)?;
    Ok((state, pod))
}

/// Checks that at most one pod ran at any moment: a pod runs from the removal of its gate until its containers have stopped.
fn one_pod_ran_at_a_time(watch: &mut Watch, least: usize) {
    let (mut running, mut ever) = (BTreeSet::new(), BTreeSet::new());
    for event in watch.so_far() {
        let pod = &event.object;
        let stopped =
            event.kind == "DELETED" || ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
        if stopped {
            running.remove(name(pod));
        } else if pod["spec"]["schedulingGates"].is_null() {
            running.insert(name(pod).to_owned());
            ever.insert(name(pod).to_owned());
        }
        assert!(running.len() <= 1, "{running:?} run at the same time, after {} {pod}", event.kind);
    }
    assert!(ever.len() >= least, "{ever:?}");
}

/// Waits until the watch has shown every change so far: it shows a pod that is made now.
fn catch_up(cluster: &ControlPlane, watch: &mut Watch, namespace: &str) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "last", "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "none"}], "schedulingGates": [{"name": "example.com/never"}]},
    });
    cluster.apply_object(&pod)?;
    watch.wait("the last pod", SOON, |event| name(&event.object) == "last").map(drop)
}

#[test]
fn only_the_elected_pod_starts_and_a_stopped_one_is_replaced() -> Result<()> {
    let Cluster { operator, installation } = Cluster::of(&gated())?;
    let cluster = installation.control_plane();
    let namespace = "gated";
    deployment(&installation, namespace)?;
    let mut watch = cluster.watch("pods", namespace)?;
    let lease = lease(&installation, namespace, "Deployment", &json!({}))?;
    let (first, pod) = running(&installation, &lease, namespace, None, FIRST_ELECTION)?;

    // Another process of the operator keeps the pod.
    operator.restart()?;
    operator.wait_ready()?;
    operator.wait_for_metric("redislease_lease_active", &lease.labels(), FIRST_ELECTION, is(1.0))?;
    the_term_is_kept(&installation, namespace, first.attempt().unwrap_or_default())?;
    let (same, same_pod) = running(&installation, &lease, namespace, None, SOON)?;
    assert_eq!(same.token(), first.token());
    assert_eq!(same_pod["metadata"]["uid"], pod["metadata"]["uid"]);
    assert!(same_pod["metadata"]["deletionTimestamp"].is_null(), "{same_pod}");

    // The pod takes some time to stop. The next one starts after that.
    let holder = name(&pod);
    cluster.kubectl(&["annotate", "pod", holder, "-n", namespace, "lab.redislease.io/stops-after=1s"])?;
    cluster.kubectl(&["delete", "pod", holder, "-n", namespace, "--wait=false"])?;
    let (second, _) = running(&installation, &lease, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HolderStopped");
    catch_up(cluster, &mut watch, namespace)?;
    one_pod_ran_at_a_time(&mut watch, 2);
    Ok(())
}

#[test]
fn a_pod_that_the_operator_may_not_delete_keeps_its_term_when_the_lease_is_suspended() -> Result<()> {
    let Cluster { operator: _operator, installation } = Cluster::of(&gated())?;
    let namespace = "undeletable";
    deployment(&installation, namespace)?;
    let lease = lease(&installation, namespace, "Deployment", &json!({}))?;
    let (first, pod) = running(&installation, &lease, namespace, None, FIRST_ELECTION)?;
    let rules = change_rules(&installation, |rule| {
        if rule["verbs"] == json!(["delete"]) {
            rule["verbs"] = json!(["get"]);
        }
    })?;
    let account = format!("--as=system:serviceaccount:{SYSTEM}:redislease-operator");
    installation.wait_for("the right is withdrawn", SOON, || {
        let args = ["auth", "can-i", "delete", "pods", "--namespace=undeletable", &account];
        // It ends with 1 if the answer is no.
        installation.control_plane().kubectl(&args).map_or(Ok(()), Err)
    })?;
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    let named = lease.wait("the missing right is named", SOON, |now| now.reason("Ready") == "Forbidden")?;
    let says = format!("cannot stop the pod {}: ", name(&pod));
    assert!(named.message("Ready").contains(&says) && named.message("Ready").contains("cannot delete"), "{named}");
    the_term_is_kept(&installation, namespace, first.attempt().unwrap_or_default())?;
    set_rules(&installation, &rules)?;
    lease.wait("suspended", SOON, |now| now.reason("Ready") == "Suspended" && !now.is_active())?;
    installation.wait_for("no pod runs", SOON, || no_pod_runs(&installation, namespace))
}

#[test]
fn a_pod_that_loses_the_lease_is_deleted() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let cluster = installation.control_plane();
    let namespace = "gate-handover";
    deployment(installation, namespace)?;
    let mut watch = cluster.watch("pods", namespace)?;
    let lease = lease(installation, namespace, "Deployment", &json!({}))?;
    let (first, pod) = running(installation, &lease, namespace, None, FIRST_ELECTION)?;
    let before = name(&pod).to_owned();
    cluster.kubectl(&["annotate", "pod", &before, "-n", namespace, "lab.redislease.io/stops-after=1s"])?;

    // The last one in the order of the election.
    let to = lease.roles()?.into_keys().rfind(|pod| *pod != before).expect("another candidate");
    let done = handover(installation, namespace, &["--to", &format!("pod/{to}")]);
    assert!(done.status.success(), "{done:?}");
    let (second, after) = running(installation, &lease, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_eq!(name(&after), to);
    assert_eq!(second.json()["status"]["handover"]["state"], "Completed", "{second}");
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HandoverRequested");
    wait_for_events(installation, namespace, &first, "HandoverRequested", " must stop: a handover was requested")?;
    let says = format!("{before} does not hold the lease any more and is deleted");
    wait_for_event_on_both(installation, namespace, &before, ("Normal", "PodDeleted"), &says)?;
    let is_gone = pods(installation, namespace)?.iter().all(|pod| name(pod) != before);
    assert!(is_gone, "the Deployment has replaced {before}");
    catch_up(cluster, &mut watch, namespace)?;
    one_pod_ran_at_a_time(&mut watch, 2);

    // Without an election, no pod runs, and all of them can be elected again.
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    installation.wait_for("no pod runs", AFTER_ONE_LEASE, || no_pod_runs(installation, namespace))
}

/// The budget allows no eviction: the pods with a gate are not Ready. A handover moves the lease, and the drain ends.
#[test]
fn a_drain_that_a_budget_blocks_continues_after_a_handover() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let cluster = installation.control_plane();
    let namespace = "gate-drained";
    deployment(installation, namespace)?;
    installation.apply(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "billing", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "billing"}}},
    }))?;
    let lease = lease(installation, namespace, "Deployment", &json!({}))?;
    let (first, pod) = running(installation, &lease, namespace, None, FIRST_ELECTION)?;
    installation.wait_for("the budget counts the running pod", SOON, || {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/billing");
        let budget = cluster.get(&path)?.unwrap_or_default();
        if budget["status"]["currentHealthy"] == 1 { Ok(()) } else { Err(format!("{budget}")) }
    })?;
    let holder = name(&pod).to_owned();
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": holder, "namespace": namespace},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{holder}/eviction");
    let refused = cluster.kubectl_with_input(&["create", "--raw", &path, "-f", "-"], &eviction.to_string());
    let refused = refused.expect_err("the budget refuses the eviction").to_string();
    assert!(refused.contains("disruption budget"), "{refused}");

    let done = handover(installation, namespace, &[]);
    assert!(done.status.success(), "{done:?}");
    let (_, next) = running(installation, &lease, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_ne!(name(&next), holder);
    let is_gone = pods(installation, namespace)?.iter().all(|pod| name(pod) != holder);
    assert!(is_gone, "{holder} no longer blocks the drain");
    Ok(())
}

#[test]
fn an_update_needs_another_strategy() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let cluster = installation.control_plane();
    let update = |namespace: &str, kind: &str, spec: &Value| workload(installation, namespace, kind, "new", spec);

    // A Deployment deletes no old pod until the new one is Ready. With Recreate, it deletes all of them.
    let namespace = "gate-deployment";
    deployment(installation, namespace)?;
    let of_deployment = lease(installation, namespace, "Deployment", &json!({}))?;
    let (first, _) = running(installation, &of_deployment, namespace, None, FIRST_ELECTION)?;
    let status = cluster.kubectl(&["rollout", "status", "deployment/billing", "-n", namespace, "--timeout=1s"]);
    assert!(status.is_err_and(|error| error.to_string().contains("timed out")), "two pods are not Ready");
    update(namespace, "Deployment", &json!({"replicas": 3, "strategy": {"type": "RollingUpdate"}}))?;
    update_stops_at(installation, namespace, &of_deployment, &first, (3, 1))?;
    let recreate = r#"--patch={"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#;
    cluster.kubectl(&["patch", "deployment", "billing", "-n", namespace, recreate])?;
    running(installation, &of_deployment, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_eq!(images(installation, namespace)?, (0, 3));

    // A StatefulSet creates a pod when the one before it is Ready, and replaces one pod.
    let namespace = "gate-ordered";
    workload(installation, namespace, "StatefulSet", "none", &json!({"replicas": 3}))?;
    let ordered = lease(installation, namespace, "StatefulSet", &json!({}))?;
    let first = ordered.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    update_stops_at(installation, namespace, &ordered, &first, (2, 0))?;
    let namespace = "gate-parallel";
    let parallel = json!({"replicas": 3, "podManagementPolicy": "Parallel"});
    workload(installation, namespace, "StatefulSet", "none", &parallel)?;
    let of_set = lease(installation, namespace, "StatefulSet", &json!({}))?;
    let (first, _) = running(installation, &of_set, namespace, None, FIRST_ELECTION)?;
    update(namespace, "StatefulSet", &parallel)?;
    update_stops_at(installation, namespace, &of_set, &first, (2, 1))?;
    let on_delete = r#"--patch={"spec":{"updateStrategy":{"$retainKeys":["type"],"type":"OnDelete"}}}"#;
    cluster.kubectl(&["patch", "statefulset", "billing", "-n", namespace, on_delete])?;
    cluster.kubectl(&["delete", "pods", "--all", "-n", namespace])?;
    running(installation, &of_set, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_eq!(images(installation, namespace)?, (0, 3));

    // A DaemonSet replaces the pods that wait, and keeps the holder.
    let namespace = "gate-daemon";
    workload(installation, namespace, "DaemonSet", "none", &json!({}))?;
    let of_daemon = lease(installation, namespace, "DaemonSet", &json!({}))?;
    let (first, pod) = running(installation, &of_daemon, namespace, None, FIRST_ELECTION)?;
    update(namespace, "DaemonSet", &json!({}))?;
    update_stops_at(installation, namespace, &of_daemon, &first, (1, 2))?;
    cluster.kubectl(&["delete", "pod", name(&pod), "-n", namespace])?;
    running(installation, &of_daemon, namespace, Some(&first), AFTER_ONE_LEASE)?;
    assert_eq!(images(installation, namespace)?, (0, 3));
    Ok(())
}

#[test]
fn an_operator_without_the_flag_or_the_rights_starts_no_pod() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let namespace = "gate-refused";
    deployment(&installation, namespace)?;
    let lease = lease(&installation, namespace, "Deployment", &json!({}))?;
    let refused = lease.wait("refused", FIRST_ELECTION, |now| now.reason("Ready") == "ActivationNotAllowed")?;
    let ready = refused.condition("Ready").expect("the condition");
    assert_eq!(ready.status, "False");
    assert!(
        ready.message.contains("spec.activation.schedulingGate is set")
            && ready.message.contains("without --allow-scheduling-gate (rbac.allowSchedulingGate in the chart)"),
        "{refused}"
    );
    installation.wait_for("three pods wait", SOON, || no_pod_runs(&installation, namespace))?;
    throughout(Duration::from_secs(2), |_| {
        assert_eq!(no_pod_runs(&installation, namespace), Ok(()));
        assert_eq!(lease.state()?.holder(), None);
        Ok(())
    })?;

    // The chart has not given it the rights: the admission policies refuse to start the pod.
    operator.stop()?;
    let _flagged = installation.start_operator("operator-1", &["--allow-scheduling-gate"])?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let holder = held.holder().unwrap_or_default();
    let says = format!("{holder} holds the lease and cannot be started: ");
    for on in [("RedisLease", "billing"), ("Pod", holder)] {
        let event = installation.wait_for_event(namespace, on, "ActivationRefused", &says, SOON)?;
        assert!(event.kind == "Warning" && event.note.contains("the RedisLease operator can change only"), "{event:?}");
    }
    assert_eq!(no_pod_runs(&installation, namespace), Ok(()));
    Ok(())
}
