//! The connection of a node's task, and what ends with it.

use std::future::Future;
use std::pin::Pin;

use redislease_core::admission::Input;
use redislease_core::marker::RunId;
use redislease_core::time::Time;
use redislease_core::wire;

use super::access::Accepted;
use super::client::Client;
use super::connection::Opened;
use super::failure::Failure;
use super::info::Process;
use super::message::Call;
use super::request::Reply;
use super::status::Misconfiguration;

/// A future that runs concurrently with the task's loop.
pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The admission of the node, the calls in flight on its connection, and the requests that wait for one.
pub(super) type Wire = wire::Wire<String, Reply, Call>;

pub(super) enum Link {
    /// Until the next attempt to connect.
    Pause(Time),
    Opening(Pending<Result<Opened, Failure>>),
    Open(Box<Open>),
}

/// The state that ends with a connection.
pub(super) struct Open {
    pub client: Client,
    pub process: Process,
    /// The name of the process in markers.
    pub run_id: RunId,
    /// An answer to the admission.
    pub seeding: Option<Pending<Input>>,
    pub info_due: Time,
    /// When the connection was opened.
    pub since: Time,
}

/// The test of the current password and certificate beside the open connection.
#[derive(Default)]
pub(super) struct Trial {
    pub running: Option<Pending<Result<Accepted, Failure>>>,
    /// When the next test starts.
    pub due: Option<Time>,
}

/// Why a connection ends.
pub(super) enum End {
    Failure(Failure),
    Misconfigured(Misconfiguration, String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
