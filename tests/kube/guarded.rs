//! Writes to pods and workloads that are refused, changed on their way, or undone by others: bounded, counted and reported.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{Installation, InstallationOptions, LeaseState, Operator, Result, refuse};
use serde_json::{Value, json};

use crate::granularity::{consenting, replicas, scaled, scaling, workload};
use crate::holder::held_by;
use crate::support::{Cluster, FIRST_ELECTION, SOON, options, shared_with_rights, the_term_is_kept, throughout};

const LABEL: &str = "lease.redislease.io/billing";
/// How long the writes are counted.
const COUNTED: Duration = Duration::from_secs(15);

/// Makes the API server change updates of `resource` in `namespace` that `matches` selects, with these JSON patches. Returns when
/// `is_changed` accepts what kubectl prints for this dry run.
fn mutate(
    installation: &Installation,
    namespace: &str,
    [group, resource]: [&str; 2],
    matches: &str,
    patch: &str,
    dry_run: &[&str],
    is_changed: impl Fn(&Value) -> bool,
) -> Result<()> {
    let name = format!("mutate-{namespace}");
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]});
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
            "matchConditions": [{"name": "only", "expression": matches}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    }))?;
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }))?;
    installation.wait_for("the policy", FIRST_ELECTION, || {
        let args = [dry_run, &["-n", namespace, "--dry-run=server", "--output=json"]].concat();
        let shown: Value = serde_json::from_str(&installation.control_plane().kubectl(&args)?).expect("JSON");
        if is_changed(&shown) { Ok(()) } else { Err(format!("{shown}")) }
    })
}

/// The labels of the metric of refused writes.
const ALTERED: &str = "altered";
const DENIED: &str = "denied";

fn refused(operator: &Operator, kind: &str, reason: &str) -> Result<f64> {
    let labels = [("kind", kind), ("reason", reason)];
    Ok(operator.metrics()?.value("redislease_writes_refused_total", &labels).expect("it exists from the start"))
}

/// The writes of roles that reached the API server, whatever their result.
fn role_writes(operator: &Operator) -> Result<f64> {
    Ok(operator.metrics()?.value("redislease_api_writes_total", &[("kind", "pod_role")]).unwrap_or_default())
}

/// Counts the writes of roles since there were `before`, for a while. There are at most `most`.
fn counts_at_most(operator: &Operator, before: f64, most: f64) -> Result<()> {
    throughout(COUNTED, |_| Ok(()))?;
    let writes = role_writes(operator)? - before;
    println!("{writes} writes of roles in {} s and before", COUNTED.as_secs());
    assert!(writes <= most, "{writes} writes, more than {most}");
    Ok(())
}

fn first_pod(installation: &Installation, namespace: &str) -> Result<String> {
    let name = "jsonpath={.items[0].metadata.name}";
    installation.control_plane().kubectl(&["get", "pods", "-n", namespace, "-o", name])
}

/// Makes the API server remove the label from all pods in the namespace.
fn strip_the_label(installation: &Installation, namespace: &str) -> Result<()> {
    let pod = first_pod(installation, namespace)?;
    let label = format!("--patch={}", json!({"metadata": {"labels": {LABEL: "standby"}}}));
    let path = "'/metadata/labels/' + jsonpatch.escapeKey('lease.redislease.io/billing')";
    mutate(
        installation,
        namespace,
        ["", "pods"],
        &format!("has(object.metadata.labels) && '{LABEL}' in object.metadata.labels"),
        &format!("[JSONPatch{{op: 'remove', path: {path}}}]"),
        &["patch", "pod", &pod, "--type=merge", &label],
        |shown| shown["metadata"]["labels"][LABEL].is_null(),
    )
}

#[test]
fn webhooks_that_strip_the_label_or_refuse_it_are_reported_and_cause_few_writes() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    for namespace in ["stripped", "denied"] {
        installation.deployment(namespace, "billing", 2)?;
    }
    strip_the_label(&installation, "stripped")?;
    let (pod, label) = (first_pod(&installation, "denied")?, format!("{LABEL}=standby"));
    let allowed = format!("!has(object.metadata.labels) || !('{LABEL}' in object.metadata.labels)");
    let write = vec!["label", "pod", "-n", "denied", &pod, &label];
    let _refusal = refuse(&installation, "denied", ["", "pods"], &allowed, write)?;

    let before = role_writes(&operator)?;
    let lease = installation.lease("stripped", "billing", &json!({}))?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let holder = held.holder().unwrap_or_default();
    let says = format!(
        "{holder} cannot get its label and its token: the API server accepted the write, but metadata.labels[{LABEL}] is absent instead of \"active\""
    );
    let event = installation.wait_for_event("stripped", ("RedisLease", "billing"), "WriteRefused", &says, SOON)?;
    assert!(event.kind == "Warning" && event.note.contains("managedFields names"), "{event:?}");
    assert!(refused(&operator, "pod", ALTERED)? >= 1.0);
    assert!(refused(&operator, "pod", DENIED)? < 1.0);

    let lease = installation.lease("denied", "billing", &json!({}))?;
    lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let event = installation.wait_for_event("denied", ("RedisLease", "billing"), "WriteRefused", "", SOON)?;
    assert!(event.kind == "Warning" && event.note.contains("refused by the test"), "{event:?}");
    assert!(refused(&operator, "pod", DENIED)? >= 1.0);
    // For each of the four pods at most six writes: the first one, and after 1, 2, 4, 8 and 16 s.
    counts_at_most(&operator, before, 24.0)
}

