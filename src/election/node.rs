//! What matters about the node of a pod that vanished.

use k8s_openapi::api::core::v1::Node;

/// What an administrator puts on a node after making sure that it is shut down; the API server then lets its pods go.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether no process of the node runs: an administrator has said so, and its kubelet has said nothing for so long that
/// the node controller calls its state unknown. The taint alone could have been left from the last time, and a kubelet
/// that reports its node as not Ready is alive.
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
    fn a_node_is_off_when_it_is_said_to_be_and_does_not_answer() {
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
        for (taint, ready, is) in off {
            assert_eq!(is_off(&node(taint, ready)), is, "{taint}, Ready={ready}");
        }
        assert!(!is_off(&Node::default()));
    }
}
