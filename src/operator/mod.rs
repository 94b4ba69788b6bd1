//! The operator: it watches leases, quorums and pods, and runs one actor for each lease.
//!
//! | module | what it knows |
//! |---|---|
//! | [`lease`] | one lease: decide, tell the keeper, show |
//! | [`directory`] | which leases there are |
//! | [`quorums`], [`secret`] | the quorums, each opened once |
//! | [`upkeep`] | each quorum in line with its resource, and the resource's status with the nodes |
//! | [`pods`], [`workloads`] | the candidates |
//! | [`identity`] | what tells this cluster from every other |
//! | [`lifeline`] | the tasks whose end is the end of the process |
//! | [`sweep`] | labels that outlived their lease |
//! | [`pace`] | how soon what another operator contradicts is said again |
//! | [`patience`] | how long what failed is left alone |
//! | [`kube_api`], [`events`] | how the API server is spoken to |

mod directory;
pub mod events;
mod identity;
pub mod kube_api;
mod lease;
mod lifeline;
mod pace;
mod patience;
mod pods;
mod quorums;
mod secret;
mod sweep;
mod upkeep;
mod watches;
mod workloads;

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use prometheus::Registry;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::election::{Cluster, PodFacts, is_off};
use crate::http::{Readiness, Server};
use crate::keeper::Keeper;
use crate::metrics::lease::LeaseMetrics;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::panics::Panics;
use crate::status::TermEnd;
use directory::Directory;
use events::Reporter;
use kube_api::{CallError, call};
use lifeline::Lifeline;
use pods::Pods;
use quorums::Quorums;
use workloads::Workloads;

/// What `redislease_reconcile_total` counts.
const CONTROLLERS: [&str; 2] = [LEASE, QUORUM];
const LEASE: &str = "lease";
const QUORUM: &str = "quorum";

/// What the operator is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this cluster, the same for every operator in it and for no other cluster on its quorums.
    pub cluster: String,
    /// Where RedisQuorums and their secrets are honoured.
    pub namespace: String,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
    /// Under which name events are reported.
    pub instance: String,
}

/// What all actors share.
pub(crate) struct House {
    client: Client,
    cluster: Cluster,
    pods: Pods,
    workloads: Workloads,
    quorums: Quorums,
    directory: Directory,
    metrics: OperatorMetrics,
    lease_metrics: LeaseMetrics,
    keeper: Keeper,
    reporter: Reporter,
    stop: CancellationToken,
    lifeline: Arc<Lifeline>,
}

impl House {
    /// One pod as the API server holds it now.
    ///
    /// # Errors
    /// [`CallError`].
    async fn pod(&self, namespace: &str, name: &str) -> Result<PodFacts, CallError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        call(pods.get(name)).await.map(|pod| PodFacts::from(&pod))
    }

    /// Whether this node of the cluster is off for certain.
    ///
    /// # Errors
    /// [`CallError`].
    async fn node_is_off(&self, name: &str) -> Result<bool, CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        call(nodes.get(name)).await.map(|node| is_off(&node))
    }

    /// Whether another resource of the same name has taken over.
    fn has_successor(&self, namespace: &str, name: &str, uid: &str) -> bool {
        self.directory.uid_of(namespace, name).is_some_and(|other| other != uid)
    }
}

/// Runs until `stop` is cancelled: first the actors end, then their keepers; terms live on for the next process.
///
/// # Errors
/// One sentence when it cannot start, or when a task ended without which it is of no use.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), String> {
    raise_file_limit();
    let registry = Registry::new();
    let register = |error: prometheus::Error| format!("metrics: {error}");
    let panics = Panics::register(&registry).map_err(register)?;
    let node_metrics = NodeMetrics::register(&registry, &panics).map_err(register)?;
    let lease_metrics = LeaseMetrics::register(&registry, &TermEnd::WORDS).map_err(register)?;
    let metrics = OperatorMetrics::register(&registry, &CONTROLLERS).map_err(register)?;
    let keeper = Keeper::start(0, &panics).map_err(|error| format!("cannot start the keeper: {error}"))?;
    let server = Server::bind(options.listen).await.map_err(|error| error.to_string())?;
    let (client, api_server) = kube_api::client().await?;
    let readiness = Readiness::new();
    let identified = readiness.needs("the cluster: the UID of its namespace kube-system was not read yet");
    tracing::info!(
        cluster = %options.cluster,
        namespace = %options.namespace,
        listen = %server.address(),
        %api_server,
        version = env!("CARGO_PKG_VERSION"),
        "operator started"
    );
    let serving = tokio::spawn({
        let (until, ended) = (stop.clone().cancelled_owned(), stop.clone().drop_guard());
        let (registry, readiness) = (registry.clone(), readiness.clone());
        async move {
            let outcome = server.serve(registry, readiness, until).await;
            drop(ended);
            outcome
        }
    });
    let lifeline = Lifeline::new(stop.clone());
    if let Some(uid) = identity::uid_of_cluster(&client, &stop).await {
        let reporter = Reporter::start(client.clone(), options.instance.clone(), metrics.clone());
        let house = Arc::new(House {
            quorums: Quorums::new(
                client.clone(),
                options.namespace.clone(),
                node_metrics,
                metrics.clone(),
                reporter.clone(),
            ),
            workloads: Workloads::new(client.clone()),
            pods: Pods::default(),
            directory: Directory::default(),
            cluster: Cluster { name: options.cluster, uid },
            client,
            metrics,
            lease_metrics,
            keeper,
            reporter,
            stop: stop.clone(),
            lifeline: lifeline.clone(),
        });
        let tasks = TaskTracker::new();
        watches::spawn(&house, &readiness, &tasks);
        identified.done();
        stop.cancelled().await;
        tracing::info!("stopping: terms are left for the next process");
        tasks.close();
        tasks.wait().await;
        house.reporter.flush().await;
    }
    match serving.await {
        Ok(Ok(())) => lifeline.failure().map_or(Ok(()), Err),
        Ok(Err(error)) => Err(format!("metrics and health could not be served: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Each lease has a timer, which is an open file: the soft limit of most systems would end at some hundred leases.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
