//! Workloads that the operator scales or suspends.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{self, Create, Patch, PatchPart};
use super::{ALL_RIGHTS, Requests, SOON, but, grant, no_warnings, with_all_rights};
use crate::cluster::shared;

const PARTS: &str =
    "the RedisLease operator cannot change the status of a workload, and cannot use its subresource scale";
const WORKLOAD_LABELS: &str = "the RedisLease operator can change only the labels lease.redislease.io/* of a workload, and no other label; or a mutating webhook or policy changed it in the same request";
const WORKLOAD_ANNOTATIONS: &str = "the RedisLease operator can change only the annotations token.redislease.io/*, owner.redislease.io/* and withdrawn.redislease.io/* of a workload, and no other annotation; or a mutating webhook or policy changed it in the same request";
const WORKLOAD_METADATA: &str = "the RedisLease operator cannot change the finalizers or owners of a workload; or a mutating webhook or policy changed it in the same request";
const WORKLOAD_SPEC: &str = "the RedisLease operator cannot change the spec of a workload, except replicas of a Deployment or StatefulSet and suspend of a CronJob; or a mutating webhook or policy changed it in the same request";

const WORKLOAD_CONSENT: &str = "the RedisLease operator can start and stop only a workload that names the lease, and no other, in its annotation redislease.io/activated-by or redislease.io/lease";

/// A kind of workloads that the operator starts and stops.
struct Workload {
    kind: &'static str,
    group: &'static str,
    /// The right to change parts of it that the chart does not grant.
    parts: &'static [&'static str],
    /// One that runs nothing, with the name `web`.
    object: Value,
    /// The specs with which the operator starts and stops it.
    specs: [Value; 2],
    /// Other specs, which an administrator can write.
    others: Vec<Value>,
}

fn object(version: &str, kind: &str, spec: &Value) -> Value {
    let annotations = json!({"redislease.io/priority": "1", "redislease.io/activated-by": "web"});
    json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": annotations},
        "spec": spec,
    })
}

fn workloads() -> [Workload; 3] {
    let image = |image: &str| json!({"containers": [{"name": "main", "image": image}]});
    let labels = json!({"app": "web"});
    let pods = json!({"metadata": {"labels": labels}, "spec": image("none")});
    let selector = json!({"matchLabels": labels});
    let started = [json!({"replicas": 3}), json!({"replicas": 0})];
    let common = [
        json!({"template": {"spec": image("other")}}),
        json!({"template": {"metadata": {"labels": {"another": "label"}}}}),
        json!({"replicas": 3, "template": {"spec": image("other")}}),
        json!({"revisionHistoryLimit": 1}),
        json!({"minReadySeconds": null}),
    ];
    let spec = json!({"replicas": 0, "selector": selector, "template": pods, "minReadySeconds": 5});
    let job = json!({"template": {"spec": but(&image("none"), &[("/restartPolicy", json!("Never"))])}});
    let cron =
        json!({"schedule": "0 0 1 1 *", "suspend": true, "startingDeadlineSeconds": 60, "jobTemplate": {"spec": job}});
    [
        Workload {
            kind: "deployment",
            group: "apps",
            parts: &["deployments/status", "deployments/scale"],
            object: object("apps/v1", "Deployment", &spec),
            specs: started.clone(),
            others: [
                &common[..],
                &[json!({"paused": true}), json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})],
            ]
            .concat(),
        },
        Workload {
            kind: "statefulset",
            group: "apps",
            parts: &["statefulsets/status", "statefulsets/scale"],
            object: object("apps/v1", "StatefulSet", &spec),
            specs: started,
            others: [&common[..], &[json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}})]]
                .concat(),
        },
        Workload {
            kind: "cronjob",
            group: "batch",
            parts: &["cronjobs/status"],
            object: object("batch/v1", "CronJob", &cron),
            specs: [json!({"suspend": false}), json!({"suspend": true})],
            others: vec![
                json!({"jobTemplate": {"spec": {"template": {"spec": image("other")}}}}),
                json!({"jobTemplate": {"metadata": {"labels": {"another": "label"}}}}),
                json!({"suspend": false, "schedule": "* * * * *"}),
                json!({"schedule": "* * * * *"}),
                json!({"timeZone": "Etc/UTC"}),
                json!({"concurrencyPolicy": "Replace"}),
                json!({"startingDeadlineSeconds": null}),
            ],
        },
    ]
}

