//! The facts that the doctor judges. The shell collects them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_lock::nodes::{Failure, Server};

use super::certificates::Certificate;
use crate::operator::published::KindFacts;

/// An operator that works shows a change in the status of a quorum within this time.
pub(super) const SHOWN_WITHIN: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);

/// Everything that was collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The address of the API server, or why it does not answer.
    pub api_server: Option<Result<String, String>>,
    /// The kinds that the API server knows.
    pub kinds: Vec<KindFacts>,
    /// Whose rights were checked.
    pub identity: Identity,
    /// The rights that the operator needs.
    pub rights: Vec<RightFacts>,
    /// The quorums, or why they cannot be read.
    pub quorums: Option<Result<Vec<QuorumFacts>, Obstacle>>,
    /// The leases with a problem, or why the leases cannot be read.
    pub leases: Option<Result<LeaseFacts, String>>,
    /// The namespace of the quorums.
    pub namespace: String,
    /// The time at which certificates must be valid.
    pub now: Timestamp,
}

/// The leases with a problem, each with the reason.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseFacts {
    /// Those that can move when a replica of the operator fails.
    pub at_risk: Vec<(String, String)>,
    /// Those that this version cannot read.
    pub unreadable: Vec<(String, String)>,
    /// Those whose condition `Ready` says that the spec is not valid, or that it names something that cannot be used.
    pub invalid: Vec<(String, String)>,
}

/// Whose rights are checked.
#[derive(Clone, Debug, Default)]
pub(super) enum Identity {
    /// The person or the pod that runs the doctor with a kubeconfig. Its rights say nothing about those of the operator.
    #[default]
    Caller,
    /// The service account of the pod in which the doctor runs, as in `helm test`.
    Pod,
    /// The service account that a flag names, with its namespace.
    ServiceAccount(String),
}

/// A right that the operator needs, and whether the checked identity has it.
#[derive(Clone, Debug)]
pub(super) struct RightFacts {
    /// Such as `patch pods in namespace shop`.
    pub right: String,
    /// What does not work without it.
    pub needed_for: &'static str,
    pub allowed: Result<bool, String>,
}

/// One RedisQuorum.
#[derive(Clone, Debug)]
pub(super) struct QuorumFacts {
    pub name: String,
    /// Why its spec is not valid.
    pub invalid: Option<String>,
    /// The fingerprint of its configuration.
    pub fingerprint: Option<String>,
    /// Why a secret cannot be used.
    pub secret: Option<Obstacle>,
    pub has_tls: bool,
    pub has_password: bool,
    /// What the operator has written about it.
    pub report: Report,
    pub nodes: Vec<NodeFacts>,
    /// Whether a replica of this cluster's operator leads; `None` if that is not known, or if none needs to lead.
    pub is_led: Option<bool>,
    /// The certificates of `ca.crt`, or why they cannot be read.
    pub authorities: Result<Vec<Certificate>, String>,
    /// The certificates of `tls.crt`.
    pub client_chain: Result<Vec<Certificate>, String>,
}

impl QuorumFacts {
    /// Nothing is known about the quorum.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            invalid: None,
            fingerprint: None,
            secret: None,
            has_tls: false,
            has_password: false,
            report: Report::default(),
            nodes: Vec::new(),
            is_led: None,
            authorities: Ok(Vec::new()),
            client_chain: Ok(Vec::new()),
        }
    }
}

/// What the operator has written into the status of a quorum.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// `None` if the operator has not written a status.
    pub ready: Option<Condition>,
    pub health: Option<Condition>,
    /// The nodes that vote and those in quarantine together are a majority, and a quarantine still lasts: the majority comes
    /// without anybody's help.
    pub votes_soon: bool,
    /// When the RedisQuorum was created.
    pub created: Option<Timestamp>,
}

/// Why something could not be read, and whether this is certain to concern the operator too.
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    pub message: String,
    /// The identity that runs the doctor was refused, or there was no answer.
    pub unchecked: bool,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub name: String,
    pub address: String,
    pub zone: Option<String>,
    /// `None` if it was not looked at, because a secret could not be used.
    pub server: Option<Result<Server, Failure>>,
    /// The certificates that the server shows; none without TLS or without a connection.
    pub chain: Result<Vec<Certificate>, String>,
}
