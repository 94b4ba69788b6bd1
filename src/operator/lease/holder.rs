//! What is known about the pod of the running or ending term.

use redislease_core::time::Millis;

use super::Actor;
use crate::api::RedisLease;
use crate::clock;
use crate::election::HolderName;
use crate::operator::kube_api::CallError;
use crate::operator::pods::Known;

/// Between two looks at the node of a holder that vanished.
const AGAIN: Millis = Millis(5000);

impl Actor {
    pub(super) fn known(&self, holder: &HolderName) -> Known {
        self.house.pods.find(&self.namespace, &holder.pod_uid)
    }

    /// Asks the API server for the holder's pod. Whether it answered.
    pub(super) async fn look_at(&self, holder: &HolderName) -> bool {
        let asked = self.house.pods.ask();
        match self.house.pod(&self.namespace, &holder.pod).await {
            Ok(pod) => {
                if pod.uid != holder.pod_uid {
                    self.house.pods.missed(&self.namespace, &holder.pod_uid);
                }
                self.house.pods.answered(asked, pod, clock::now());
                true
            }
            Err(CallError::NotFound) => {
                self.house.pods.missed(&self.namespace, &holder.pod_uid);
                true
            }
            Err(_) => false,
        }
    }

    /// A pod that vanished without a word proves nothing; what an administrator says of its node does. Whether the
    /// node is off; asked for now and then, while it makes a difference.
    pub(super) async fn node_is_off(&mut self, lease: &RedisLease, holder: &HolderName) -> bool {
        let shown = lease.status.as_ref().and_then(|status| status.holder.as_ref());
        let shown = shown.filter(|shown| shown.pod_uid == holder.pod_uid);
        let Some(node) = shown.and_then(|shown| shown.node.as_deref()) else {
            self.node_asked_again_at = None;
            return false;
        };
        if self.node_asked_again_at.is_some_and(|at| clock::now() < at) {
            return false;
        }
        let answer = self.house.node_is_off(node).await;
        self.node_asked_again_at = Some(clock::now() + AGAIN);
        let lease = format!("{}/{}", self.namespace, self.name);
        if let Err(error) = &answer {
            tracing::warn!(%lease, pod = holder.pod, node, %error, "whether the holder's node is out of service is not known");
        }
        let off = answer.unwrap_or(false);
        if off {
            tracing::info!(%lease, pod = holder.pod, node, "the holder's node is out of service: its processes have ended");
            self.house.pods.proven(&self.namespace, &holder.pod_uid);
        }
        off
    }
}
