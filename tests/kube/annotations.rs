//! Leases of annotated workloads.

use std::ops::Range;
use std::time::{Duration, Instant};

use redislease_lab::{Installation, Lease, LeaseState, Operator, Result};
use serde_json::{Value, json};

use crate::support::{FIRST_ELECTION, SOON, installation, nodes_with, shared, throughout};

/// Limit for a removal. On a busy machine the quorum can be lost meanwhile, and the operator then elects itself again first.
const REMOVED: Duration = Duration::from_mins(1);

/// A lease that fits the quorum of the lab, whose longest lease is 10 s.
const SHORT: [&str; 4] = [
    "redislease.io/lease=true",
    "redislease.io/lease-duration=10s",
    "redislease.io/renew-interval=2s",
    "redislease.io/grace-period=2s",
];

pub fn quorum_is_ready(installation: &Installation) -> Result<()> {
    let ready = |quorum: &redislease_lab::QuorumState| {
        quorum.condition("Ready").is_some_and(|ready| ready.status == "True") && quorum.count("Up") == 3
    };
    installation.wait_for_quorum("ready", FIRST_ELECTION, ready).map(drop)
}

fn read(installation: &Installation, path: &str) -> Result<Value> {
    Ok(installation.control_plane().get(path)?.unwrap_or_default())
}

/// Waits until the lease does not exist, no pod has its label or token, and no Redis node has its key.
fn nothing_is_left(installation: &Installation, namespace: &str, lease: &Lease<'_>, key: &str) -> Result<()> {
    installation.wait_for("the lease, its labels and its keys are removed", REMOVED, || {
        let path = format!("/apis/redislease.io/v1alpha1/namespaces/{namespace}/redisleases/{key}");
        let found = installation.control_plane().get(&path)?;
        let roles = lease.roles()?;
        let nodes = nodes_with(installation, &format!("redislease:lock:{namespace}/{key}"))?;
        if found.is_none() && roles.is_empty() && nodes == 0 {
            return Ok(());
        }
        Err(format!("lease: {}, roles {roles:?}, {nodes} nodes with its key", found.is_some()))
    })
}

/// The notes of the events of a reason on a workload.
fn notes(installation: &Installation, namespace: &str, workload: (&str, &str), reason: &str) -> Result<Vec<String>> {
    let mut events = installation.events(namespace)?;
    events.retain(|event| (event.on.0.as_str(), event.on.1.as_str()) == workload && event.reason == reason);
    assert!(events.iter().all(|event| event.kind == "Warning"), "{events:?}");
    Ok(events.into_iter().map(|event| event.note).collect())
}

/// The lease has what the annotations of the Deployment say, and the Deployment owns it.
fn is_created_for(lease: &LeaseState, deployment: &Value) {
    let spec = &lease.json()["spec"];
    assert_eq!([&spec["leaseDuration"], &spec["renewInterval"], &spec["gracePeriod"]], ["10s", "2s", "2s"]);
    assert_eq!(spec["quorumRef"]["name"], "default");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"});
    assert_eq!(spec["candidates"], json!({"workloadRef": target}));
    let metadata = &lease.json()["metadata"];
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "redislease");
    assert_eq!(metadata["annotations"]["redislease.io/created-for"], "Deployment/billing");
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&deployment["metadata"]["uid"], &json!(true)));
}

