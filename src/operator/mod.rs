//! The operator: it watches leases, quorums and pods, decides about each lease, and writes the results.
//!
//! | module | concept |
//! |---|---|
//! | [`watches`], [`merge`] | follow the objects of one kind, in all or in some namespaces |
//! | [`namespaces`] | follows the labels of namespaces |
//! | [`engine`] | one task: a turn for each lease that is due |
//! | [`writer`] | all calls to the API server except the watches |
//! | [`quorums`] | the connections, status and election of each quorum |
//! | [`leadership`] | the lock of the replicas on each quorum, and the identity of this one |
//! | [`annotations`] | the leases of annotated workloads |
//! | [`definitions`], [`published`] | compare the CustomResourceDefinitions with those of this version |
//! | [`trimmed`], [`unreadable`] | read the objects of watches, and report those that cannot be read |
//! | [`slot`] | the newest view of one keeper machine |
//! | [`supervisor`] | the tasks that must run as long as the process |
//! | [`backoff`], [`kube_api`], [`proxy`] | small tools |

mod annotations;
mod authority;
mod backoff;
mod definitions;
mod engine;
pub mod kube_api;
mod leadership;
mod merge;
mod namespaces;
mod proxy;
pub mod published;
mod quorums;
mod slot;
mod supervisor;
pub mod trimmed;
mod unreadable;
mod watches;
mod writer;

pub(crate) use quorums::QuorumSecrets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use prometheus::Registry;
use redislease_lock::keeper::Keeper;
use redislease_lock::nodes::random::Random;
use redislease_plan::api::{RedisLease, RedisQuorum};
use redislease_plan::election::{Cluster, PodFacts, PodObject};
use redislease_plan::engine::{Config, Engine, Input, Watched};
use redislease_plan::index::{Index, ListCount, NamespaceFacts, WorkloadChange};
use redislease_plan::plan::calls::{Outcome, Request};
use redislease_plan::plan::{Allowed, PERMITS, Reconciler};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::{Part, Readiness, Server};
use crate::metrics::Page;
use crate::metrics::lease::LeaseMetrics;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::panics::Panics;
use crate::metrics::renewals::RenewalMetrics;
use authority::Authorities;
use definitions::Definitions;
use engine::{Driver, Message, Shell};
use leadership::Replica;
use supervisor::TaskSupervisor;
use unreadable::Unreadable;
use watches::{AHEAD, Namespaces, Objects};
use writer::Writer;

/// The label of this controller in `redislease_reconcile_total`.
const CONTROLLERS: [&str; 3] = [engine::CONTROLLER, quorums::CONTROLLER, annotations::CONTROLLER];

/// The pause before reading the cluster's UID again after the API server refused to show it.
const IDENTITY_AGAIN: Duration = Duration::from_secs(2);

/// The options of the operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this cluster, the same for every operator in it and for no other cluster on its quorums.
    pub cluster: String,
    /// The namespace of RedisQuorums and their secrets.
    pub namespace: String,
    /// The namespaces whose leases and pods are watched; none means all.
    pub watch_namespaces: Vec<String>,
    /// Whether annotated workloads get leases.
    pub annotations: bool,
    /// Which ways of activation the operator may use.
    pub allowed: Allowed,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
    /// The unique name of this replica. Events and `RedisQuorum.status.leader` show it.
    pub instance: String,
}

/// State shared by all parts.
struct Context {
    options: Options,
    client: Client,
    /// How the API server is reached.
    access: kube::Config,
    keeper: Arc<Keeper>,
    metrics: OperatorMetrics,
    lease_metrics: LeaseMetrics,
    renewal_metrics: RenewalMetrics,
    node_metrics: NodeMetrics,
    readiness: Readiness,
    supervisor: TaskSupervisor,
    stop: CancellationToken,
}

