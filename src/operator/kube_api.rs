//! Every call to the API server goes through here: with a deadline, counted, and its failure named.
//!
//! The library's own retries are off: they would hold an old intention for minutes. Who called decides again.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::config::Config;

/// How long a call may take. A lease does not wait for it, only what it shows.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The object changed since it was read, or exists already.
    #[error("the object changed meanwhile")]
    Conflict,
    /// There is no such object.
    #[error("there is no such object")]
    NotFound,
    /// No answer: it may have been carried out, and may be yet.
    #[error("no answer from the API server: {0}")]
    Unanswered(String),
    /// The API server refused.
    #[error("the API server refused: {0}")]
    Refused(String),
}

impl CallError {
    /// Whether the API server itself said no: nothing was carried out.
    pub const fn is_definite(&self) -> bool {
        !matches!(self, Self::Unanswered(_))
    }

    /// The outcome as a metric's label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Unanswered(_) => "timeout",
            Self::NotFound | Self::Refused(_) => "error",
        }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            // What a server or something before it says while it is overloaded or half down proves nothing.
            kube::Error::Api(status) if status.code == 429 || status.code >= 500 => {
                Self::Unanswered(format!("{} ({})", status.message, status.code))
            }
            kube::Error::Api(status) => Self::Refused(format!("{} ({})", status.message, status.code)),
            other => Self::Unanswered(other.to_string()),
        }
    }
}

/// Runs one call with the deadline.
///
/// # Errors
/// [`CallError`].
pub async fn call<T>(work: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(CallError::Unanswered(format!("nothing for {} s", TIMEOUT.as_secs()))),
    }
}

/// A client from the environment: kubeconfig, or the pod's service account.
///
/// # Errors
/// One sentence that says what was tried.
pub async fn client() -> Result<Client, String> {
    let mut config = Config::infer().await.map_err(|error| {
        format!("no access to a Kubernetes API server: neither KUBECONFIG nor a service account works: {error}")
    })?;
    config.default_retry = false;
    config.connect_timeout = Some(TIMEOUT);
    Client::try_from(config).map_err(|error| format!("the Kubernetes client cannot be built: {error}"))
}