/// As a tool does that knows nothing of the label: it removes it again and again.
#[test]
fn a_fighter_is_corrected_counted_and_slowed_down() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let namespace = "fought-over";
    let (lease, held) = held_by(&installation, namespace, 2, &json!({}))?;
    lease.wait_for_roles(&held, 2, SOON)?;
    let holder = held.holder().unwrap_or_default();
    let before = role_writes(&operator)?;
    let (end, removes) = (Instant::now() + COUNTED, format!("{LABEL}-"));
    while Instant::now() < end {
        installation.control_plane().kubectl(&["label", "pod", "-n", namespace, holder, &removes])?;
    }
    let writes = role_writes(&operator)? - before;
    println!("{writes} writes of roles in {} s", COUNTED.as_secs());
    // Three at once, then after 1, 2, 4 and 8 s; a write may meet another version, and is sent again.
    assert!((3.0..=14.0).contains(&writes), "{writes} writes");
    let corrections = operator.metrics()?.value("redislease_corrections_total", &[("kind", "pod")]);
    assert!(corrections.is_some_and(|corrections| (3.0..=8.0).contains(&corrections)), "{corrections:?}");
    let says = format!(
        "{holder} was changed after the operator had written it: metadata.labels[{LABEL}] is absent instead of \"active\""
    );
    installation.wait_for_event(namespace, ("RedisLease", "billing"), "ChangedByOthers", &says, SOON)?;
    assert_eq!(lease.state()?.token(), held.token(), "the term goes on");
    Ok(())
}

#[test]
fn a_webhook_that_clamps_the_replicas_is_reported_and_causes_few_writes() -> Result<()> {
    let Cluster { operator, installation } = Cluster::of(&InstallationOptions { allow_scale: true, ..options() })?;
    let namespace = "clamped";
    consenting(&installation, namespace, "Deployment", 0)?;
    mutate(
        &installation,
        namespace,
        ["apps", "deployments"],
        "object.spec.replicas > 1",
        "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 1}]",
        &["patch", "deployment", "billing", "--type=merge", r#"--patch={"spec": {"replicas": 5}}"#],
        |shown| shown["spec"]["replicas"] == 1,
    )?;
    let lease = scaling(&installation, namespace, "Deployment")?;
    lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let says = "the API server accepted the write, but spec.replicas is \"1\" instead of \"3\"";
    let within = FIRST_ELECTION;
    let event = installation.wait_for_event(namespace, ("RedisLease", "billing"), "ActivationRefused", "", within)?;
    assert!(event.kind == "Warning" && event.note.contains(says), "{event:?}");
    assert!(event.note.contains("managedFields names redislease as its manager"), "{event:?}");
    assert!(refused(&operator, "deployment", ALTERED)? >= 1.0);
    counts_at_most(&operator, role_writes(&operator)?, 5.0)
}

/// A policy that accepts other writes to the workload.
#[test]
fn a_workload_that_must_not_be_scaled_to_0_keeps_its_term_when_the_lease_is_suspended() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let namespace = "unstoppable";
    let lease = scaled(installation, namespace, "Deployment", 0)?;
    let first = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    replicas(installation, namespace, "active", 3)?;
    let stop = vec!["patch", "deployment", "billing", "-n", namespace, r#"--patch={"spec": {"replicas": 0}}"#];
    let policy = refuse(installation, namespace, ["apps", "deployments"], "object.spec.replicas > 0", stop)?;
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    let named = lease.wait("the refusal is named", SOON, |now| now.reason("Ready") == "Forbidden")?;
    let message = named.message("Ready");
    assert!(message.contains("cannot stop the workload") && message.contains("refused by the test"), "{named}");
    the_term_is_kept(installation, namespace, first.attempt().unwrap_or_default())?;
    replicas(installation, namespace, "active", 3)?;
    policy.end()?;
    replicas(installation, namespace, "standby", 0)?;
    lease.wait("suspended", SOON, |now| now.reason("Ready") == "Suspended" && !now.is_active()).map(drop)
}

/// Each of their writes makes the version older that the operator names.
#[test]
fn others_who_never_rest_do_not_delay_a_stop() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let lease = scaled(installation, "restless", "Deployment", 0)?;
    lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    replicas(installation, "restless", "active", 3)?;
    let (ends, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let writes = |replicas: &str| {
        let args = ["scale", "deployment/billing", "--namespace=restless", replicas];
        installation.control_plane().kubectl(&args)
    };
    thread::scope(|scope| {
        for number in ["--replicas=5", "--replicas=2"] {
            let (ends, written, writes) = (&ends, &written, &writes);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    // Its own write may conflict.
                    written.fetch_add(u32::from(writes(number).is_ok()), Ordering::Relaxed);
                }
            });
        }
        // Until the operator leaves more and more time between its corrections.
        thread::sleep(SOON);
        let stopped = lease.patch(&json!({"spec": {"suspend": true}})).and_then(|()| {
            installation.wait_for("the workload is withdrawn", SOON, || {
                let now = workload(installation, "restless", "Deployment")?;
                let label = &now["metadata"]["labels"][LABEL];
                if label == "standby" { Ok(()) } else { Err(label.to_string()) }
            })
        });
        ends.store(true, Ordering::Relaxed);
        let written = written.load(Ordering::Relaxed);
        assert!(written >= 5, "the others wrote {written} times");
        stopped
    })
}
