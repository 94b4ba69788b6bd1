//! Makes the API server refuse writes of the operator, as an admission policy or webhook may.

use std::time::Duration;

use serde_json::json;

use crate::{Installation, Result};

/// Limit until the API server uses a policy, or none any more.
const APPLIED: Duration = Duration::from_secs(30);

/// Updates in a namespace that the API server refuses.
#[derive(Debug)]
pub struct Refusal<'a> {
    installation: &'a Installation,
    namespace: &'a str,
    /// Arguments of kubectl for one of these updates.
    write: Vec<&'a str>,
}

/// Makes the API server refuse updates of `resource` in `namespace`, except those that the CEL expression `allowed` admits.
/// Returns when it refuses the write of these kubectl arguments.
///
/// # Errors
/// [`Error::Command`](crate::Error::Command), or [`Error::NotInTime`](crate::Error::NotInTime) when the write is not refused.
pub fn refuse<'a>(
    installation: &'a Installation,
    namespace: &'a str,
    resource: [&str; 2],
    allowed: &str,
    write: Vec<&'a str>,
) -> Result<Refusal<'a>> {
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
    }))?;
    let refusal = Refusal { installation, namespace, write };
    refusal.wait_until(true)?;
    Ok(refusal)
}

/// Makes the API server refuse every status of a RedisLease in `namespace`, which has the lease `billing`.
///
/// # Errors
/// Those of [`refuse`].
pub fn refuse_statuses<'a>(installation: &'a Installation, namespace: &'a str) -> Result<Refusal<'a>> {
    let patch = r#"--patch={"status": {"transitions": 99}}"#;
    let write = ["patch", "redislease", "billing", "-n", namespace, "--subresource=status", "--type=merge", patch];
    refuse(installation, namespace, ["redislease.io", "redisleases/status"], "false", write.into())
}

impl Refusal<'_> {
    /// Makes the API server allow the updates again.
    ///
    /// # Errors
    /// Those of [`refuse`].
    pub fn end(self) -> Result<()> {
        let name = format!("refuse-{}", self.namespace);
        let policy = "validatingadmissionpolicybinding,validatingadmissionpolicy";
        self.installation.control_plane().kubectl(&["delete", policy, &name])?;
        self.wait_until(false)
    }

    fn wait_until(&self, refused: bool) -> Result<()> {
        let write = [&self.write[..], &["--dry-run=server"]].concat();
        self.installation.wait_for("the policy", APPLIED, || {
            let is_refused = match self.installation.control_plane().kubectl(&write) {
                Err(error) if error.to_string().contains("refused by the test") => true,
                other => other.map(|_| false)?,
            };
            if is_refused == refused { Ok(()) } else { Err(format!("refused: {is_refused}")) }
        })
    }
}
