//! Labels and annotations of pods.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::Request::{Patch, PatchPart};
use super::{Requests, create_pods, grant};
use crate::cluster::shared;

pub(super) const LABELS: &str = "the RedisLease operator can change only the labels lease.redislease.io/* of a pod, and no other label; or a mutating webhook or policy changed it in the same request";
pub(super) const ANNOTATIONS: &str = "the RedisLease operator can change only the annotations token.redislease.io/* of a pod, and no other annotation; or a mutating webhook or policy changed it in the same request";
pub(super) const METADATA: &str = "the RedisLease operator cannot change the finalizers or owners of a pod; or a mutating webhook or policy changed it in the same request";
pub(super) const SPEC: &str = "the RedisLease operator cannot change the spec of a pod; or a mutating webhook or policy changed it in the same request";
pub(super) const STATUS: &str = "the RedisLease operator cannot change the status of a pod";

#[test]
fn the_operator_can_change_only_its_labels_and_annotations_of_pods() -> Result<()> {
    let pods = Requests { installation: shared(), namespace: "policy", kind: "pod", values: &[] };
    create_pods(&pods, &[("web", &[], &json!({}))])?;
    let image = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
    pods.wait_for_policy(SPEC, &Patch("web", image.clone()))?;

    // The requests that the operator makes: a merge patch with the resourceVersion, which sets or removes its own keys.
    for value in [json!("active"), json!("standby"), Value::Null] {
        let version = ["get", "pod", "web", "--namespace=policy", "--output=jsonpath={.metadata.resourceVersion}"];
        let version = pods.installation.control_plane().kubectl(&version)?;
        let token = if value.is_null() { Value::Null } else { json!("1795238400000042") };
        pods.allowed(&Patch(
            "web",
            json!({"metadata": {
                "resourceVersion": version,
                "labels": {"lease.redislease.io/web": value},
                "annotations": {"token.redislease.io/web": token},
            }}),
        ))?;
    }

    grant(pods.installation, "policy", "", &["pods/status", "pods/ephemeralcontainers", "pods/resize"])?;
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "1"});
    let container = json!({"name": "debug", "image": "other"});
    let cases = [
        (LABELS, Patch("web", labels(json!({"app": "other"})))),
        (LABELS, Patch("web", labels(json!({"app": null})))),
        (LABELS, Patch("web", labels(json!({"another": "label"})))),
        (LABELS, Patch("web", labels(json!({"token.redislease.io/web": "7"})))),
        (LABELS, Patch("web", labels(json!({"lease.redislease.io/web": "active", "another": "label"})))),
        (ANNOTATIONS, Patch("web", annotations(json!({"redislease.io/priority": "100"})))),
        (ANNOTATIONS, Patch("web", annotations(json!({"lease.redislease.io/web": "active"})))),
        (METADATA, Patch("web", json!({"metadata": {"finalizers": ["example.com/stay"]}}))),
        (METADATA, Patch("web", json!({"metadata": {"ownerReferences": [owner]}}))),
        (SPEC, Patch("web", image)),
        (SPEC, Patch("web", json!({"spec": {"activeDeadlineSeconds": 1}}))),
        (SPEC, PatchPart("ephemeralcontainers", "web", json!({"spec": {"ephemeralContainers": [container]}}))),
        (STATUS, PatchPart("status", "web", json!({"status": {"phase": "Failed"}}))),
    ];
    pods.refused("pods", &cases)
}
