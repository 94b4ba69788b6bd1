//! EndpointSlices of leases.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{Create, Delete, Patch};
use super::{Requests, but, owner, wrong_owners};
use crate::cluster::shared;

const MANAGER: &str = "the RedisLease operator can create, change and delete only the EndpointSlices that it manages";
const NAME: &str = "the RedisLease operator can write only EndpointSlices with the name SERVICE-redislease-ipv4 or SERVICE-redislease-ipv6, as their service-name and addressType say";
const SLICE_OWNER: &str = "the RedisLease operator can write only EndpointSlices whose controller is the RedisLease in their label redislease.io/lease";
const SLICE_LABELS: &str = "the RedisLease operator cannot change the labels, owners or finalizers of an EndpointSlice";
const SLICE_ANNOTATIONS: &str =
    "the RedisLease operator can change only the annotations token.redislease.io/* of an EndpointSlice";
const NEW_SLICE: &str = "the RedisLease operator can create EndpointSlices only without an endpoint";
const ENDPOINT: &str = "the RedisLease operator can write only one endpoint with one address, which must refer to a pod of the same namespace by name and UID";

#[test]
fn the_operator_can_write_only_the_endpoint_slices_of_leases() -> Result<()> {
    let installation = shared();
    let slices = Requests { installation, namespace: "slices", kind: "endpointslice", values: &[] };
    let owner = owner(installation, slices.namespace)?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "active-redislease-ipv4",
            "labels": {
                "kubernetes.io/service-name": "active",
                "endpointslice.kubernetes.io/managed-by": "redislease.io",
                "app.kubernetes.io/managed-by": "redislease",
                "redislease.io/lease": "billing",
            },
            "annotations": {"token.redislease.io/billing": "7"},
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "endpoints": [],
    });
    let endpoint = json!({
        "addresses": ["10.0.0.7"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": slices.namespace, "name": "billing-0", "uid": "u"},
        "nodeName": "node-0",
    });
    let with = |endpoints: &[&Value]| json!({"endpoints": endpoints});
    let metadata = |metadata: Value| json!({"metadata": metadata});

    let foreign = "/metadata/labels/endpointslice.kubernetes.io~1managed-by";
    slices.wait_for_policy(MANAGER, &Create(but(&slice, &[(foreign, Value::Null)])))?;

    // What the operator does with a slice.
    slices.allowed(&Create(slice.clone()))?;
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 8080}]);
    let token = |token: Value| json!({"annotations": {"token.redislease.io/billing": token}});
    let grant = json!({"metadata": token(json!("8")), "endpoints": [endpoint], "ports": ports});
    slices.allowed(&Patch("active-redislease-ipv4", grant))?;
    let withdraw = json!({"metadata": token(Value::Null), "endpoints": [], "ports": []});
    slices.allowed(&Patch("active-redislease-ipv4", withdraw))?;

    // Slices that the operator does not write.
    let service = "/metadata/labels/kubernetes.io~1service-name";
    let named = |name: &str| ("/metadata/name", json!(name));
    let of_others = [
        ("foreign-redislease-ipv4", foreign, json!("example.com")),
        ("other-name", foreign, json!("redislease.io")),
        ("orphan-redislease-ipv4", "/metadata/ownerReferences", Value::Null),
    ];
    for (name, field, value) in &of_others {
        let to = name.trim_end_matches("-redislease-ipv4");
        let object = but(&slice, &[named(name), (service, json!(to)), (field, value.clone())]);
        slices.send(&Create(object), &[])?;
    }
    let annotated = json!({"annotations": {"example.com/note": "stays"}});
    slices.send(&Patch("active-redislease-ipv4", metadata(annotated)), &[])?;

    let new = |changes: &[(&str, Value)]| Create(but(&slice, changes));
    let change = |change: Value| Patch("active-redislease-ipv4", change);
    let pod = |field: &str, value: Value| {
        let changed = but(&endpoint, &[(&format!("/{field}"), value)]);
        change(with(&[&changed]))
    };
    let (next, next_service) = (|| named("next-redislease-ipv4"), || (service, json!("next")));
    let mut cases = vec![
        (MANAGER, new(&[next(), next_service(), (foreign, json!("endpointslice-controller.k8s.io"))])),
        (MANAGER, new(&[next(), next_service(), (foreign, Value::Null)])),
        (MANAGER, Patch("foreign-redislease-ipv4", with(&[]))),
        (MANAGER, Patch("foreign-redislease-ipv4", with(&[&endpoint]))),
        (MANAGER, Delete("foreign-redislease-ipv4")),
        (NAME, new(&[named("another-name")])),
        (NAME, new(&[next(), (service, json!("kube-dns"))])),
        (NAME, new(&[next(), (service, Value::Null)])),
        (NAME, new(&[named("active-redislease-ipv6")])),
        (NAME, new(&[named("active-redislease-fqdn"), ("/addressType", json!("FQDN"))])),
        (NAME, Patch("other-name", with(&[&endpoint]))),
        (SLICE_OWNER, Patch("orphan-redislease-ipv4", with(&[&endpoint]))),
        (SLICE_OWNER, new(&[next(), next_service(), ("/metadata/labels/redislease.io~1lease", Value::Null)])),
        (SLICE_LABELS, change(metadata(json!({"labels": {"kubernetes.io/service-name": "kube-dns"}})))),
        (SLICE_LABELS, change(metadata(json!({"labels": {"another": "label"}})))),
        (SLICE_LABELS, change(metadata(json!({"labels": {"endpointslice.kubernetes.io/managed-by": null}})))),
        (SLICE_LABELS, change(metadata(json!({"ownerReferences": null})))),
        (SLICE_LABELS, change(metadata(json!({"finalizers": ["example.com/stay"]})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"another": "annotation"}})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"example.com/note": "changed"}})))),
        (SLICE_ANNOTATIONS, change(metadata(json!({"annotations": {"example.com/note": null}})))),
        (NEW_SLICE, new(&[next(), next_service(), ("/endpoints", json!([endpoint]))])),
        (ENDPOINT, change(with(&[&endpoint, &but(&endpoint, &[("/addresses", json!(["10.0.0.8"]))])]))),
        (ENDPOINT, pod("addresses", json!(["10.0.0.7", "10.0.0.8"]))),
        (ENDPOINT, pod("targetRef", Value::Null)),
        (ENDPOINT, pod("targetRef/kind", json!("Node"))),
        (ENDPOINT, pod("targetRef/namespace", json!("kube-system"))),
        (ENDPOINT, pod("targetRef/namespace", Value::Null)),
        (ENDPOINT, pod("targetRef/name", Value::Null)),
        (ENDPOINT, pod("targetRef/uid", Value::Null)),
    ];
    for owners in wrong_owners(&owner) {
        cases.push((SLICE_OWNER, new(&[next(), next_service(), ("/metadata/ownerReferences", owners)])));
    }
    slices.refused("endpointslices", &cases)?;

    // Those with the operator as the manager can be emptied and deleted.
    for name in ["other-name", "orphan-redislease-ipv4", "active-redislease-ipv4"] {
        slices.send(&Patch(name, with(&[&endpoint])), &[])?;
        slices.allowed(&Patch(name, with(&[])))?;
        slices.allowed(&Delete(name))?;
    }
    Ok(())
}
