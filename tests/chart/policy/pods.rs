//! Labels and annotations of pods.

use redislease_lab::Result;
use serde_json::{Value, json};

use super::{SOON, grant};
use crate::cluster::shared;

pub(super) const LABELS: &str =
    "the RedisLease operator can change only the labels lease.redislease.io/* of a pod, and no other label";
pub(super) const ANNOTATIONS: &str =
    "the RedisLease operator can change only the annotations token.redislease.io/* of a pod, and no other annotation";
pub(super) const METADATA: &str = "the RedisLease operator cannot change the finalizers or owners of a pod";
pub(super) const SPEC: &str = "the RedisLease operator cannot change the spec of a pod";
pub(super) const STATUS: &str = "the RedisLease operator cannot change the status of a pod";

#[test]
fn the_operator_can_change_only_its_labels_and_annotations_of_pods() -> Result<()> {
    let installation = shared();
    let cluster = installation.control_plane();
    installation.deployment("policy", "web", 1)?;
    let pod = cluster.kubectl(&["get", "pods", "--namespace=policy", "--output=name"])?;
    let pod = pod.trim();
    let operator = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    let patch = |subresource: Option<&str>, change: &Value, user: Option<&str>, more: &[&str]| -> Result<String> {
        let subresource = subresource.map(|name| format!("--subresource={name}"));
        let change = format!("--patch={change}");
        let args = ["patch", pod, "--namespace=policy", &change].into_iter();
        let args = args.chain(subresource.as_deref()).chain(user).chain(more.iter().copied());
        cluster.kubectl(&args.collect::<Vec<_>>())
    };
    let image = json!({"spec": {"containers": [{"name": "main", "image": "other"}]}});
    installation.wait_for("the policy", SOON, || {
        match patch(None, &image, Some(&operator), &["--dry-run=server"]) {
            Err(error) if error.to_string().contains(SPEC) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;

    // The requests that the operator makes: a merge patch with the resourceVersion, which sets or removes its own keys.
    for value in [json!("active"), json!("standby"), Value::Null] {
        let version = ["get", pod, "--namespace=policy", "--output=jsonpath={.metadata.resourceVersion}"];
        let version = cluster.kubectl(&version)?;
        let token = if value.is_null() { Value::Null } else { json!("1795238400000042") };
        let change = json!({"metadata": {
            "resourceVersion": version,
            "labels": {"lease.redislease.io/web": value},
            "annotations": {"token.redislease.io/web": token},
        }});
        patch(None, &change, Some(&operator), &["--type=merge"])?;
    }

    grant(installation, "policy", "", &["pods/status", "pods/ephemeralcontainers", "pods/resize"])?;

    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "1"});
    let container = json!({"name": "debug", "image": "other"});
    for (subresource, change, message) in [
        (None, labels(json!({"app": "other"})), LABELS),
        (None, labels(json!({"app": null})), LABELS),
        (None, labels(json!({"another": "label"})), LABELS),
        (None, labels(json!({"token.redislease.io/web": "7"})), LABELS),
        (None, labels(json!({"lease.redislease.io/web": "active", "another": "label"})), LABELS),
        (None, annotations(json!({"redislease.io/priority": "100"})), ANNOTATIONS),
        (None, annotations(json!({"lease.redislease.io/web": "active"})), ANNOTATIONS),
        (None, json!({"metadata": {"finalizers": ["example.com/stay"]}}), METADATA),
        (None, json!({"metadata": {"ownerReferences": [owner]}}), METADATA),
        (None, image.clone(), SPEC),
        (None, json!({"spec": {"activeDeadlineSeconds": 1}}), SPEC),
        (Some("ephemeralcontainers"), json!({"spec": {"ephemeralContainers": [container]}}), SPEC),
        (Some("status"), json!({"status": {"phase": "Failed"}}), STATUS),
    ] {
        let what = subresource.unwrap_or_default();
        let refused = patch(subresource, &change, Some(&operator), &[]);
        let refused = refused.expect_err(&format!("{what} {change} is refused")).to_string();
        assert!(refused.contains(message) && refused.contains("Forbidden"), "{what} {change}: {refused}");
        // Without the policy, it would be possible: the administrator can do it.
        patch(subresource, &change, None, &["--dry-run=server"])?;
    }
    Ok(())
}
