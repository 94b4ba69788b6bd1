//! Manifests of workloads.

use serde_json::{Value, json};

/// A workload of this kind. Its pods have the label `app: <name>` and one container. Fields of `over` replace those of the manifest,
/// in objects field by field. A CronJob is suspended.
pub fn workload(kind: &str, namespace: &str, name: &str, over: &Value) -> Value {
    let labels = json!({"app": name});
    let mut template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
    let version = if kind.ends_with("Job") { "batch/v1" } else { "apps/v1" };
    if version == "batch/v1" {
        template["spec"]["restartPolicy"] = json!("Never");
    }
    let spec = match kind {
        "Job" => json!({"template": template}),
        "CronJob" => {
            json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": template}}})
        }
        "StatefulSet" => json!({"serviceName": name, "selector": {"matchLabels": labels}, "template": template}),
        _ => json!({"selector": {"matchLabels": labels}, "template": template}),
    };
    let metadata = json!({"name": name, "namespace": namespace});
    let mut whole = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    merge(&mut whole, over);
    whole
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                merge(base.entry(field).or_insert(Value::Null), value);
            }
        }
        (base, over) => base.clone_from(over),
    }
}