#[test]
fn a_lease_follows_the_annotations_of_its_deployment() -> Result<()> {
    let installation = &shared().installation;
    let namespace = "annotated";
    quorum_is_ready(installation)?;
    installation.deployment(namespace, "billing", 3)?;
    let path = "/apis/apps/v1/namespaces/annotated/deployments/billing";
    let before = read(installation, path)?;
    let lease = installation.find_lease(namespace, "billing");

    let began = Instant::now();
    installation.annotate(namespace, "deployment/billing", &SHORT)?;
    let first = lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    println!("from annotating a Deployment to an Active lease: {} ms", began.elapsed().as_millis());
    lease.wait_for_roles(&first, 3, SOON)?;
    is_created_for(&first, &before);

    // A changed annotation changes the lease, and the term continues.
    installation.annotate(namespace, "deployment/billing", &["redislease.io/lease-duration=9s500ms"])?;
    let changed = lease.wait("9.5 s", FIRST_ELECTION, |now| now.json()["spec"]["leaseDuration"] == "9s500ms")?;
    assert_eq!((changed.holder(), changed.token()), (first.holder(), first.token()));

    // A misspelt annotation and an invalid value are reported once each, and the lease stays as it is.
    let on = ("Deployment", "billing");
    for (change, undo, reason, says) in [
        (
            vec!["redislease.io/lease-duraton=8s", "redislease.io/lease-duration-"],
            vec!["redislease.io/lease-duraton-", "redislease.io/lease-duration=9s500ms"],
            "UnknownAnnotation",
            "redislease.io/lease-duraton (value \"8s\") is unknown: use redislease.io/lease-duration",
        ),
        (
            vec!["redislease.io/grace-period=2"],
            vec!["redislease.io/grace-period=2s"],
            "InvalidAnnotation",
            "redislease.io/grace-period is \"2\" and must be a duration",
        ),
    ] {
        installation.annotate(namespace, "deployment/billing", &change)?;
        let event = installation.wait_for_event(namespace, on, reason, says, FIRST_ELECTION)?;
        assert_eq!(event.kind, "Warning");
        // Another change of the workload does not report it again.
        installation.annotate(namespace, "deployment/billing", &["example.com/other=1"])?;
        throughout(Duration::from_secs(2), |_| {
            let now = lease.state()?;
            assert_eq!(now.json()["spec"], changed.json()["spec"]);
            assert_eq!(notes(installation, namespace, on, reason)?.len(), 1);
            Ok(())
        })?;
        installation.annotate(namespace, "deployment/billing", &undo)?;
    }
    assert_eq!(lease.state()?.token(), first.token());

    let after = read(installation, path)?;
    assert_eq!(after["spec"], before["spec"], "the operator changes neither the template nor anything else");
    let sets = read(installation, "/apis/apps/v1/namespaces/annotated/replicasets")?;
    assert_eq!(sets["items"].as_array().map(Vec::len), Some(1), "no rollout: {sets}");

    installation.annotate(namespace, "deployment/billing", &["redislease.io/lease-"])?;
    nothing_is_left(installation, namespace, &lease, "billing")
}

/// A workload of a kind with the annotations, and with one pod. The pods of a CronJob come from a Job that is created by hand.
pub fn workload(kind: &str, namespace: &str, name: &str) -> Value {
    let annotations: serde_json::Map<String, Value> = SHORT
        .iter()
        .filter_map(|annotation| annotation.split_once('='))
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    redislease_lab::workload(kind, namespace, name, &json!({"metadata": {"annotations": annotations}}))
}

#[test]
fn each_kind_of_workload_owns_its_lease() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    let namespace = "kinds";
    quorum_is_ready(installation)?;
    cluster.kubectl(&["create", "namespace", namespace])?;
    let kinds = ["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"];
    for kind in kinds {
        installation.apply(&workload(kind, namespace, &kind.to_lowercase()))?;
    }
    cluster.kubectl(&["create", "job", "run", "--from=cronjob/cronjob", "--namespace", namespace])?;
    for kind in kinds {
        let name = kind.to_lowercase();
        let lease = installation.find_lease(namespace, &name);
        let active = lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
        let holder = active.holder().unwrap_or_default();
        let prefix = if kind == "CronJob" { "run-" } else { &name };
        assert!(holder.starts_with(prefix), "{kind}: {holder}");
        let owner = &active.json()["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!(kind), &json!(name)));
        cluster.kubectl(&["delete", &name, &name, "--namespace", namespace])?;
        nothing_is_left(installation, namespace, &lease, &name)?;
    }
    Ok(())
}

/// Waits until an object has exactly these events about annotations, in any order.
fn wait_for_mistakes(installation: &Installation, namespace: &str, on: (&str, &str), wanted: &[&str]) -> Result<()> {
    let what = format!("{} events about annotations on {}", wanted.len(), on.1);
    installation.wait_for(&what, FIRST_ELECTION, || {
        let mut found = notes(installation, namespace, on, "UnknownAnnotation")?;
        found.extend(notes(installation, namespace, on, "InvalidAnnotation")?);
        let all = wanted.iter().all(|wanted| found.iter().any(|note| note.starts_with(wanted)));
        if all && found.len() == wanted.len() { Ok(()) } else { Err(format!("{found:?}")) }
    })
}

/// The sum of the writes of leases with this result, over all replicas.
fn writes(operators: &[Operator], result: &str) -> Result<String> {
    let labels = [("kind", "lease"), ("result", result)];
    let mut sum = 0.0;
    for operator in operators {
        sum += operator.metrics()?.value("redislease_api_writes_total", &labels).unwrap_or_default();
    }
    Ok(sum.to_string())
}

