//! How the API server is called: with a deadline, and with a failure that says what is known.
//!
//! The library's own retries are off: they would repeat an outdated decision for minutes.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::config::Config;

/// How long a call may take. Nothing that is held waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be silent while an answer is due.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The object changed since it was read, or exists already.
    #[error("the object changed meanwhile")]
    Conflict,
    /// There is no such object.
    #[error("there is no such object")]
    NotFound,
    /// No answer: the call may have been carried out, or may be carried out later.
    #[error("no answer from the API server: {0}")]
    Unanswered(String),
    /// The API server refused.
    #[error("the API server refused: {0}")]
    Refused(String),
    /// The API server did it, and its answer cannot be read.
    #[error("the answer of the API server cannot be read: {0}")]
    Unreadable(String),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            // What a server, or a proxy before it, says while it is overloaded or half down proves nothing.
            kube::Error::Api(status) if status.code == 429 || status.code >= 500 => {
                Self::Unanswered(format!("{} ({})", status.message, status.code))
            }
            kube::Error::Api(status) => Self::Refused(format!("{} ({})", status.message, status.code)),
            kube::Error::SerdeError(error) => Self::Unreadable(error.to_string()),
            other => Self::Unanswered(causes(&other)),
        }
    }
}

/// An error with all its causes: the first sentence of a library seldom says what is wrong.
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
