//! Calls to the API server, each with a timeout and a classified error.
//!
//! The retries of the kube library are off: they would repeat an outdated decision for minutes.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::USER_AGENT;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::config::Config;
use kube::core::{ApiResource, DynamicObject, ObjectList};
use kube::{Api, Client};
use redislease_plan::api::validated::{Workload, WorkloadKind};
use serde_json::Value;

use super::proxy;

pub use redislease_plan::plan::calls::CallError;

/// The timeout of a call. Renewals do not depend on it.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of the write of a RedisQuorum's status. A leader contradicts a claim of its name within 5 s, also if one write hangs.
pub const QUORUM_STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout of a call that the API server carries out although an admission webhook hangs, because its `failurePolicy` is
/// Ignore: a webhook has at most 30 s. The API server gives up when the caller does.
pub const LONGEST_WEBHOOK: Duration = Duration::from_secs(31);

/// How long a connection may be idle while an answer is pending.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The number of objects in one answer. 10 000 leases at once need more than the 128 MiB of the pod of `helm test`.
const PAGE: u32 = 500;

/// The reason that kube gives to an error whose answer is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";

/// Whether the call failed because the API server does not know the kind: its answer is no `Status` then.
pub fn lacks_kind(error: &CallError) -> bool {
    matches!(error, CallError::NotFound) || matches!(error, CallError::Unanswered(text) if text.ends_with("(404)"))
}

/// Whether the operator lacks the right to the call.
pub fn is_forbidden(error: &CallError) -> bool {
    matches!(error, CallError::Refused(text) if text.ends_with("(403)"))
}

/// The error of a call that failed.
fn failed(error: kube::Error) -> CallError {
    match error {
        // Admission is before storage, so the object is unchanged, also if the webhook says that it is gone or has changed.
        kube::Error::Api(status) if is_of_webhook(&status.message) => {
            CallError::Refused(format!("{} ({})", status.message, status.code))
        }
        // The answer of an overloaded server, or of a proxy in front of it, proves nothing, and to a process without valid
        // credentials the API server says nothing: as the leader, it would keep all others from deciding.
        kube::Error::Api(status)
            if status.reason == NO_STATUS || matches!(status.code, 401 | 429) || status.code >= 500 =>
        {
            CallError::Unanswered(format!("{} ({})", status.message, status.code))
        }
        kube::Error::Api(status) if status.code == 409 => CallError::Conflict,
        kube::Error::Api(status) if status.code == 404 => CallError::NotFound,
        kube::Error::Api(status) => CallError::Refused(format!("{} ({})", status.message, status.code)),
        // Nothing was sent.
        kube::Error::BuildRequest(error) => CallError::Refused(error.to_string()),
        kube::Error::SerdeError(error) => CallError::Unreadable(error.to_string()),
        other => CallError::Unanswered(causes(&other)),
    }
}

/// Whether an admission webhook failed, or denied the request, which it can do with any status code.
fn is_of_webhook(message: &str) -> bool {
    message.contains("failed calling webhook")
        || message.contains("admission webhook") && message.contains("denied the request")
}

/// Formats an error with all its causes: the outermost text of a library error is rarely enough.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = deeper.source();
    }
    text
}

/// Runs one call with the deadline.
///
/// # Errors
/// [`CallError`].
pub async fn call<T>(work: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    call_within(TIMEOUT, work).await
}

/// Runs one call with this deadline.
///
/// # Errors
/// [`CallError`].
pub async fn call_within<T>(timeout: Duration, work: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(CallError::Unanswered(format!("no answer within {} s", timeout.as_secs()))),
    }
}

/// Lists page by page, and gives the objects of each page to `take`. Without a resource version, the API server answers with the
/// newest state.
///
/// # Errors
/// The error of the first page that failed.
pub async fn each_page<T: Clone, L: Future<Output = Result<ObjectList<T>, CallError>>>(
    selection: ListParams,
    list: impl Fn(ListParams) -> L,
    mut take: impl FnMut(Vec<T>),
) -> Result<(), CallError> {
    let mut page = selection.limit(PAGE);
    loop {
        let answer = list(page.clone()).await?;
        take(answer.items);
        page.continue_token = answer.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return Ok(());
        }
    }
}

/// The API of the workloads of this kind.
pub fn workloads(client: Client, namespace: &str, kind: WorkloadKind) -> Api<DynamicObject> {
    let resource = match kind {
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        WorkloadKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        WorkloadKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        WorkloadKind::Job => ApiResource::erase::<Job>(&()),
        WorkloadKind::CronJob => ApiResource::erase::<CronJob>(&()),
    };
    Api::namespaced_with(client, namespace, &resource)
}

