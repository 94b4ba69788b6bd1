//! `redislease why`: explains the state of one lease. It reads the RedisLease, its candidate pods, their workload and the
//! RedisQuorum. What it may not read, it names, and explains the rest.

mod explain;
mod facts;
mod outlook;
mod print;

use clap::{Args, ValueEnum};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use redislease_plan::api::lease_status::Holder;
use redislease_plan::api::validated::Candidates;
use redislease_plan::api::{RedisLease, RedisQuorum, ValidLease};
use redislease_plan::election::PodObject;
use redislease_plan::plan::calls::WorkloadRead;

use crate::cli::client::{self, Outcome};
use crate::cli::{output, values};
use crate::operator::kube_api::{self, CallError, call};
use explain::Explanation;
use facts::{Facts, HolderPod};

/// Explain who holds a lease and why, and what can change next.
#[derive(Debug, Args)]
pub(super) struct Why {
    /// The name of the RedisLease
    lease: String,

    /// The namespace of the RedisLease. Default: the namespace of the current kubeconfig context
    #[arg(short, long, env = "REDISLEASE_WHY_NAMESPACE", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: Option<String>,

    /// The operator's namespace, which contains the RedisQuorum
    #[arg(long, env = "REDISLEASE_WHY_QUORUM_NAMESPACE", default_value = "redislease-system", value_name = "NAMESPACE", value_parser = values::namespace)]
    quorum_namespace: String,

    /// The output format
    #[arg(short, long, env = "REDISLEASE_WHY_OUTPUT", value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Sentences, by topic
    #[default]
    Text,
    /// One JSON object
    Json,
}

impl Why {
    pub fn run(self) -> Outcome {
        client::run(self.explain())
    }

    async fn explain(&self) -> Outcome {
        let (client, address) = kube_api::client().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let lease = self.read_lease(client.clone(), &namespace).await;
        let lease = lease.map_err(|error| format!("{error} (the API server at {address})"))?;
        let explanation = Explanation::of(&self.read_facts(client, lease).await);
        output::print(|out| match self.output {
            Output::Text => print::text(&explanation, out),
            Output::Json => output::json(&explanation, out),
        })?;
        Ok(())
    }

    async fn read_lease(&self, client: Client, namespace: &str) -> Result<RedisLease, String> {
        let name = &self.lease;
        let leases: Api<RedisLease> = Api::namespaced(client, namespace);
        call(leases.get(name)).await.map_err(|error| match error {
            error if kube_api::lacks_kind(&error) => format!(
                "there is no RedisLease {name} in namespace {namespace}, or the API server does not know the kind RedisLease"
            ),
            other => format!("cannot read RedisLease {name} in namespace {namespace}: {other}"),
        })
    }

    async fn read_facts(&self, client: Client, lease: RedisLease) -> Facts {
        let namespace = lease.namespace().unwrap_or_default();
        let spec = ValidLease::try_from(&lease);
        let candidates = match &spec {
            Ok(ValidLease { cluster: Some(_), candidates: Candidates::Workload(workload), .. }) => {
                Err(format!("the candidate is the {} {} itself", workload.kind.as_str(), workload.name))
            }
            Ok(spec) => read_candidates(client.clone(), &namespace, &spec.candidates).await,
            Err(invalid) => Err(invalid.to_string()),
        };
        let holder = lease.status.as_ref().and_then(|status| status.holder.as_ref());
        let holder = match holder {
            // The holder is no pod.
            Some(_) if spec.as_ref().is_ok_and(|spec| spec.cluster.is_some()) => HolderPod::Unknown,
            Some(holder) => read_holder(client.clone(), holder, candidates.as_deref().unwrap_or_default()).await,
            None => HolderPod::Unknown,
        };
        let quorums: Api<RedisQuorum> = Api::namespaced(client, &self.quorum_namespace);
        let quorum = call(quorums.get(&lease.spec.quorum_ref.name)).await.map_err(|error| unread_quorum(&error));
        Facts {
            lease,
            spec,
            candidates,
            holder,
            quorum,
            quorum_namespace: self.quorum_namespace.clone(),
            now: jiff::Timestamp::now(),
        }
    }
}

fn unread_quorum(error: &CallError) -> String {
    match error {
        CallError::NotFound => {
            format!("{error}; if the operator runs in another namespace, name it with --quorum-namespace")
        }
        error => error.to_string(),
    }
}

/// Lists the candidate pods.
async fn read_candidates(client: Client, namespace: &str, candidates: &Candidates) -> Result<Vec<PodObject>, String> {
    let selector = match candidates {
        Candidates::Selector(selector) => selector.clone(),
        Candidates::Workload(workload) => {
            let what = format!("{} {}", workload.kind.as_str(), workload.name);
            let object = kube_api::workload(client.clone(), namespace, workload).await;
            let labels = object.and_then(|object| kube_api::selector_of(workload.kind, &object));
            match WorkloadRead::of(labels.map_err(|error| format!("{what} cannot be read: {error}"))?) {
                WorkloadRead::Selects(selector) => selector,
                WorkloadRead::SelectsByRole(label) => {
                    return Err(format!("{what} selects pods by the label {label}, which the operator writes"));
                }
                _ => return Err(format!("{what} selects no pods")),
            }
        }
    };
    let pods: Api<PodObject> = Api::namespaced(client, namespace);
    let listed = call(pods.list(&ListParams::default().labels_from(&selector))).await;
    listed.map(|list| list.items).map_err(|error| format!("the pods cannot be listed: {error}"))
}

/// Finds the holder among the candidates, or reads it.
async fn read_holder(client: Client, holder: &Holder, candidates: &[PodObject]) -> HolderPod {
    let is_holder = |pod: &PodObject| pod.uid().as_deref() == Some(&holder.pod_uid);
    if let Some(pod) = candidates.iter().find(|pod| is_holder(pod)) {
        return HolderPod::Here { pod: Box::new(pod.clone()), candidate: true };
    }
    let pods: Api<PodObject> = Api::namespaced(client, &holder.namespace);
    match call(pods.get(&holder.pod)).await {
        Ok(pod) if is_holder(&pod) => HolderPod::Here { pod: Box::new(pod), candidate: false },
        Ok(_) | Err(CallError::NotFound) => HolderPod::Gone,
        Err(_) => HolderPod::Unknown,
    }
}

#[cfg(test)]
mod tests;
