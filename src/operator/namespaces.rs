//! Follows the labels of namespaces, which decide whether their leases may use a quorum.
//!
//! An operator that watches all namespaces has a watch. An operator that watches some namespaces has rights in those only,
//! and Kubernetes has no such right to watch a single namespace: it reads each one periodically.

use redislease_plan::engine::Watched;
use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use redislease_plan::index::NamespaceFacts;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::kube_api;
use super::watches::{self, Objects};
use crate::metrics::operator::OperatorMetrics;

/// The pause between two reads of a namespace, and the timeout of one.
const READ_EVERY: Duration = Duration::from_secs(10);

/// How many namespaces are read concurrently.
const AT_ONCE: usize = 8;

/// Runs until `stop`. `watched` are the namespaces of leases; none means all.
pub(super) async fn follow(
    client: Client,
    watched: Vec<String>,
    metrics: OperatorMetrics,
    out: Sender<Watched<NamespaceFacts>>,
    stop: CancellationToken,
) {
    if watched.is_empty() {
        let all = Objects::all(vec![Api::<PartialObjectMeta<Namespace>>::all(client)], "Namespace", &metrics);
        return watches::follow_metadata(all, NamespaceFacts::from, out, stop).await;
    }
    let read_all = async {
        let api = Api::<Namespace>::all(client);
        // The namespaces whose last read failed.
        let mut failing = BTreeSet::new();
        loop {
            let reads = stream::iter(watched.clone()).map(|name| read(api.clone(), name)).buffer_unordered(AT_ONCE);
            let mut reads = std::pin::pin!(reads);
            while let Some((name, read)) = reads.next().await {
                match read {
                    Ok(event) => {
                        if failing.remove(&name) {
                            tracing::info!(namespace = name, "The labels of the namespace can be read again.");
                        }
                        if out.send(event).await.is_err() {
                            return;
                        }
                    }
                    // The labels that were read before stay valid.
                    Err(error) => {
                        if failing.insert(name.clone()) {
                            tracing::warn!(namespace = name, %error, "The labels of the namespace cannot be read. Quorums with allowedNamespaces need them.");
                        }
                    }
                }
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = read_all => {}
    }
}

async fn read(api: Api<Namespace>, name: String) -> (String, Result<Watched<NamespaceFacts>, String>) {
    let event = match tokio::time::timeout(READ_EVERY, api.get_metadata_opt(&name)).await {
        Ok(Ok(Some(namespace))) => Ok(Watched::Seen(Box::new(namespace.metadata.into()))),
        Ok(Ok(None)) => Ok(Watched::Deleted(Box::new(NamespaceFacts::unlabelled(&name)))),
        Ok(Err(error)) => Err(kube_api::causes(&error)),
        Err(_) => Err(format!("no answer within {} s", READ_EVERY.as_secs())),
    };
    (name, event)
}
