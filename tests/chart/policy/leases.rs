//! Leases of annotated workloads.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{Create, Delete, Patch};
use super::{Requests, but};
use crate::cluster::shared;

const FOREIGN: &str = "the RedisLease operator can create, change and delete only the leases of annotated workloads";
const FINALIZERS: &str = "the RedisLease operator cannot change the finalizers of a lease; or a mutating webhook or policy changed it in the same request";

/// A lease as the operator creates it, with other fields as in [`but`].
fn lease(name: &str, changes: &[(&str, Value)]) -> Value {
    let lease = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "redislease"},
            "annotations": {"redislease.io/created-for": "Deployment/web"},
        },
        "spec": {"candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}},
    });
    but(&lease, changes)
}

#[test]
fn the_operator_can_write_only_leases_of_annotated_workloads_and_no_finalizers() -> Result<()> {
    let leases = Requests { installation: shared(), namespace: "leases", kind: "redislease", values: &[] };
    leases.installation.namespace("leases")?;
    let stay = || ("/metadata/finalizers", json!(["example.com/stay"]));
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"});
    let foreign = [("/metadata/labels", json!({}))];
    leases.wait_for_policy(FOREIGN, &Create(lease("other", &foreign)))?;
    // The garbage collector would delete it: there is no such owner.
    let of_web = lease("owned", &[("/metadata/ownerReferences", json!([owner]))]);
    leases.send(&Create(of_web), &[&leases.operator(), "--dry-run=server"])?;
    leases.allowed(&Create(lease("web", &[])))?;
    leases.send(&Create(lease("kept", &[stay()])), &[])?;
    leases.send(&Create(lease("foreign", &foreign)), &[])?;

    let change = json!({"spec": {"leaseDuration": "45s"}});
    let finalizers = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    leases.refused(
        "leases",
        &[
            (FOREIGN, Patch("foreign", change.clone())),
            (FOREIGN, Delete("foreign")),
            (FINALIZERS, Create(lease("other", &[stay()]))),
            (FINALIZERS, Patch("web", finalizers(json!(["example.com/stay"])))),
            (FINALIZERS, Patch("kept", finalizers(Value::Null))),
        ],
    )?;
    for name in ["web", "kept"] {
        leases.allowed(&Patch(name, change.clone()))?;
        leases.allowed(&Delete(name))?;
    }
    leases.send(&Patch("kept", finalizers(Value::Null)), &[]).map(drop)
}
