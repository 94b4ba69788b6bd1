//! Whether the Kubernetes node of a vanished pod is off.

use k8s_openapi::api::core::v1::Node;

/// The taint that an administrator sets on a node after shutting it down. Kubernetes then deletes the node's pods by force.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether no process runs on the Kubernetes node any more. Both conditions are required:
///
/// - The node has the out-of-service taint. The taint alone is not enough: it may be left over from an earlier outage.
/// - The node's condition Ready is Unknown: the kubelet has not reported for so long that the node controller marked it.
///   If Ready is False, the kubelet still runs.
pub fn is_off(node: &Node) -> bool {
    let tainted =
        node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == OUT_OF_SERVICE);
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    tainted && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_is_off_with_taint_and_silent_kubelet_only() {
        let node = |taint: &str, ready: &str| -> Node {
            let spec = json!({"taints": [{"key": taint, "value": "nodeshutdown", "effect": "NoExecute"}]});
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
        };
        let off: [(&str, &str, bool); 5] = [
            (OUT_OF_SERVICE, "Unknown", true),
            (OUT_OF_SERVICE, "False", false),
            (OUT_OF_SERVICE, "True", false),
            ("node.kubernetes.io/unreachable", "Unknown", false),
            ("node.kubernetes.io/not-ready", "Unknown", false),
        ];
        for (taint, ready, expected) in off {
            assert_eq!(is_off(&node(taint, ready)), expected, "{taint}, Ready={ready}");
        }
        assert!(!is_off(&Node::default()));
    }
}
