//! Every call to the API server goes through here: with a deadline, counted, and its failure named.
//!
//! The library's own retries are off: they would hold an old intention for minutes. Who called decides again.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::config::Config;

use crate::metrics::operator::WriteResult;

/// How long a call may take. A lease does not wait for it, only what it shows.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be silent while an answer is due.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

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

/// What became of a write, for the metric.
pub const fn result<T>(written: &Result<T, CallError>) -> WriteResult {
    match written {
        Ok(_) => WriteResult::Ok,
        Err(CallError::Conflict) => WriteResult::Conflict,
        Err(CallError::Unanswered(_)) => WriteResult::Timeout,
        Err(CallError::NotFound | CallError::Refused(_)) => WriteResult::Error,
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
            other => Self::Unanswered(causes(&other)),
        }
    }
}

/// An error with everything that led to it: what a library says first is seldom what is wrong.
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
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(CallError::Unanswered(format!("nothing for {} s", TIMEOUT.as_secs()))),
    }
}

/// A client from the environment: kubeconfig, or the pod's service account; and the address of its API server.
///
/// # Errors
/// One sentence that says what was tried.
pub async fn client() -> Result<(Client, String), String> {
    let mut config = Config::infer().await.map_err(|error| {
        format!(
            "no access to a Kubernetes API server: neither KUBECONFIG nor a service account works: {}",
            causes(&error)
        )
    })?;
    config.default_retry = false;
    config.connect_timeout = Some(TIMEOUT);
    // A list, or a watch that is being opened, has no deadline of ours; an open watch says something more often.
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    let address = config.cluster_url.to_string();
    let client = Client::try_from(config)
        .map_err(|error| format!("the client of the API server at {address} cannot be built: {}", causes(&error)))?;
    Ok((client, address))
}
