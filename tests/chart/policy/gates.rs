//! Scheduling gates: which pods the operator can start and delete.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{self, Delete, Patch, PatchPart};
use super::pods::{ANNOTATIONS, LABELS, METADATA, SPEC, STATUS};
use super::{ALL_RIGHTS, Requests, but, create_pods, grant, no_warnings, with_all_rights};
use crate::cluster::shared;

const STARTED: &str = "the RedisLease operator can change only the annotations token.redislease.io/* and withdrawn.redislease.io/* of a pod, add started.redislease.io/NAME when it removes the scheduling gate lease.redislease.io/NAME, and change no other annotation; or a mutating webhook or policy changed it in the same request";
const GATES: &str =
    "the RedisLease operator can remove only the scheduling gates lease.redislease.io/* of a pod, and add none";
const GATED_SPEC: &str = "the RedisLease operator cannot change the spec of a pod, except its scheduling gates; or a mutating webhook or policy changed it in the same request";
const DELETIONS: &str =
    "the RedisLease operator can delete only pods whose annotation started.redislease.io/* has their UID";

/// The gate of the lease `web`, and one of somebody else.
const GATE: &str = "lease.redislease.io/web";
const FOREIGN: &str = "example.com/quota";

/// The patch that lets a pod start, with other fields as in [`but`].
fn start(changes: &[(&str, Value)]) -> Value {
    let patch = json!({
        "metadata": {
            "labels": {"lease.redislease.io/web": "active"},
            "annotations": {"token.redislease.io/web": "7", "started.redislease.io/web": "7"},
        },
        "spec": {"schedulingGates": null},
    });
    but(&patch, changes)
}

/// Changes that Kubernetes allows in the spec of a pod with a scheduling gate.
fn changed_specs() -> Vec<(&'static str, Value)> {
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    vec![
        ("/spec/containers", json!([{"name": "main", "image": "other"}])),
        ("/spec/initContainers", json!([{"name": "first", "image": "other"}])),
        ("/spec/activeDeadlineSeconds", json!(1)),
        ("/spec/tolerations", json!([{"key": "dedicated", "operator": "Exists"}])),
        ("/spec/nodeSelector", json!({"disk": "ssd"})),
        ("/spec/affinity", json!({"nodeAffinity": required})),
    ]
}

fn annotate(name: &str, value: &Value) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

/// What the policy refuses about the pods of the next test.
fn refused_changes() -> Vec<(&'static str, Request)> {
    let without_gates = json!({"spec": {"schedulingGates": null}});
    let mark = |value: Value| annotate("started.redislease.io/web", &value);
    let mut cases = vec![
        (LABELS, Patch("gated", start(&[("/metadata/labels/another", json!("label"))]))),
        (STARTED, Patch("gated", start(&[("/metadata/annotations/another", json!("annotation"))]))),
        (STARTED, Patch("gated", start(&[("/metadata/annotations/started.redislease.io~1shop", json!("7"))]))),
        (STARTED, Patch("gated", mark(json!("7")))),
        (STARTED, Patch("gated-by-two", start(&[("/spec/schedulingGates", json!([{"name": GATE}]))]))),
        (STARTED, Patch("gated-by-others", start(&[]))),
        (STARTED, Patch("plain", mark(json!("7")))),
        (STARTED, Patch("started", mark(json!("7")))),
        (STARTED, Patch("started", mark(Value::Null))),
        (STARTED, Patch("gated-again", but(&mark(Value::Null), &[("/spec", json!({"schedulingGates": null}))]))),
        (METADATA, Patch("gated", start(&[("/metadata/finalizers", json!(["example.com/stay"]))]))),
        (GATES, Patch("gated-by-others", without_gates)),
        (GATES, Patch("gated-by-two", start(&[]))),
        (GATES, Patch("gated-by-two", json!({"spec": {"schedulingGates": [{"name": GATE}]}}))),
        (STATUS, PatchPart("status", "plain", json!({"status": {"phase": "Failed"}}))),
    ];
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "other"}]}});
    cases.push((GATED_SPEC, PatchPart("ephemeralcontainers", "plain", debug)));
    for change in changed_specs() {
        cases.push((GATED_SPEC, Patch("gated", start(std::slice::from_ref(&change)))));
        let alone = but(&json!({"spec": {}}), &[change]);
        cases.push((GATED_SPEC, Patch("gated", alone)));
    }
    cases
}

