//! What befalls pods and nodes.

use serde_json::json;

use super::{ControlPlane, KUBELET};
use crate::Result;

impl ControlPlane {
    /// Makes a running pod's readiness probe fail or succeed, as its kubelet would write it. It stays so.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's answer.
    pub fn set_pod_ready(&self, namespace: &str, pod: &str, ready: bool) -> Result<()> {
        let status = if ready { "True" } else { "False" };
        let reason = if ready { "" } else { "ContainersNotReady" };
        self.patch_status(
            &["pod", pod, "--namespace", namespace],
            &["Ready", "ContainersReady"].map(|kind| (kind, status, reason)),
        )
    }

    /// Takes a node's kubelet away: it is declared lost at once, and pods deleted on it hang, for nobody stops them.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's answer.
    pub fn lose_node(&self, node: &str) -> Result<()> {
        self.kubectl(&["label", "node", node, &format!("{KUBELET}-")])?;
        // What the node controller writes when the heartbeats have been missing for its grace period.
        self.patch_status(&["node", node], &[("Ready", "Unknown", "NodeStatusUnknown")])
    }

    /// Gives a lost node its kubelet back: it turns Ready, and pods deleted meanwhile are stopped.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's answer.
    pub fn return_node(&self, node: &str) -> Result<()> {
        self.kubectl(&["label", "node", node, &format!("{KUBELET}=kwok")]).map(drop)
    }

    fn patch_status(&self, object: &[&str], conditions: &[(&str, &str, &str)]) -> Result<()> {
        let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason)| {
                json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now})
            })
            .collect();
        let patch = json!({"status": {"conditions": conditions}}).to_string();
        self.kubectl(&[&["patch"], object, &["--subresource=status", "--patch", &patch]].concat())
            .map(drop)
    }
}
