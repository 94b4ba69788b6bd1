//! Leases for annotated workloads: a workload with the annotation `redislease.io/lease` owns a RedisLease.
//!
//! One task follows the metadata of the workloads and the leases that were created for workloads. It keeps only workloads
//! with annotations in memory. For a lease, the replica acts that leads on the lease's quorum. All changes are conditional:
//! a creation fails if the name is used, a patch names the resourceVersion, and a deletion names UID and resourceVersion
//! and follows a fresh read of the workload. So two replicas cannot overwrite each other's changes.
//!
//! Mistakes in the annotations of pods and of RedisLeases are reported by the [engine](super::engine), which knows them.
//!
//! What is decided about a workload is in [`redislease_plan::annotations`], and which workloads need a decision in [`annotated`].

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt, future, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use redislease_lock::clock::{self, Alarm};
use redislease_lock::contain::contained;
use redislease_lock::nodes::random::Random;
use redislease_plan::annotations::decide::Change;
use redislease_plan::annotations::facts::{LeaseFacts, WorkloadFacts, title};
use redislease_plan::api::RedisLease;
use redislease_plan::api::validated::{Workload, WorkloadKind};
use redislease_plan::engine::Watched;
use redislease_plan::engine::annotated::{self, AnnotatedWorkloads, Effect};
use redislease_plan::index::{WorkloadChange, WorkloadKey};
use redislease_plan::plan::Allowed;
use redislease_plan::plan::calls::{Changed, Outcome};
use redislease_plan::status::Notice;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::authority::Authorities;
use super::kube_api::reference;
use super::watches::{self, AHEAD, Namespaces, Objects};
use super::writer::Writer;
use crate::metrics::operator::OperatorMetrics;

/// The name of this controller in metrics.
pub const CONTROLLER: &str = "annotation";

/// How long decisions are made before events are taken again: the engine gets each event of a lease after this controller.
const SLICE: Duration = Duration::from_millis(5);

/// The dependencies of the controller.
pub struct Parts {
    /// The namespaces to watch.
    pub namespaces: Namespaces,
    /// The kinds of workloads to watch; see [`followed`].
    pub kinds: Vec<WorkloadKind>,
    /// Whether annotated workloads get leases. Otherwise the controller only says which workloads have changed.
    pub creates: bool,
    /// The events of all leases; see [`share`].
    pub leases: Receiver<Watched<LeaseFacts>>,
    /// Takes each workload that has changed, and the leases for which the operator has written it.
    pub changed: Sender<WorkloadChange>,
    /// Sends its calls.
    pub writer: Writer,
    /// For which quorums this replica may act.
    pub authorities: Authorities,
    /// Counts reconciliations and panics, and the watches.
    pub metrics: OperatorMetrics,
}

/// The outcome of a change.
struct Answer {
    key: WorkloadKey,
    began: Instant,
    outcome: Changed<Box<LeaseFacts>>,
}

struct Controller {
    state: AnnotatedWorkloads,
    writer: Writer,
    authorities: Authorities,
    metrics: OperatorMetrics,
    answers: UnboundedSender<Answer>,
    random: Random,
}

/// Passes the events of the leases on to the engine, and their facts to this controller: one watch serves both. Ends with
/// either of them.
pub async fn share(
    mut events: Receiver<Watched<RedisLease>>,
    engine: Sender<Watched<RedisLease>>,
    controller: Sender<Watched<LeaseFacts>>,
) {
    while let Some(event) = events.recv().await {
        let facts = event.map(|lease| LeaseFacts::from(lease));
        if controller.send(facts).await.is_err() || engine.send(event).await.is_err() {
            return;
        }
    }
}

/// Runs until `stop`.
pub async fn run(parts: Parts, stop: CancellationToken) {
    let mut alarm = match Alarm::new() {
        Ok(alarm) => alarm,
        Err(error) => return tracing::error!(%error, "The controller of annotations cannot create its timer."),
    };
    let Parts { namespaces, kinds, creates, mut leases, changed, writer, authorities, metrics } = parts;
    let (mut watches, mut workloads) = follow_all(kinds, &namespaces, &metrics, &stop);

    // At most one change of each workload is in progress, so the number of answers is bounded.
    let (answers, mut answered) = mpsc::unbounded_channel();
    let random = Random::new();
    let mut controller = Controller {
        state: AnnotatedWorkloads::default(),
        writer,
        authorities: authorities.clone(),
        metrics,
        answers,
        random,
    };
    let mut is_busy = false;
    loop {
        if let Err(error) = alarm.set(controller.state.next_deadline()) {
            return tracing::error!(%error, "The timer of the controller of annotations cannot be set.");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            _ = &mut watches => return,
            () = tokio::task::yield_now(), if is_busy => {}
            Some((kind, event)) = workloads.next() => {
                if let Some(change) = annotated::changed(kind, &event)
                    && changed.send(change).await.is_err()
                {
                    return;
                }
                if creates {
                    controller.take(|it| it.state.workload(kind, event));
                }
            }
            Some(event) = leases.recv() => controller.take(|it| it.state.lease(event)),
            Some(answer) = answered.recv() => controller.take(|it| it.answered(answer)),
            () = authorities.changed() => controller.state.all_due(),
            expired = alarm.expired() => {
                if let Err(error) = expired {
                    return tracing::error!(%error, "The timer of the controller of annotations failed.");
                }
            }
        }
        controller.drain(&mut answered);
        is_busy = controller.work();
    }
}

