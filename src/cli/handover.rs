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

    /// The next holder: pod/NAME, or cluster/NAME for a pod of another cluster. The name of another cluster is not checked.
    /// Default: the next eligible pod
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
        let patched = kube_api::call(leases.patch(&self.name, &PatchParams::default(), &patch)).await;
        // A request that was not answered may be stored: then its result will be shown.
        if let Err(error) = &patched
            && (error.unknown().is_none() || self.wait.is_zero())
        {
            return Err(self.not_requested(&namespace, error, &address).into());
        }
        if self.wait.is_zero() {
            output::print_line(&format!("Requested handover {id} of RedisLease {namespace}/{}.", self.name))?;
            return Ok(());
        }
        self.wait_for_result(&leases, &namespace, &id, patched.is_ok()).await
    }

    fn not_requested(&self, namespace: &str, error: &CallError, address: &str) -> String {
        let name = &self.name;
        let why = match error {
            error if kube_api::lacks_kind(error) => format!("there is no RedisLease {name} in namespace {namespace}"),
            other => format!("cannot request a handover of RedisLease {namespace}/{name}: {other}"),
        };
        format!("{why} (the API server at {address})")
    }

    /// `answered`: the API server has answered the request, so that it is stored.
    async fn wait_for_result(&self, leases: &Api<RedisLease>, namespace: &str, id: &str, answered: bool) -> Outcome {
        let until = Instant::now() + self.wait;
        let (mut stored, mut is_running) = (answered, false);
        loop {
            // A failed read is repeated.
            let read = kube_api::call(leases.get(&self.name)).await;
            let progress = read.as_ref().ok().map(|lease| Progress::of(lease, id));
            match &progress {
                Some(Progress::Completed(message)) => {
                    output::print_line(message)?;
                    return Ok(());
                }
                Some(Progress::Failed(message)) => return Err(message.clone().into()),
                Some(Progress::Running(message)) if !std::mem::replace(&mut is_running, true) => {
                    output::print_line(message)?;
                }
                Some(Progress::Absent) if stored => {
                    let advice = "look at the events of the lease to see whether it was carried out";
                    return Err(format!("handover {id} is not requested any more: {advice}").into());
                }
                Some(Progress::Requested) => stored = true,
                Some(Progress::Running(_) | Progress::Absent) | None => {}
            }
            if Instant::now() >= until {
                let problem = match &read {
                    Err(error) => format!("the last read of the lease failed: {error}"),
                    Ok(_) => unfinished(progress.as_ref()).to_owned(),
                };
                let waited = self.wait.as_secs();
                let more =
                    if is_running { String::new() } else { format!(". {}", self.how_to_withdraw(namespace, stored)) };
                return Err(format!("handover {id} has no result after {waited} s: {problem}{more}").into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// A request is carried out later if the operator runs again.
    fn how_to_withdraw(&self, namespace: &str, stored: bool) -> String {
        let annotation = names::HANDOVER_REQUESTED_ANNOTATION;
        if !stored {
            // The annotation may be the request of somebody else.
            return format!("The request may be stored: look at the annotation {annotation} of the lease.");
        }
        format!("The request stays. To withdraw it: kubectl annotate rl {} -n {namespace} {annotation}-", self.name)
    }
}

/// What one read of the lease shows about a request.
#[derive(Debug, PartialEq)]
enum Progress {
    Completed(String),
    Failed(String),
    Running(String),
    /// The operator has not handled it.
    Requested,
    /// The lease shows neither the request nor its result.
    Absent,
}

impl Progress {
    fn of(lease: &RedisLease, id: &str) -> Self {
        let shown = lease.status.as_ref().and_then(|status| status.handover.as_deref()).filter(|shown| shown.id == id);
        if let Some(HandoverStatus { state, message, .. }) = shown {
            let message = message.clone();
            return match state {
                HandoverState::Completed => Self::Completed(message),
                HandoverState::Refused | HandoverState::Failed | HandoverState::Unknown => Self::Failed(message),
                HandoverState::Running => Self::Running(message),
            };
        }
        let requested =
            lease.metadata.annotations.as_ref().and_then(|all| all.get(names::HANDOVER_REQUESTED_ANNOTATION));
        if requested.is_some_and(|requested| requested == id) { Self::Requested } else { Self::Absent }
    }
}

/// Why there is no result yet.
const fn unfinished(progress: Option<&Progress>) -> &'static str {
    match progress {
        Some(Progress::Running(_)) => "no pod of this cluster is known to hold the lease yet",
        Some(Progress::Absent) => "the API server did not answer the request, and the lease does not show it",
        _ => {
            "the operator has not handled the request: check that it runs, that a replica leads the quorum, and that the \
             lease is not suspended"
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;

    use super::*;

    /// A lease with this request, and with this state of this request.
    fn lease(requested: Option<&str>, shown: Option<(&str, &str)>) -> RedisLease {
        let spec = json!({"candidates": {"selector": {"matchLabels": {"app": "billing"}}}});
        let mut lease = RedisLease::new("billing", serde_json::from_value(spec).unwrap());
        let annotation = |id: &str| [(names::HANDOVER_REQUESTED_ANNOTATION.to_owned(), id.to_owned())].into();
        lease.metadata.annotations = requested.map(annotation);
        lease.status = shown.map(|(id, state)| {
            let handover = json!({"id": id, "state": state, "time": "2026-11-21T10:00:00Z", "message": "This is why."});
            serde_json::from_value(json!({"handover": handover})).unwrap()
        });
        lease
    }

    #[test]
    fn progress_is_that_of_the_own_request() {
        let why = || "This is why.".to_owned();
        for (requested, shown, progress) in [
            (Some("7"), Some(("7", "Running")), Progress::Running(why())),
            (Some("7"), Some(("7", "Completed")), Progress::Completed(why())),
            (Some("8"), Some(("7", "Refused")), Progress::Failed(why())),
            (None, Some(("7", "Unknown")), Progress::Failed(why())),
            (Some("7"), Some(("6", "Completed")), Progress::Requested),
            (Some("7"), None, Progress::Requested),
            (Some("8"), Some(("8", "Completed")), Progress::Absent),
            (None, None, Progress::Absent),
        ] {
            assert_eq!(Progress::of(&lease(requested, shown), "7"), progress, "{requested:?} {shown:?}");
        }
    }

    fn billing() -> Handover {
        Handover { name: "billing".to_owned(), namespace: None, to: None, wait: Duration::ZERO }
    }

    #[test]
    fn error_names_the_api_server() {
        for (error, says) in [
            (CallError::NotFound, "there is no RedisLease billing in namespace shop"),
            (CallError::Conflict, "cannot request a handover of RedisLease shop/billing: "),
        ] {
            let said = billing().not_requested("shop", &error, "https://eu.example.com:6443/");
            assert!(said.starts_with(says), "{said}");
            assert!(said.ends_with(" (the API server at https://eu.example.com:6443/)"), "{said}");
        }
    }

    /// The error after no time, with an API server that answers every read with this lease.
    async fn error(lease: RedisLease, answered: bool) -> String {
        let answer = async move || serde_json::to_string(&lease).unwrap();
        let client = kube::Client::new(Router::new().fallback(answer), "shop");
        billing()
            .wait_for_result(&Api::namespaced(client, "shop"), "shop", "7", answered)
            .await
            .unwrap_err()
            .to_string()
    }

    #[tokio::test]
    async fn request_that_was_not_answered_may_still_be_stored() {
        let withdraw =
            "The request stays. To withdraw it: kubectl annotate rl billing -n shop redislease.io/handover-requested-";
        let unknown =
            "The request may be stored: look at the annotation redislease.io/handover-requested of the lease.";
        for (lease, answered, says, ends) in [
            (lease(Some("8"), None), true, "handover 7 is not requested any more: look at the events", "carried out"),
            (
                lease(None, None),
                false,
                "handover 7 has no result after 0 s: the API server did not answer the request",
                unknown,
            ),
            (
                lease(Some("7"), None),
                false,
                "handover 7 has no result after 0 s: the operator has not handled the request",
                withdraw,
            ),
        ] {
            let said = error(lease, answered).await;
            assert!(said.starts_with(says), "{said}");
            assert!(said.ends_with(ends), "{said}");
        }
    }
}
