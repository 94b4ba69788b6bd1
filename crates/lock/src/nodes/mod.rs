//! The Redis nodes of a quorum: one task for each, which owns its connection, scripts and admission.
//!
//! A [`Nodes`] takes requests with [`Nodes::send`] and returns exactly one vote on each, no later than the request's
//! `give_up_at`. Requests to one node about one lease reach its server in the order in which they were sent; renewals of
//! different leases are batched. [`Nodes::watch`] shows the status of the nodes.
//!
//! The tasks of one quorum run on their own thread, in their own runtime, so no other work of the process and no other
//! quorum delays a renewal. The keeper runs the machines of the quorum's leases on this thread too, so that a request and
//! its vote wake no other thread.

mod access;
mod address;
mod answers;
mod board;
mod brief;
mod calls;
mod client;
mod config;
mod connection;
mod context;
mod failure;
mod floor;
mod handle;
mod info;
mod judging;
mod keyspace;
mod link;
mod message;
mod node;
mod observer;
mod outbox;
mod probe;
pub mod random;
mod read;
mod reason;
mod request;
pub mod script;
mod seeding;
mod shared;
mod show;
mod status;
mod thread;
mod tls;
mod transport;
mod trial;

pub use access::Credentials;
pub use config::{Config, NodeConfig, StartError};
pub use failure::Failure;
pub use handle::Nodes;
pub(crate) use handle::WeakNodes;
pub use keyspace::Keyspace;
pub use message::Shown;
pub use observer::NodesObserver;
pub(crate) use outbox::Outbox;
pub use probe::{Probe, Server};
pub use reason::Reason;
pub use request::Request;
pub(crate) use request::{Ballot, Reply};
pub use status::{Misconfiguration, NodeState, NodeStatus};
pub use tls::{Tls, TlsFiles};