/// The kinds of workloads to watch: those that can have annotations if they get leases, or else those that the operator may start
/// and stop.
pub fn followed(creates: bool, allowed: Allowed) -> Vec<WorkloadKind> {
    let is_followed = |kind: &WorkloadKind| match kind {
        WorkloadKind::Deployment | WorkloadKind::StatefulSet | WorkloadKind::CronJob => {
            creates || allowed.switches(*kind)
        }
        WorkloadKind::DaemonSet | WorkloadKind::Job | WorkloadKind::ReplicaSet => creates && kind.gets_leases(),
    };
    WorkloadKind::ALL.into_iter().filter(is_followed).collect()
}

type Followed = SelectAll<BoxStream<'static, (WorkloadKind, Watched<WorkloadFacts>)>>;

/// The watches of these kinds of workloads, and their events.
fn follow_all(
    kinds: Vec<WorkloadKind>,
    namespaces: &Namespaces,
    metrics: &OperatorMetrics,
    stop: &CancellationToken,
) -> (BoxFuture<'static, Vec<()>>, Followed) {
    let (mut watches, mut events) = (Vec::new(), SelectAll::new());
    for kind in kinds {
        let follow = match kind {
            WorkloadKind::Deployment => follow::<Deployment>,
            WorkloadKind::StatefulSet => follow::<StatefulSet>,
            WorkloadKind::DaemonSet => follow::<DaemonSet>,
            WorkloadKind::CronJob => follow::<CronJob>,
            WorkloadKind::Job => follow::<Job>,
            WorkloadKind::ReplicaSet => follow::<ReplicaSet>,
        };
        follow(kind, namespaces, metrics, stop, &mut watches, &mut events);
    }
    (future::join_all(watches).boxed(), events)
}

/// Adds the watch of one kind of workload.
fn follow<K>(
    kind: WorkloadKind,
    namespaces: &Namespaces,
    metrics: &OperatorMetrics,
    stop: &CancellationToken,
    watches: &mut Vec<BoxFuture<'static, ()>>,
    events: &mut Followed,
) where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (out, inbox) = mpsc::channel(AHEAD);
    let all = Objects::all(namespaces.apis::<PartialObjectMeta<K>>(), kind.as_str(), metrics);
    let facts = move |metadata| WorkloadFacts::of(kind, metadata);
    watches.push(watches::follow_metadata(all, facts, out, stop.clone()).boxed());
    let inbox = stream::unfold(inbox, async |mut inbox| inbox.recv().await.map(|event| (event, inbox)));
    events.push(inbox.map(move |event| (kind, event)).boxed());
}

impl Controller {
    fn drain(&mut self, answered: &mut UnboundedReceiver<Answer>) {
        while let Ok(answer) = answered.try_recv() {
            self.take(|it| it.answered(answer));
        }
    }

    /// Takes one event. A panic affects only the object of this event.
    fn take(&mut self, event: impl FnOnce(&mut Self)) {
        if let Err(panicked) = contained(|| event(self)) {
            self.metrics.panicked();
            tracing::error!(panic = %panicked, "An event of an annotated workload or of its lease is ignored.");
        }
    }

    fn answered(&mut self, Answer { key, began, outcome }: Answer) {
        match &outcome {
            Changed::Written(lease) => {
                let lease = format!("{}/{}", lease.namespace, lease.name);
                tracing::info!(%lease, workload = title(&key.1), "The lease of an annotated workload was written.");
            }
            Changed::Deleted(_) => {
                let namespace = &*key.0;
                tracing::info!(
                    namespace,
                    workload = title(&key.1),
                    "A lease was deleted: its workload does not request it any more."
                );
            }
            _ => {}
        }
        let success = !matches!(outcome, Changed::Refused(_) | Changed::Unanswered);
        self.metrics.reconciled(CONTROLLER, success, began.elapsed());
        let entropy = self.random.entropy();
        self.state.changed(clock::now(), &key, outcome, entropy);
    }

    /// Makes the decisions that are due, for a short time. Returns whether more are due.
    fn work(&mut self) -> bool {
        let (now, began) = (clock::now(), Instant::now());
        while let Some(key) = self.state.next_due(now) {
            // Other workloads are not affected.
            match contained(|| self.state.decide(now, &key, |quorum| self.authorities.leads(quorum, now))) {
                Ok(effects) => effects.into_iter().for_each(|effect| self.carry_out(effect)),
                Err(panicked) => {
                    self.state.panicked(now, &key);
                    self.metrics.panicked();
                    let (namespace, workload) = (&*key.0, title(&key.1));
                    tracing::error!(namespace, workload, panic = %panicked, "The decision about an annotated workload panicked: its lease stays as it is, and the operator decides again after a minute.");
                }
            }
            if began.elapsed() >= SLICE {
                return true;
            }
        }
        false
    }

    fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Change(key, change) => self.change(&key, change),
            Effect::Report((namespace, workload), uid, problem) => {
                let (of, reason) = (title(&workload), problem.reason.as_str());
                tracing::warn!(namespace = &*namespace, workload = of, reason, "{}", problem.note);
                let Workload { kind, name } = &workload;
                let object = reference(kind.api_version(), kind.as_str(), &namespace, name, &uid);
                let notice = Notice { reason: problem.reason, note: problem.note, on_pods: Vec::new() };
                self.writer.report_once(notice, object);
            }
            Effect::Withdraw(uid, problem) => self.writer.withdraw_report(&uid, problem.reason, &problem.note),
        }
    }

    fn change(&self, key: &WorkloadKey, change: Change) {
        let (answers, began, of) = (self.answers.clone(), Instant::now(), key.clone());
        let done = move |outcome| {
            if let Outcome::LeaseChange(outcome) = outcome {
                let outcome = outcome.map(|lease| Box::new(LeaseFacts::from(&*lease)));
                // If the controller has ended, the process is ending too.
                let _ = answers.send(Answer { key: of, began, outcome });
            }
        };
        self.writer.change_lease(key, change, Box::new(done));
    }
}
