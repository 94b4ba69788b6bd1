//! Follows the labels of namespaces, which decide whether their leases may use a quorum.
//!
//! An operator that watches all namespaces has a watch. An operator that watches some namespaces has rights in those only,
//! and Kubernetes has no such right to watch a single namespace: it reads each one periodically.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::engine::Watched;
use super::index::NamespaceFacts;
use super::{kube_api, watches};

/// The pause between two reads of a namespace.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Runs until `stop`. `watched` are the namespaces of leases; none means all.
pub(super) async fn follow(
    client: Client,
    watched: Vec<String>,
    out: Sender<Watched<NamespaceFacts>>,
    stop: CancellationToken,
) {
    if watched.is_empty() {
        let all = watches::Objects::all(vec![Api::all(client)], "Namespace");
        return watches::follow(all, |namespace: Namespace| namespace.into(), out, stop).await;
    }
    let api = Api::<Namespace>::all(client);
    let mut failing = false;
    loop {
        for name in &watched {
            let read = tokio::time::timeout(READ_EVERY, api.get_opt(name));
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = read => read,
            };
            let event = match read {
                Ok(Ok(Some(namespace))) => Watched::Seen(Box::new(NamespaceFacts::from(namespace))),
                Ok(Ok(None)) => Watched::Deleted(Box::new(NamespaceFacts::unlabelled(name))),
                // The labels that were read before stay valid.
                Ok(Err(error)) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error = kube_api::causes(&error);
                        tracing::warn!(namespace = name, %error, "The labels of the namespace cannot be read. Quorums with allowedNamespaces need them.");
                    }
                    continue;
                }
                Err(_) => continue,
            };
            if out.send(event).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(READ_EVERY) => {}
        }
    }
}