/// The patch that starts or stops a workload, with other fields as in [`but`].
fn activate(role: &str, spec: &Value, changes: &[(&str, Value)]) -> Value {
    let metadata = json!({
        "labels": {"lease.redislease.io/web": role},
        "annotations": {"token.redislease.io/web": "1795238400000042"},
    });
    but(&json!({"metadata": metadata, "spec": spec}), changes)
}

/// The patch with which the workload names a lease, or tries to, in this annotation only.
fn name(key: &str, lease: &str) -> Value {
    let mut names = json!({"redislease.io/activated-by": null, "redislease.io/lease": null});
    names[key] = json!(lease);
    json!({"metadata": {"annotations": names}})
}

/// What the policy refuses about one workload.
fn refused_changes(workload: &Workload) -> Vec<(&'static str, Request)> {
    let [start, _] = &workload.specs;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "1"});
    let mut cases: Vec<(&str, Request)> = [
        (WORKLOAD_LABELS, "/metadata/labels/app", json!("other")),
        (WORKLOAD_LABELS, "/metadata/labels/another", json!("label")),
        (WORKLOAD_LABELS, "/metadata/labels/token.redislease.io~1web", json!("7")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/another", json!("annotation")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/redislease.io~1priority", json!("100")),
        (WORKLOAD_ANNOTATIONS, "/metadata/annotations/lease.redislease.io~1web", json!("active")),
        (WORKLOAD_METADATA, "/metadata/finalizers", json!(["example.com/stay"])),
        (WORKLOAD_METADATA, "/metadata/ownerReferences", json!([owner])),
    ]
    .into_iter()
    .map(|(message, pointer, value)| (message, Patch("web", activate("active", start, &[(pointer, value)]))))
    .collect();
    cases.push((WORKLOAD_LABELS, Patch("web", json!({"metadata": {"labels": {"app": null}}}))));
    let without = json!({"metadata": {"annotations": {"redislease.io/priority": null}}});
    cases.push((WORKLOAD_ANNOTATIONS, Patch("web", without)));
    for spec in &workload.others {
        cases.push((WORKLOAD_SPEC, Patch("web", activate("active", spec, &[]))));
        cases.push((WORKLOAD_SPEC, Patch("web", json!({"spec": spec}))));
    }
    let other = json!({"metadata": {"labels": {"lease.redislease.io/other": "active"}}, "spec": start});
    cases.push((WORKLOAD_CONSENT, Patch("web", other)));
    for part in workload.parts {
        cases.push(if part.ends_with("/scale") {
            (PARTS, PatchPart("scale", "web", json!({"spec": start})))
        } else if workload.kind == "cronjob" {
            (PARTS, PatchPart("status", "web", json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}})))
        } else {
            (PARTS, PatchPart("status", "web", json!({"status": {"replicas": 7}})))
        });
    }
    cases
}

/// The same write has hidden the name of the lease and removed the mark of its owner, as a tool does that replaces all annotations.
fn stops_without_the_mark_of_its_owner(requests: &Requests<'_>, workload: &Workload) -> Result<()> {
    let [start, stop] = &workload.specs;
    let key = "redislease.io/lease";
    let two = json!({"metadata": {"annotations": {key: "web", "redislease.io/activated-by": "other"}}});
    for mut mistake in [name(key, "Web"), name(key, "yes"), name("redislease.io/leese", "web"), two] {
        requests.send(&Patch("web", name(key, "web")), &[])?;
        requests.send(&Patch("web", activate("active", start, &[])), &[])?;
        mistake["metadata"]["annotations"]["owner.redislease.io/web"] = Value::Null;
        requests.send(&Patch("web", mistake), &[])?;
        requests.allowed(&Patch("web", activate("standby", stop, &[])))?;
        requests.refuses(WORKLOAD_CONSENT, &Patch("web", activate("active", start, &[])))?;
        requests.allowed(&Patch("web", json!({"metadata": {"annotations": {"withdrawn.redislease.io/web": "1"}}})))?;
        let two = json!({"lease.redislease.io/web": "active", "lease.redislease.io/other": "active"});
        requests.refuses(WORKLOAD_CONSENT, &Patch("web", json!({"metadata": {"labels": two}})))?;
    }
    Ok(())
}

