//! What tells this cluster from every other on the same quorum.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::kube_api::call;
use super::patience::Patience;

/// Every cluster has this namespace from its first moment to its last: its UID stands for the cluster.
const NAMESPACE: &str = "kube-system";

/// The UID of the cluster; `None` when the process is to stop before the API server has told it.
///
/// Nothing is taken up before: a value on the nodes says by it whose it is.
pub(super) async fn uid_of_cluster(client: &Client, stop: &CancellationToken) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut patience = Patience::default();
    loop {
        let answer = tokio::select! {
            () = stop.cancelled() => return None,
            answer = call(namespaces.get_metadata(NAMESPACE)) => answer,
        };
        let problem = match answer.map(|namespace| namespace.uid()) {
            Ok(Some(uid)) if !uid.is_empty() => return Some(uid),
            Ok(_) => "it has no UID".to_owned(),
            Err(error) => error.to_string(),
        };
        let (pause, said) = patience.failed();
        if said {
            tracing::warn!(namespace = NAMESPACE, %problem, "the cluster's UID cannot be read: nothing begins before");
        } else {
            tracing::debug!(namespace = NAMESPACE, %problem, ?pause, "the cluster's UID cannot be read yet");
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
