//! `redislease handover`: requests a handover with the annotations of the lease, and waits for its result. It needs the verbs `get`
//! and `patch` on RedisLeases only.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use redislease_plan::api::lease_status::{HandoverState, HandoverStatus};
use redislease_plan::api::{RedisLease, names};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::client::{self, Outcome};
use crate::cli::{output, values};
use crate::operator::kube_api::{self, CallError};

/// The pause between two reads of the status.
const INTERVAL: Duration = Duration::from_millis(500);

/// Move a lease to another pod, or to another cluster. The pod that holds it must stop its work. Nothing proves that it has stopped, so
/// the next pod waits until the keys expire, at most one lease duration.
#[derive(Debug, Args)]
pub(super) struct Handover {
    /// The name of the RedisLease
    name: String,

    /// The namespace. Default: the namespace of the current kubeconfig context
    #[arg(short, long, env = "REDISLEASE_HANDOVER_NAMESPACE", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: Option<String>,

    /// The next holder: pod/NAME, or cluster/NAME for a pod of another cluster. Default: the next eligible pod
    #[arg(long, env = "REDISLEASE_HANDOVER_TO", value_name = "TARGET", value_parser = values::handover_target)]
    to: Option<String>,

    /// How long to wait for the result, such as 1m or 2m. A handover to another cluster can take one lease duration plus 10 s.
    /// 0s: do not wait
    #[arg(long, env = "REDISLEASE_HANDOVER_WAIT", default_value = "2m", value_name = "DURATION", value_parser = values::wait)]
    wait: Duration,
}

impl Handover {
    pub fn run(self) -> Outcome {
        client::run(self.request())
    }

    async fn request(&self) -> Outcome {
        let (client, address) = kube_api::client().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let leases: Api<RedisLease> = Api::namespaced(client, &namespace);
        let id = Timestamp::now().to_string();
        let annotations = json!({
            names::HANDOVER_REQUESTED_ANNOTATION: id,
            // A merge patch removes the target of an earlier request.
            names::HANDOVER_TO_ANNOTATION: self.to,
        });
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let explain = |error: &CallError| match error {
            CallError::NotFound => format!("there is no RedisLease {} in namespace {namespace}", self.name),
            other => {
                format!(
                    "cannot request a handover of RedisLease {namespace}/{}: {other} (the API server at {address})",
                    self.name
                )
            }
        };
        let patched = kube_api::call(leases.patch(&self.name, &PatchParams::default(), &patch)).await;
        // A request that was not answered may be stored: then its result will be shown.
        if let Err(error) = &patched
            && (error.unknown().is_none() || self.wait.is_zero())
        {
            return Err(explain(error).into());
        }
        if self.wait.is_zero() {
            output::print_line(&format!("Requested handover {id} of RedisLease {namespace}/{}.", self.name))?;
            return Ok(());
        }
        self.wait_for_result(&leases, &id).await
    }

    async fn wait_for_result(&self, leases: &Api<RedisLease>, id: &str) -> Outcome {
        let until = Instant::now() + self.wait;
        let mut is_running = false;
        loop {
            // A failed read is repeated: the request is stored.
            let read = kube_api::call(leases.get(&self.name)).await;
            let status = read.as_ref().ok().and_then(|lease| lease.status.as_ref());
            let shown = status.and_then(|status| status.handover.as_deref()).filter(|shown| shown.id == id);
            if let Some(HandoverStatus { state, message, .. }) = shown {
                match state {
                    HandoverState::Completed => {
                        output::print_line(message)?;
                        return Ok(());
                    }
                    HandoverState::Refused | HandoverState::Failed | HandoverState::Unknown => {
                        return Err(message.clone().into());
                    }
                    HandoverState::Running if !std::mem::replace(&mut is_running, true) => {
                        output::print_line(message)?;
                    }
                    HandoverState::Running => {}
                }
            }
            let annotations = read.as_ref().ok().map(|lease| lease.metadata.annotations.as_ref());
            let requested = annotations.map(|all| all.and_then(|all| all.get(names::HANDOVER_REQUESTED_ANNOTATION)));
            if shown.is_none() && requested.is_some_and(|requested| requested.is_none_or(|requested| requested != id)) {
                return Err(format!("handover {id} was replaced by another request or removed").into());
            }
            if Instant::now() >= until {
                let problem = match &read {
                    Err(error) => format!("the last read of the lease failed: {error}"),
                    Ok(_) if is_running => "no pod of this cluster is known to hold the lease yet".to_owned(),
                    Ok(_) => {
                        "the operator has not handled the request: check that it runs, that a replica leads the quorum, \
                         and that the lease is not suspended"
                            .to_owned()
                    }
                };
                let waited = self.wait.as_secs();
                return Err(format!("handover {id} has no result after {waited} s: {problem}").into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
