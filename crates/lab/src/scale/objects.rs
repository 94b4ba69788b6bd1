//! The leases and pods that are measured: in ten namespaces, each lease with one pod, and some with two.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Options,
    client::{self, AT_ONCE, failed},
};
use crate::{Error, Result};

/// Leases are spread over this many namespaces.
const NAMESPACES: usize = 10;
/// The label of pods whose lease's holder is to be deleted.
pub(super) const FAILOVER: &str = "scale-failover";
/// The timeout for the service account of a namespace, which is created within moments.
const ACCOUNT_WITHIN: Duration = Duration::from_mins(1);

/// One RedisLease and its pods.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether it has two pods, and its holder is to be deleted.
    pub(super) fails_over: bool,
}

impl Planned {
    /// `NAMESPACE/NAME`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn pods(&self) -> impl Iterator<Item = (Self, String)> + use<> {
        let lease = self.clone();
        (0..if self.fails_over { 2 } else { 1 }).map(move |number| (lease.clone(), format!("{}-{number}", lease.name)))
    }
}

/// All leases of a run.
pub(super) fn plan(options: &Options) -> Vec<Planned> {
    (0..options.leases)
        .map(|number| Planned {
            namespace: format!("scale-{}", number % NAMESPACES),
            name: format!("lease-{number:06}"),
            fails_over: number < options.failovers,
        })
        .collect()
}

/// The RedisLeases of all namespaces or of one.
pub(super) fn leases(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("redislease.io", "v1alpha1", "RedisLease"),
        "redisleases",
    );
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The number of pods that run.
pub(super) async fn running(client: &Client) -> Result<usize> {
    let pods: Api<Pod> = Api::all(client.clone());
    let run = ListParams::default().labels("lease").fields("status.phase=Running");
    pods.list_metadata(&run).await.map(|listed| listed.items.len()).map_err(|error| failed("list the pods", error))
}

/// Creates namespaces, pods and leases. The pods name their nodes, so that no scheduler is needed.
///
/// # Errors
/// [`Error::Call`] with the API server's refusal.
pub(super) async fn create(client: &Client, options: &Options, planned: &[Planned]) -> Result<()> {
    for number in 0..NAMESPACES {
        create_namespace(client, &format!("scale-{number}")).await?;
    }
    let pods: Vec<_> = planned.iter().flat_map(Planned::pods).enumerate().collect();
    client::for_each("pods", pods, AT_ONCE, |(number, (lease, name))| async move {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &lease.namespace);
        create_one(&pods, &name, &pod(&lease, &name, number % options.nodes)).await
    })
    .await?;
    client::for_each("leases", planned.to_vec(), AT_ONCE, |planned| async move {
        let leases = leases(client, Some(&planned.namespace));
        create_one(&leases, &planned.name, &lease(options, &planned)).await
    })
    .await
}

/// Pods are refused until their namespace has its service account.
async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create_one(&Api::<Namespace>::all(client.clone()), name, &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    let deadline = Instant::now() + ACCOUNT_WITHIN;
    while let Err(error) = accounts.get("default").await {
        if Instant::now() >= deadline {
            return Err(failed(&format!("find the service account of namespace {name}"), error));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn create_one<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let failed = |error: &dyn std::fmt::Display| -> Error { failed(&format!("create {name}"), error) };
    let object: K = serde_json::from_value(object.clone()).map_err(|error| failed(&error))?;
    api.create(&PostParams::default(), &object).await.map(drop).map_err(|error| failed(&error))
}

fn pod(lease: &Planned, name: &str, node: usize) -> Value {
    let mut labels = json!({"lease": lease.name});
    if lease.fails_over {
        labels[FAILOVER] = json!("yes");
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": lease.namespace, "labels": labels},
        "spec": {
            "nodeName": format!("node-{node}"),
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none"}],
        },
    })
}

fn lease(options: &Options, lease: &Planned) -> Value {
    let text = |duration: Duration| format!("{}ms", duration.as_millis());
    json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": lease.name, "namespace": lease.namespace},
        "spec": {
            "candidates": {"selector": {"matchLabels": {"lease": lease.name}}},
            "leaseDuration": text(options.lease_duration),
            "renewInterval": text(options.renew_interval),
            "gracePeriod": text(options.grace_period),
        },
    })
}
