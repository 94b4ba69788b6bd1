//! Faults of pods and nodes: readiness that changes, and nodes that are lost.

use serde_json::json;

use super::plane::ControlPlane;
use super::servers::now;
use crate::Result;

impl ControlPlane {
    /// Writes the status of a pod whose readiness probe fails or succeeds, as its kubelet would. It does not change back by
    /// itself.
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

    /// Stops the simulated kubelet of a node, and writes at once what the node controller would write to the node and its
    /// pods after its grace period. Pods that are deleted afterwards stay, because no kubelet stops them.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's answer.
    pub fn lose_node(&self, node: &str) -> Result<()> {
        // The node is lost for the test that comes next, too.
        self.not_again();
        self.kubelets.iter().for_each(|kubelets| kubelets.lose(node));
        self.patch_status(&["node", node], &[("Ready", "Unknown", "NodeStatusUnknown")])?;
        for (namespace, pod) in self.pods_on(node)? {
            self.patch_status(&["pod", &pod, "--namespace", &namespace], &[("Ready", "False", "")])?;
        }
        Ok(())
    }

    /// Namespace and name of the pods that run on a node and are not being deleted.
    fn pods_on(&self, node: &str) -> Result<Vec<(String, String)>> {
        let template = "{{range .items}}{{if not .metadata.deletionTimestamp}}\
                        {{.metadata.namespace}}/{{.metadata.name}}{{\"\\n\"}}{{end}}{{end}}";
        let selector = format!("--field-selector=spec.nodeName={node},status.phase=Running");
        let pods = self.kubectl(&["get", "pods", "--all-namespaces", &selector, "--template", template])?;
        let split = |pod: &str| pod.split_once('/').map(|(namespace, name)| (namespace.into(), name.into()));
        Ok(pods.lines().filter_map(split).collect())
    }

    fn patch_status(&self, object: &[&str], conditions: &[(&str, &str, &str)]) -> Result<()> {
        let now = now();
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason)| {
                json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now})
            })
            .collect();
        let patch = json!({"status": {"conditions": conditions}}).to_string();
        self.kubectl(&[&["patch"], object, &["--subresource=status", "--patch", &patch]].concat()).map(drop)
    }
}