/// What the operator does with a pod: it writes the marks, removes its gate, and deletes what it has started.
fn writes_of_the_operator(pods: &Requests<'_>) -> Result<()> {
    let read = |name: &str, field: &str| {
        let field = format!("--output=jsonpath={{{field}}}");
        pods.installation.control_plane().kubectl(&["get", "pod", name, "--namespace", pods.namespace, &field])
    };
    let started = |name| {
        let mark = json!(format!("7.{}", read(name, ".metadata.uid")?));
        Ok::<_, redislease_lab::Error>(("/metadata/annotations/started.redislease.io~1web", mark))
    };
    let (uid, version) = (read("gated", ".metadata.uid")?, read("gated", ".metadata.resourceVersion")?);
    let identified = [("/metadata/uid", json!(uid)), ("/metadata/resourceVersion", json!(version)), started("gated")?];
    pods.allowed(&Patch("gated", start(&identified)))?;
    assert_eq!(read("gated", ".spec.schedulingGates")?, "");
    let without_ours = [("/spec/schedulingGates", json!([{"name": FOREIGN}])), started("gated-by-two")?];
    pods.allowed(&Patch("gated-by-two", start(&without_ours)))?;
    assert_eq!(read("gated-by-two", ".spec.schedulingGates[*].name")?, FOREIGN);
    pods.allowed(&Patch("gated-again", start(&[started("gated-again")?])))?;
    // The next tokens and roles.
    pods.allowed(&Patch("gated", annotate("token.redislease.io/web", &json!("8"))))?;
    pods.allowed(&Patch("gated", json!({"metadata": {"labels": {"lease.redislease.io/web": "standby"}}})))?;
    pods.allowed(&Patch("gated-by-two", annotate("withdrawn.redislease.io/web", &json!("8.1"))))?;
    pods.allowed(&Patch("gated-by-two", annotate("withdrawn.redislease.io/web", &Value::Null)))?;
    for name in ["gated", "gated-by-two", "gated-again"] {
        pods.allowed(&Delete(name))?;
    }
    Ok(())
}

#[test]
fn the_operator_can_start_pods_and_delete_those_that_it_has_started() -> Result<()> {
    let installation = with_all_rights();
    let pods = Requests { installation, namespace: "gates", kind: "pod", values: ALL_RIGHTS };
    let (none, started) = (json!({}), json!({"started.redislease.io/web": "6"}));
    create_pods(
        &pods,
        &[
            ("gated", &[GATE], &none),
            ("gated-by-two", &[GATE, FOREIGN], &none),
            ("gated-by-others", &[FOREIGN], &none),
            ("gated-again", &[GATE], &started),
            ("plain", &[], &none),
            ("started", &[], &started),
        ],
    )?;
    let without_gates = json!({"spec": {"schedulingGates": null}});
    pods.wait_for_policy(GATES, &Patch("gated-by-others", without_gates))?;
    pods.wait_for_policy(DELETIONS, &Delete("plain"))?;
    grant(installation, pods.namespace, "", &["pods/status", "pods/ephemeralcontainers"])?;

    pods.refused("pods", &refused_changes())?;
    let never_started = ["gated", "gated-by-two", "gated-by-others", "plain", "started"];
    pods.refused("pod-deletions", &never_started.map(|name| (DELETIONS, Delete(name))))?;

    writes_of_the_operator(&pods)?;
    no_warnings(installation)
}

#[test]
fn the_operator_can_neither_start_nor_delete_pods_by_default() -> Result<()> {
    let installation = shared();
    let pods = Requests { installation, namespace: "ungated", kind: "pod", values: &[] };
    let (none, started) = (json!({}), json!({"started.redislease.io/web": "6"}));
    create_pods(&pods, &[("gated", &[GATE], &none), ("started", &[], &started)])?;
    let without_gates = json!({"spec": {"schedulingGates": null}});
    pods.wait_for_policy(SPEC, &Patch("gated", without_gates))?;
    let mark = annotate("started.redislease.io/web", &json!("7"));
    for (message, request) in [
        (ANNOTATIONS, Patch("gated", start(&[]))),
        (ANNOTATIONS, Patch("gated", mark.clone())),
        (ANNOTATIONS, Patch("started", mark)),
        (SPEC, Patch("gated", start(&[("/metadata/annotations", json!({}))]))),
        ("cannot delete resource \"pods\"", Delete("started")),
    ] {
        pods.refuses(message, &request)?;
    }
    Ok(())
}