/// Runs until `stop` is cancelled: first the deciding tasks end, then the keepers. Published terms stay for the next
/// process.
///
/// # Errors
/// One sentence when the operator cannot start, or when an essential task ended.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), String> {
    raise_file_limit();
    let registry = Registry::new();
    let register = |error: prometheus::Error| format!("metrics: {error}");
    let panics = Panics::register(&registry).map_err(register)?;
    let node_metrics = NodeMetrics::register(&registry, &panics).map_err(register)?;
    let lease_metrics = LeaseMetrics::register(&registry).map_err(register)?;
    let renewal_metrics = RenewalMetrics::register(&registry).map_err(register)?;
    let metrics = OperatorMetrics::register(&registry, &CONTROLLERS, &panics).map_err(register)?;
    let server = Server::bind(options.listen).await.map_err(|error| error.to_string())?;
    let access = kube_api::config().await?;
    let (client, api_server) = (kube_api::connect(&access)?, access.cluster_url.to_string());
    let readiness = Readiness::default();
    // Without a condition, /readyz would answer that the process is ready.
    let starting = readiness.needs("the operator: it starts");
    tracing::info!(
        cluster = %options.cluster,
        namespace = %options.namespace,
        listen = %server.address(),
        %api_server,
        version = env!("CARGO_PKG_VERSION"),
        "operator started"
    );
    let page = Page { registry, leases: lease_metrics.clone() };
    let serving = tokio::spawn({
        let (until, ended) = (stop.clone().cancelled_owned(), stop.clone().drop_guard());
        let (readiness, panics) = (readiness.clone(), panics.clone());
        async move {
            let outcome = server.serve(page, readiness, panics, until).await;
            drop(ended);
            outcome
        }
    });
    let keeper = Keeper::start(panics.keeper_observer())
        .map_err(|error| format!("the keeper's threads cannot start: {error}"))?;
    let supervisor = TaskSupervisor::new(stop.clone());
    let context = Context {
        options,
        client,
        access,
        keeper: Arc::new(keeper),
        metrics,
        lease_metrics,
        renewal_metrics,
        node_metrics,
        readiness,
        supervisor: supervisor.clone(),
        stop: stop.clone(),
    };
    context.run(starting).await;
    match serving.await {
        Ok(Ok(())) => supervisor.failure().map_or(Ok(()), Err),
        Ok(Err(error)) => Err(format!("metrics and health could not be served: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

impl Context {
    async fn run(self, starting: Part) {
        let parts = ["leases", "quorums", "pods"].map(|kind| self.readiness.needs(format!("{kind}: not listed yet")));
        let [leases_listed, quorums_listed, pods_listed] = parts;
        let listed = (leases_listed, pods_listed);
        let tried = self.readiness.needs("quorums: not every node was tried yet, or only others reach a majority");
        let identified = self.readiness.needs("the cluster: the UID of its namespace kube-system was not read yet");
        starting.done();

        let index = Index::new(&self.options.namespace);
        let (senders, inbox) = engine::channels();
        let authorities = Authorities::default();
        let (writer, answered) = self.writer(&index, &authorities, senders.others.clone());
        let lists = index.pod_lists().clone();
        let (deciding, writing) = (TaskTracker::new(), TaskTracker::new());
        // The writer ends after the tasks that use it, so that the last events are sent.
        let decided = CancellationToken::new();
        let writing_task = writer.clone().run(self.connect(), decided.clone());
        writing.spawn(self.supervisor.must_not_end("the API writer", Box::pin(writing_task)));

        if let Some((uid, definitions)) = self.may_begin(&writer, identified).await {
            self.spawn(&deciding, "the comparison of definitions", definitions.follow(self.stop.clone()));
            let cluster = Cluster { name: self.options.cluster.clone(), uid };
            let replica = self.replica(&cluster, &writer);
            let (metrics, leases) = (self.metrics.clone(), self.lease_metrics.clone());
            let (keeper, answers) = (self.keeper.clone(), senders.others.clone());
            let shell = Shell::new(keeper, writer.clone(), answers, &inbox, metrics, leases);
            let config =
                Config { cluster: Arc::new(cluster), allowed: self.options.allowed, permits: PERMITS, machines: () };
            let engine = Driver::new(Engine::<Reconciler>::new(config, index), shell);
            let quorums = quorums::Parts {
                namespace: self.options.namespace.as_str().into(),
                lease_namespaces: self.options.watch_namespaces.clone().into(),
                writer: writer.clone(),
                engine: senders.others,
                node_metrics: self.node_metrics.clone(),
                renewal_metrics: self.renewal_metrics.clone(),
                metrics: self.metrics.clone(),
                replica,
                authorities: authorities.clone(),
                answered,
                tried: Some(tried),
                listed: Some(quorums_listed),
            };
            self.spawn(&deciding, "the engine", engine::run(engine, inbox, self.stop.clone()));
            self.follow_quorums(&deciding, quorums);
            let lease_events =
                self.follow_workloads(&deciding, senders.workloads, senders.leases, &writer, &authorities);
            self.follow_leases_and_pods(&deciding, &writer, (lease_events, senders.pods), listed, lists);
            self.follow_namespaces(&deciding, senders.namespaces);
            self.stop.cancelled().await;
            tracing::info!("stopping: terms are left for the next process");
        }
        deciding.close();
        deciding.wait().await;
        self.keeper.shutdown().await;
        decided.cancel();
        writing.close();
        writing.wait().await;
    }

    fn connect(&self) -> kube_api::Connect {
        let access = self.access.clone();
        Box::new(move || kube_api::connect(&access))
    }

    fn spawn(&self, tasks: &TaskTracker, what: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        tasks.spawn(self.supervisor.must_not_end(what, Box::pin(work)));
    }

    /// Runs the controller of the operator's RedisQuorums, and follows them for it.
    fn follow_quorums(&self, tasks: &TaskTracker, controller: quorums::Parts) {
        let (events, watch) = mpsc::channel(AHEAD);
        self.spawn(tasks, "the controller of RedisQuorums", quorums::run(controller, watch, self.stop.clone()));
        let api = Api::namespaced(self.client.clone(), &self.options.namespace);
        let of_quorums = Objects::all(vec![api], "RedisQuorum", &self.metrics);
        let quorums = watches::follow(of_quorums, |quorum: RedisQuorum| quorum, events, self.stop.clone());
        self.spawn(tasks, "the watch of RedisQuorums", quorums);
    }

    fn follow_namespaces(&self, tasks: &TaskTracker, events: mpsc::Sender<Watched<NamespaceFacts>>) {
        let Namespaces { client, chosen } = self.watched();
        let namespaces = namespaces::follow(client, chosen, self.metrics.clone(), events, self.stop.clone());
        self.spawn(tasks, "the watch of namespaces", namespaces);
    }

    /// Follows annotated workloads, or only those that leases switch. Returns where the events of leases go.
    fn follow_workloads(
        &self,
        tasks: &TaskTracker,
        changed: mpsc::Sender<WorkloadChange>,
        lease_events: mpsc::Sender<Watched<RedisLease>>,
        writer: &Writer,
        authorities: &Authorities,
    ) -> mpsc::Sender<Watched<RedisLease>> {
        let creates = self.options.annotations;
        let kinds = annotations::followed(creates, self.options.allowed);
        if kinds.is_empty() {
            return lease_events;
        }
        let (facts, leases) = mpsc::channel(AHEAD);
        let controller = annotations::Parts {
            namespaces: self.watched(),
            kinds,
            creates,
            leases,
            changed,
            writer: writer.clone(),
            authorities: authorities.clone(),
            metrics: self.metrics.clone(),
        };
        self.spawn(tasks, "the controller of annotations", annotations::run(controller, self.stop.clone()));
        if !creates {
            return lease_events;
        }
        let (shared, events) = mpsc::channel(AHEAD);
        self.spawn(tasks, "the events of RedisLeases", annotations::share(events, lease_events, facts));
        shared
    }

    /// Follows leases and pods; `listed` are reported when the first lists are complete.
    fn follow_leases_and_pods(
        &self,
        tasks: &TaskTracker,
        writer: &Writer,
        (lease_events, pod_events): (mpsc::Sender<Watched<RedisLease>>, mpsc::Sender<Watched<PodFacts>>),
        listed: (Part, Part),
        lists: ListCount,
    ) {
        // After a restart the terms must be renewed in time; the next elections, for which the pods are needed, can wait
        // for a second. With 10,000 leases each of the two lists takes the API server more than that.
        let leases_first = CancellationToken::new();
        let of_leases = Objects {
            listed: Some(listed.0),
            before: Some(leases_first.clone()),
            unreadable: Unreadable::with_events(writer.clone()),
            ..Objects::all(self.watched().apis(), "RedisLease", &self.metrics)
        };
        let leases = watches::follow(of_leases, |lease: RedisLease| lease, lease_events, self.stop.clone());
        self.spawn(tasks, "the watch of RedisLeases", leases);
        let of_pods = Objects {
            listed: Some(listed.1),
            lists: Some(lists),
            after: Some(leases_first),
            ..Objects::all(self.watched().apis(), "Pod", &self.metrics)
        };
        let pods = watches::follow(of_pods, |pod: PodObject| PodFacts::from(&pod), pod_events, self.stop.clone());
        self.spawn(tasks, "the watch of pods", pods);
    }

    /// The writer, and the signal that the API server has answered a call.
    fn writer(
        &self,
        index: &Index,
        authorities: &Authorities,
        answers: mpsc::UnboundedSender<Message>,
    ) -> (Writer, Arc<Notify>) {
        let answered = Arc::new(Notify::new());
        let signal = answered.clone();
        let on_answer = move || {
            signal.notify_one();
            // If the engine has ended, the process is ending too.
            drop(answers.send(Input::ApiAnswered.into()));
        };
        let (instance, lists) = (self.options.instance.clone(), index.pod_lists().clone());
        (Writer::new(instance, lists, self.metrics.clone(), authorities.clone(), on_answer), answered)
    }

    fn watched(&self) -> Namespaces {
        Namespaces { client: self.client.clone(), chosen: self.options.watch_namespaces.clone() }
    }

    /// The identity of this replica in this run.
    fn replica(&self, cluster: &Cluster, writer: &Writer) -> Replica {
        Replica {
            cluster: cluster.clone(),
            instance: self.options.instance.clone(),
            process: format!("{:016x}", Random::new().entropy().0),
            keeper: self.keeper.clone(),
            writer: writer.clone(),
        }
    }

    /// Waits for what everything else needs: the UID of the cluster, and definitions that keep every field of the leases. Returns
    /// `None` if the process stops before that.
    async fn may_begin(&self, writer: &Writer, identified: Part) -> Option<(String, Definitions)> {
        let uid = self.uid_of_cluster(writer).await?;
        identified.done();
        let mut definitions = Definitions::new(self.client.clone(), self.readiness.clone());
        definitions.fit(&self.stop).await.then_some((uid, definitions))
    }

    /// Reads the UID of the cluster; returns `None` if the process stops before that. Nothing else starts before it is
    /// known, because values on the Redis nodes identify the cluster by it.
    async fn uid_of_cluster(&self, writer: &Writer) -> Option<String> {
        loop {
            let (done, answer) = oneshot::channel();
            let done = Box::new(move |outcome| drop(done.send(outcome)));
            writer.submit(Request::ClusterUid, done);
            let answer = tokio::select! {
                () = self.stop.cancelled() => return None,
                answer = answer => answer,
            };
            match answer {
                Ok(Outcome::ClusterUid(Ok(uid))) if !uid.is_empty() => return Some(uid),
                // The writer has logged the error.
                Ok(_) => {}
                // The writer has ended, so the process is ending.
                Err(_) => return None,
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(IDENTITY_AGAIN) => {}
            }
        }
    }
}

/// Each connection to a Redis node or to the API server needs a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "The limit of open files cannot be raised.");
    }
}