#[test]
fn the_operator_can_start_and_stop_workloads_and_change_nothing_else() -> Result<()> {
    let (installation, values) = (with_all_rights(), ALL_RIGHTS);
    for workload in workloads() {
        let (kind, namespace) = (workload.kind, workload.kind);
        let requests = Requests { installation, namespace, kind, values };
        installation.namespace(namespace)?;
        requests.send(&Create(workload.object.clone()), &[])?;
        requests.wait_for_policy(WORKLOAD_SPEC, &Patch("web", json!({"spec": workload.others[0]})))?;
        grant(installation, namespace, workload.group, workload.parts)?;
        requests.refused("workloads", &refused_changes(&workload))?;

        // What the operator does with a workload. Its controller may write the status at the same time.
        let read = |field: &str| {
            let field = format!("--output=jsonpath={{{field}}}");
            installation.control_plane().kubectl(&["get", kind, "web", "--namespace", namespace, &field])
        };
        for (role, spec) in ["active", "standby"].into_iter().zip(&workload.specs) {
            installation.wait_for(&format!("the {kind} is {role}"), SOON, || {
                let (uid, version) = (read(".metadata.uid")?, read(".metadata.resourceVersion")?);
                let identified = [("/metadata/uid", json!(uid)), ("/metadata/resourceVersion", json!(version))];
                Ok(requests.allowed(&Patch("web", activate(role, spec, &identified)))?)
            })?;
            let written: Value = serde_json::from_str(&read(".spec")?).expect("JSON");
            for (field, value) in spec.as_object().into_iter().flatten() {
                assert_eq!(written[field], *value, "{kind} {field}");
            }
            assert_eq!(read(".metadata.labels.lease\\.redislease\\.io/web")?, role, "{kind}");
        }
        // A spelling mistake hides the name of the lease that has started the workload: it can still be stopped, by this lease only.
        let owner = format!("uid-of-web.{}", read(".metadata.uid")?);
        requests.allowed(&Patch("web", json!({"metadata": {"annotations": {"owner.redislease.io/web": owner}}})))?;
        let [start, stop] = &workload.specs;
        for (key, misspelt) in include!("../../../crates/plan/src/plan/tests/workload/mistakes.rs") {
            requests.send(&Patch("web", activate("active", start, &[])), &[])?;
            requests.send(&Patch("web", name(key, misspelt)), &[])?;
            requests.allowed(&Patch("web", activate("standby", stop, &[])))?;
            let other = json!({"metadata": {"labels": {"lease.redislease.io/other": "active"}}, "spec": start});
            requests.refuses(WORKLOAD_CONSENT, &Patch("web", other))?;
        }
        // So can one that names another lease too.
        let two = json!({"redislease.io/lease": "true", "redislease.io/activated-by": "other"});
        requests.send(&Patch("web", activate("active", start, &[])), &[])?;
        requests.send(&Patch("web", json!({"metadata": {"annotations": two}})), &[])?;
        requests.allowed(&Patch("web", activate("standby", stop, &[])))?;
        let other = json!({"metadata": {"labels": {"lease.redislease.io/other": "active"}}, "spec": start});
        requests.refuses(WORKLOAD_CONSENT, &Patch("web", other))?;
        requests.send(&Patch("web", name("redislease.io/lease", "other")), &[])?;
        requests.refuses(WORKLOAD_CONSENT, &Patch("web", activate("active", start, &[])))?;
        let marks = json!({
            "labels": {"lease.redislease.io/web": null},
            "annotations": {"token.redislease.io/web": null, "owner.redislease.io/web": null},
        });
        // Also when the workload does not name the lease any more.
        let consent = json!({"metadata": {"annotations": {"redislease.io/activated-by": null}}});
        requests.send(&Patch("web", consent), &[])?;
        requests.allowed(&Patch("web", json!({"metadata": marks})))?;
        stops_without_the_mark_of_its_owner(&requests, &workload)?;
    }
    no_warnings(installation)
}

#[test]
fn the_operator_cannot_change_workloads_by_default() -> Result<()> {
    let installation = shared();
    let namespace = "workloads";
    installation.namespace(namespace)?;
    for workload in workloads() {
        let requests = Requests { installation, namespace, kind: workload.kind, values: &[] };
        requests.send(&Create(workload.object.clone()), &[])?;
        for (role, spec) in ["active", "standby"].into_iter().zip(&workload.specs) {
            // By these words of the API server, the operator knows that it lacks a right.
            let account = "system:serviceaccount:redislease-system:redislease-operator";
            let message = format!("is forbidden: User \"{account}\" cannot patch resource \"{}s\"", workload.kind);
            requests.refuses(&message, &Patch("web", activate(role, spec, &[])))?;
        }
    }
    Ok(())
}
