//! Services of leases.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{Create, Delete, Patch, PatchPart};
use super::{Requests, but, grant, owner, wrong_owners};
use crate::cluster::shared;

const CHANGE: &str = "the RedisLease operator cannot change a Service";
const MANAGED_BY: &str = "the RedisLease operator can create and delete only Services with the label app.kubernetes.io/managed-by=redislease";
const SERVICE_OWNER: &str = "the RedisLease operator can create and delete only Services whose controller is the RedisLease in their label redislease.io/lease";
const SELECTOR: &str = "the RedisLease operator can create and delete only Services without a selector";
const TYPE: &str = "the RedisLease operator can create only Services of type ClusterIP without external IP addresses";

#[test]
fn the_operator_can_create_and_delete_only_the_services_of_leases() -> Result<()> {
    let installation = shared();
    let services = Requests { installation, namespace: "services", kind: "service", values: &[] };
    let owner = owner(installation, services.namespace)?;
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "active",
            "labels": {"app.kubernetes.io/managed-by": "redislease", "redislease.io/lease": "billing"},
            "ownerReferences": [owner],
        },
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]},
    });
    let (label, owners) = ("/metadata/labels/app.kubernetes.io~1managed-by", "/metadata/ownerReferences");
    services.wait_for_policy(MANAGED_BY, &Create(but(&service, &[(label, Value::Null)])))?;
    services.allowed(&Create(service.clone()))?;

    let named = |name: &str| ("/metadata/name", json!(name));
    let selector = || json!({"app": "billing"});
    for (name, field, value) in [
        ("without-label", label, Value::Null),
        ("without-owner", owners, Value::Null),
        ("with-selector", "/spec/selector", selector()),
    ] {
        services.send(&Create(but(&service, &[named(name), (field, value)])), &[])?;
    }
    grant(installation, services.namespace, "", &["services", "services/status"])?;

    let new = |field: &str, value: Value| Create(but(&service, &[named("next"), (field, value)]));
    let condition = json!({
        "type": "Test", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let alias = json!({"type": "ExternalName", "externalName": "example.com"});
    let mut cases = vec![
        (CHANGE, Patch("active", json!({"metadata": {"annotations": {"a": "b"}}}))),
        (CHANGE, Patch("active", json!({"spec": {"selector": selector()}}))),
        (CHANGE, PatchPart("status", "active", json!({"status": {"conditions": [condition]}}))),
        (MANAGED_BY, new(label, Value::Null)),
        (MANAGED_BY, new(label, json!("Helm"))),
        (MANAGED_BY, Delete("without-label")),
        (SERVICE_OWNER, Delete("without-owner")),
        (SERVICE_OWNER, new("/metadata/labels/redislease.io~1lease", Value::Null)),
        (SELECTOR, new("/spec/selector", selector())),
        (SELECTOR, Delete("with-selector")),
        (TYPE, new("/spec/type", json!("LoadBalancer"))),
        (TYPE, new("/spec/type", json!("NodePort"))),
        (TYPE, new("/spec", alias)),
        (TYPE, new("/spec/externalIPs", json!(["192.0.2.1"]))),
    ];
    // The finalizer keeps the Services of owners that do not exist.
    let stay = json!(["example.com/stay"]);
    for (name, wrong) in ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(wrong_owners(&owner)) {
        let changes = [named(name), (owners, wrong.clone()), ("/metadata/finalizers", stay.clone())];
        services.send(&Create(but(&service, &changes)), &[])?;
        cases.extend([(SERVICE_OWNER, Delete(name)), (SERVICE_OWNER, new(owners, wrong))]);
    }
    services.refused("services", &cases)?;
    services.allowed(&Delete("active"))
}
