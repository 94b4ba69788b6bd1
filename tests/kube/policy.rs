//! Makes the API server refuse writes of the operator, as an admission policy or webhook may.

use redislease_lab::{Installation, Result};
use serde_json::json;

use crate::support::FIRST_ELECTION;

/// Makes the API server refuse updates of `resource` in `namespace`, except those that the CEL expression `allowed` admits.
pub fn refuse(installation: &Installation, namespace: &str, resource: [&str; 2], allowed: &str) -> Result<()> {
    let [group, resource] = resource;
    let named = json!({"name": format!("refuse-{namespace}")});
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]});
    let only_there = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": named,
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only_there},
            "validations": [{"expression": allowed, "message": "refused by the test"}],
        },
    }))?;
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": named,
        "spec": {"policyName": named["name"], "validationActions": ["Deny"]},
    }))
}

/// Waits until the API server rejects (or, with `refused` false, allows) the write of these kubectl arguments.
pub fn wait_for_policy(installation: &Installation, refused: bool, args: &[&str]) -> Result<()> {
    let args = [args, &["--dry-run=server"]].concat();
    installation.wait_for("the policy", FIRST_ELECTION, || match installation.control_plane().kubectl(&args) {
        Err(error) if error.to_string().contains("refused by the test") => {
            if refused {
                Ok(())
            } else {
                Err("refused".into())
            }
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => {
            if refused {
                Err("allowed".into())
            } else {
                Ok(())
            }
        }
    })
}

/// Makes the API server allow again the writes that it rejected in `namespace`.
pub fn allow(installation: &Installation, namespace: &str) -> Result<()> {
    let name = format!("refuse-{namespace}");
    let policy = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    installation.control_plane().kubectl(&["delete", policy, &name]).map(drop)
}