/// An object that an event is about.
pub fn reference(api_version: &str, kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    let text = |text: &str| Some(text.to_owned());
    ObjectReference {
        api_version: text(api_version),
        kind: text(kind),
        namespace: text(namespace),
        name: text(name),
        uid: text(uid),
        ..ObjectReference::default()
    }
}

/// Reads a workload.
///
/// # Errors
/// [`CallError`].
pub async fn workload(
    client: Client,
    namespace: &str,
    Workload { kind, name }: &Workload,
) -> Result<DynamicObject, CallError> {
    call(workloads(client, namespace, *kind).get(name)).await
}

/// The selector of a workload's pods; `None` if it has none. A `CronJob` selects the pods with the labels of its pod template.
///
/// # Errors
/// [`CallError::Unreadable`].
pub fn selector_of(kind: WorkloadKind, workload: &DynamicObject) -> Result<Option<LabelSelector>, CallError> {
    let spec = &workload.data["spec"];
    let read = |value: &Value| serde_json::from_value::<Option<_>>(value.clone());
    let selector = match kind {
        WorkloadKind::CronJob => {
            let labels = read(&spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"]);
            labels.map(|labels| {
                labels.map(|labels| LabelSelector { match_labels: Some(labels), match_expressions: None })
            })
        }
        _ => serde_json::from_value(spec["selector"].clone()),
    };
    selector.map_err(|error| CallError::Unreadable(error.to_string()))
}

/// Creates a client from the environment (kubeconfig, or the pod's service account). Returns it with the address of its
/// API server.
///
/// # Errors
/// One sentence that says what was tried.
pub async fn client() -> Result<(Client, String), String> {
    let config = config().await?;
    let client = connect(&config)?;
    Ok((client, config.cluster_url.to_string()))
}

/// How the environment says that the API server is reached.
///
/// # Errors
/// One sentence that says what was tried.
pub async fn config() -> Result<Config, String> {
    let mut config = Config::infer().await.map_err(|error| {
        format!(
            "no access to a Kubernetes API server: neither KUBECONFIG nor a service account works: {}",
            causes(&error)
        )
    })?;
    config.default_retry = false;
    // The API server shows the part before the slash as the manager of the fields that this process writes.
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("redislease/", env!("CARGO_PKG_VERSION")))));
    config.connect_timeout = Some(TIMEOUT);
    // Lists and the opening of watches have no timeout of their own; an open watch receives bookmarks more often than
    // this.
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    let variable = |name: &str| std::env::var(name).ok();
    config.proxy_url = config.proxy_url.filter(|proxy| !proxy::is_exempt(proxy, &config.cluster_url, variable));
    Ok(config)
}

/// Creates a client with connections of its own.
pub type Connect = Box<dyn Fn() -> Result<Client, String> + Send + Sync>;

/// Creates a client with connections of its own.
///
/// # Errors
/// One sentence.
pub fn connect(config: &Config) -> Result<Client, String> {
    Client::try_from(config.clone()).map_err(|error| {
        format!("the client of the API server at {} cannot be built: {}", config.cluster_url, causes(&error))
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_admission_webhook_refuses_with_any_code_and_an_error_of_the_server_is_no_answer() {
        let error = |code, message: &str| {
            failed(kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() })))
        };
        let denied = "admission webhook \"a.b.c\" denied the request: no";
        for (code, message) in [
            (403, denied),
            (404, denied),
            (409, denied),
            (429, denied),
            (500, denied),
            (503, denied),
            (500, "Internal error occurred: failed calling webhook \"a.b.c\": timeout"),
            (422, "invalid"),
        ] {
            assert_eq!(error(code, message), CallError::Refused(format!("{message} ({code})")));
        }
        for (code, message) in
            [(401, "Unauthorized"), (429, "too many requests"), (500, "etcdserver: no leader"), (503, "not ready")]
        {
            assert_eq!(error(code, message), CallError::Unanswered(format!("{message} ({code})")));
        }
        assert_eq!((error(404, "gone"), error(409, "changed")), (CallError::NotFound, CallError::Conflict));
    }

    /// A proxy before the API server, or the API server itself for a kind that it does not know, answers in plain text.
    #[tokio::test]
    async fn an_answer_without_a_status_proves_nothing() {
        for code in [400, 403, 404, 409, 410] {
            let page = (axum::http::StatusCode::from_u16(code).unwrap(), "404 page not found");
            let client = Client::new(axum::Router::new().fallback(move || async move { page }), "default");
            let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
            let error = call(pods.get("a")).await.unwrap_err();
            assert_eq!(error, CallError::Unanswered(format!("404 page not found ({code})")));
            assert_eq!(lacks_kind(&error), code == 404);
        }
    }
}