/// The Deployments `web-N` with these numbers.
fn deployments(namespace: &str, numbers: Range<usize>) -> Value {
    let items: Vec<Value> = numbers.map(|number| workload("Deployment", namespace, &format!("web-{number}"))).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Waits until the replicas have written leases so many times, without a failure.
fn wait_for_writes(installation: &Installation, operators: &[Operator], ok: &str) -> Result<()> {
    installation.wait_for("the writes are counted", SOON, || {
        let counts = ["ok", "conflict", "error"].map(|result| writes(operators, result).unwrap_or_default());
        if counts == [ok, "0", "0"] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
}

/// The names and generations of the leases of a namespace.
fn generations(installation: &Installation, namespace: &str) -> Result<Vec<(String, Value)>> {
    let leases = read(installation, &format!("/apis/redislease.io/v1alpha1/namespaces/{namespace}/redisleases"))?;
    let items = leases["items"].as_array().into_iter().flatten();
    let items = items.map(|item| (item["metadata"]["name"].to_string(), item["metadata"]["generation"].clone()));
    Ok(items.collect())
}

/// Both replicas stop. While they are away, the annotation of `web-9` is removed. Returns the leases after their start.
fn restart_with_one_annotation_less(
    installation: &Installation,
    namespace: &str,
    operators: &[Operator],
) -> Result<Vec<(String, Value)>> {
    for operator in operators {
        operator.stop()?;
    }
    let before = generations(installation, namespace)?;
    assert_eq!(before.len(), 10);
    installation.annotate(namespace, "deployment/web-9", &["redislease.io/lease-"])?;
    for operator in operators {
        operator.start_again()?;
    }
    // A new workload shows that the controller works again.
    installation.apply(&deployments(namespace, 10..11))?;
    installation.find_lease(namespace, "web-10").wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    let is_9 = |lease: &(String, Value)| lease.0.contains("web-9");
    let after = installation.wait_for("the lease of web-9 is deleted", FIRST_ELECTION, || {
        let now = generations(installation, namespace)?;
        if now.iter().any(is_9) { Err(format!("{now:?}")) } else { Ok(now) }
    })?;
    let same = before.iter().filter(|&lease| !is_9(lease)).all(|lease| after.contains(lease));
    assert!(same && after.len() == 10, "{before:?} {after:?}");
    Ok(after)
}

#[test]
fn one_of_two_replicas_writes_and_a_restart_writes_nothing() -> Result<()> {
    let installation = &installation()?;
    let namespace = "replicated";
    let operators = installation.start_replicas(2)?;
    for operator in &operators {
        operator.wait_ready()?;
    }
    quorum_is_ready(installation)?;
    let cluster = installation.control_plane();
    cluster.kubectl(&["create", "namespace", namespace])?;
    installation.apply(&deployments(namespace, 0..10))?;
    for number in 0..10 {
        let lease = installation.find_lease(namespace, &format!("web-{number}"));
        lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    }
    wait_for_writes(installation, &operators, "10")?;
    installation.annotate(namespace, "deployment/web-0", &["redislease.io/quorums=x"])?;
    let on = ("Deployment", "web-0");
    installation.wait_for_event(namespace, on, "UnknownAnnotation", "use redislease.io/quorum", FIRST_ELECTION)?;

    // A mistake on a pod is reported, too.
    let pods = cluster.get("/api/v1/namespaces/replicated/pods?labelSelector=app%3Dweb-1")?.unwrap_or_default();
    let pod = pods["items"][0]["metadata"]["name"].as_str().expect("a pod").to_owned();
    installation.annotate(namespace, &format!("pod/{pod}"), &["redislease.io/exclude=yes"])?;
    let excluded = ["Annotation redislease.io/exclude is \"yes\" and must be \"true\" or \"false\": use \"true\"."];
    wait_for_mistakes(installation, namespace, ("Pod", &pod), &excluded)?;

    let after = restart_with_one_annotation_less(installation, namespace, &operators)?;
    // One creation and one deletion.
    wait_for_writes(installation, &operators, "2")?;
    assert_eq!(notes(installation, namespace, on, "UnknownAnnotation")?.len(), 1, "the event is not repeated");
    wait_for_mistakes(installation, namespace, ("Pod", &pod), &excluded)?;

    // Without the feature, an annotation has no effect.
    for operator in &operators {
        operator.stop()?;
    }
    let without = installation.start_operator("operator-2", &["--annotations=false"])?;
    without.wait_ready()?;
    installation.apply(&deployments(namespace, 11..12))?;
    installation.annotate(namespace, "deployment/web-8", &["redislease.io/lease-"])?;
    throughout(Duration::from_secs(3), |_| {
        assert_eq!(generations(installation, namespace)?, after);
        Ok(())
    })
}
