//! The API writer: all calls to the API server except the watches.
//!
//! One queue orders the calls, limits how many are in flight and how many start in a second, and repeats them. While the
//! API server does not answer, all calls wait behind one probe, so an outage causes no load.
//!
//! For each lease and quorum the queue holds at most one status write, for each lease at most eight role writes, and for
//! each lease, workload and secret at most one read of each kind. A newer call replaces an older one that was not sent
//! yet. Events have a separate bound: they are merged, then dropped and counted, first those of the namespace with the most.
//!
//! | module | concept |
//! |---|---|
//! | [`queue`] | the order of the calls, limits, backoff (pure) |
//! | [`key`] | what a queued call is about |
//! | [`gate`] | closed while the API server does not answer (pure) |
//! | [`bucket`] | the rate of calls (pure) |
//! | [`events`], [`pod_events`] | pending events; how many of them are on pods (pure) |
//! | [`call`] | the calls, and how their answers are interpreted |
//! | [`owned`] | the calls for the leases of annotated workloads |
//! | [`slices`] | the calls for the Service of a lease and its EndpointSlices |
//! | [`tokens`] | the highest token of all leases on a quorum |

mod bucket;
mod call;
mod events;
mod gate;
mod key;
mod owned;
mod pod_events;
mod queue;
mod slices;
mod tokens;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use redislease_core::time::Time;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::annotations::Change;
use super::index::{ListCount, WorkloadKey};
use super::kube_api::CallError;
use crate::clock::{self, Alarm};
use crate::metrics::operator::{OperatorMetrics, WriteResult};
use crate::nodes::random::Random;
use crate::plan::{Priority, RoleWrite};
use crate::status::Notice;
pub use call::{Call, Done, PodFound, RoleAnswer};
use call::{Finish, Judged, Sent};
use events::{Accepted, Events};
use key::{Key, job, level};
pub use owned::Changed;
pub use queue::Level;
use queue::{Next, Queue, Retry, Submission, Verdict};
pub use slices::{Owner, ServiceFound, SliceAnswer, SliceFound};

/// How long the writer sends pending events at the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

/// Queues calls. Clones share one queue.
#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wake: Notify,
    instance: String,
    lists: ListCount,
    metrics: OperatorMetrics,
    /// When a call was last answered, in milliseconds; 0 before the first.
    answered_at: AtomicU64,
    /// Whether [`Writer::await_answer`] waits for the next answer.
    awaited: AtomicBool,
    on_answer: Box<dyn Fn() + Send + Sync>,
}

struct State {
    queue: Queue<Key, Call>,
    events: Events,
}

impl Writer {
    /// Creates a writer that sends nothing before [`Writer::run`]. Events are reported under the name `instance`.
    pub fn new(
        instance: String,
        lists: ListCount,
        metrics: OperatorMetrics,
        on_answer: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            state: Mutex::new(State { queue: Queue::new(), events: Events::default() }),
            wake: Notify::new(),
            instance,
            lists,
            metrics,
            answered_at: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            on_answer: Box::new(on_answer),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Writes the status of a lease. Replaces a pending write.
    pub fn write_status(
        &self,
        namespace: &Arc<str>,
        uid: &str,
        call: Call,
        priority: Priority,
        not_after: Option<Time>,
    ) {
        self.submit(Submission { not_after, ..job(Key::Status(uid.into()), namespace, level(priority), call) });
    }

    /// Withdraws the status write of a lease, if it was not sent yet.
    pub fn withdraw_status(&self, uid: &str) {
        self.withdraw(&Key::Status(uid.into()));
    }

    /// Writes the role of a pod for a lease. `lease` is the name that distinguishes the leases of one pod.
    pub fn write_role(&self, namespace: &Arc<str>, lease: &str, name: &str, write: RoleWrite, done: Done<RoleAnswer>) {
        let pod: Arc<str> = write.uid.as_str().into();
        let (priority, not_after) = (write.priority, write.not_after);
        let call = Call::PodRole { namespace: namespace.clone(), lease: name.to_owned(), write, done };
        let key = Key::Role { pod: pod.clone(), lease: lease.into() };
        self.submit(Submission { lane: Some(pod), not_after, ..job(key, namespace, level(priority), call) });
    }

    /// Withdraws the role write of a pod and a lease, if it was not sent yet.
    pub fn withdraw_role(&self, pod: &str, lease: &str) {
        self.withdraw(&Key::Role { pod: pod.into(), lease: lease.into() });
    }

    /// Sends a read, or the write of a quorum's status. `of` is the UID of the lease or the name of the quorum that it is
    /// for.
    pub fn send(&self, tenant: &Arc<str>, of: &str, call: Call) {
        let (key, level) = match &call {
            Call::Lease { .. } => (Key::ReadLease(of.into()), Level::Publication),
            Call::Pod { .. } => (Key::ReadPod(of.into()), Level::End),
            Call::Node { .. } => (Key::ReadNode(of.into()), Level::End),
            Call::Service { .. } => (Key::ReadService(of.into()), Level::Active),
            Call::Workload { key, .. } => (Key::ReadWorkload(key.clone()), Level::Active),
            Call::Quorum { .. } => (Key::ReadQuorum(of.into()), Level::End),
            Call::Tokens { .. } => (Key::ReadTokens(of.into()), Level::End),
            Call::Secret { .. } => (Key::ReadSecret(of.into()), Level::Publication),
            Call::ClusterUid { .. } => (Key::ReadClusterUid, Level::End),
            Call::QuorumStatus { .. } => (Key::QuorumStatus(of.into()), Level::Standby),
            Call::LeaseStatus { .. }
            | Call::PodRole { .. }
            | Call::Slice { .. }
            | Call::OwnedLease { .. }
            | Call::Event(_) => return,
        };
        self.submit(job(key, tenant, level, call));
    }

    /// Changes the lease of an annotated workload. Replaces a pending change.
    pub fn change_lease(&self, workload: &WorkloadKey, change: Change, done: Done<Changed>) {
        let call = Call::OwnedLease { workload: workload.clone(), change: Box::new(change), done };
        self.submit(job(Key::OwnedLease(workload.clone()), &workload.0, Level::Standby, call));
    }

    /// Makes sure that the API server is asked: sends a probe unless another call is answered first.
    pub fn probe(&self) {
        self.state().queue.want_probe();
        self.shared.wake.notify_one();
    }

    /// When a call was last answered.
    pub fn answered_at(&self) -> Option<Time> {
        let at = self.shared.answered_at.load(Ordering::Acquire);
        (at > 0).then_some(Time(at))
    }

    /// Calls `on_answer` of [`Writer::new`] once, when the next call is answered.
    pub fn await_answer(&self) {
        self.shared.awaited.store(true, Ordering::Release);
    }

    /// Reports an event now on `object`, and on each pod that the notice names, unless many pods had events just before.
    pub fn report(&self, notice: &Notice, object: &ObjectReference) {
        let (now, happened) = (clock::now(), jiff::Timestamp::now());
        let tenant: Arc<str> = object.namespace.as_deref().unwrap_or_default().into();
        let mut state = self.state();
        let on_pods: Vec<_> = notice.on_pods.iter().filter(|_| state.events.pods.takes(now, &tenant)).collect();
        let pods = on_pods.into_iter().map(|(name, uid)| ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(name.clone()),
            namespace: object.namespace.clone(),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        });
        for regarding in std::iter::once(object.clone()).chain(pods) {
            let accepted = state.events.add(now, happened, notice.clone(), regarding);
            self.queue_event(&mut state, now, &tenant, accepted);
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Reports an event on `object` unless the API server still has one with the same text, whichever process sent it.
    pub fn report_once(&self, notice: Notice, object: ObjectReference) {
        let (now, happened) = (clock::now(), jiff::Timestamp::now());
        let tenant: Arc<str> = object.namespace.as_deref().unwrap_or_default().into();
        let mut state = self.state();
        let accepted = state.events.add_once(now, happened, notice, object);
        self.queue_event(&mut state, now, &tenant, accepted);
        drop(state);
        self.shared.wake.notify_one();
    }

    fn queue_event(&self, state: &mut State, now: Time, tenant: &Arc<str>, accepted: Accepted) {
        let (key, due) = match accepted {
            Accepted::Merged => return,
            Accepted::Dropped => return self.shared.metrics.event_dropped(),
            Accepted::Replaced { dropped: (uid, reason), new: key, at: due } => {
                state.queue.withdraw(&Key::Event(uid, reason));
                self.shared.metrics.event_dropped();
                (key, due)
            }
            Accepted::New(key, due) => (key, due),
        };
        let call = Call::Event(key.clone());
        let submission = job(Key::Event(key.0, key.1), tenant, Level::Events, call);
        state.queue.submit(now, Submission { not_before: Some(due), ..submission });
    }

    fn submit(&self, job: Submission<Key, Call>) {
        let replaced = self.state().queue.submit(clock::now(), job);
        if let Some(replaced) = replaced {
            replaced.withdrawn();
        }
        self.shared.wake.notify_one();
    }

    fn withdraw(&self, key: &Key) {
        let withdrawn = self.state().queue.withdraw(key);
        if let Some(call) = withdrawn {
            call.withdrawn();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that change it.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends queued calls until `stop`; then only events, for a limited time.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        let mut sender = match Sender::new(self, client) {
            Ok(sender) => sender,
            Err(error) => return tracing::error!(%error, "The timer of the API writer cannot be created."),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sender.run(|_| false) => {}
        }
        sender.writer.state().queue.keep_only(Level::Events);
        let flushed = tokio::time::timeout(FLUSH, sender.run(|queue| !queue.has(Level::Events))).await;
        if flushed.is_err() {
            tracing::warn!(
                "Some events were not sent: the API server did not accept them within {} s.",
                FLUSH.as_secs()
            );
        }
    }
}

/// A call that completed.
enum Ended {
    Call { key: Key, retry: Option<Retry<Key>>, object: String, sent: Box<Sent> },
    Probe(Result<(), String>),
}

/// The task behind a writer.
struct Sender {
    writer: Writer,
    client: Client,
    calls: JoinSet<Ended>,
    alarm: Alarm,
    random: Random,
    /// Since when the gate is closed.
    closed: Option<Instant>,
}

impl Sender {
    fn new(writer: Writer, client: Client) -> std::io::Result<Self> {
        let (alarm, random) = (Alarm::new()?, Random::new());
        Ok(Self { writer, client, calls: JoinSet::new(), alarm, random, closed: None })
    }

    async fn run(&mut self, is_done: impl Fn(&Queue<Key, Call>) -> bool) {
        loop {
            self.begin();
            let (deadline, done, lengths) = {
                let state = self.writer.state();
                (state.queue.next_deadline(), is_done(&state.queue), state.queue.lengths())
            };
            self.writer.shared.metrics.queued(lengths);
            if done {
                return;
            }
            if let Err(error) = self.alarm.set(deadline) {
                tracing::error!(%error, "The timer of the API writer cannot be set: delayed calls wait until another call completes.");
            }
            tokio::select! {
                () = self.writer.shared.wake.notified() => {}
                Some(ended) = self.calls.join_next() => {
                    // A call that panicked has ended the process.
                    if let Ok(ended) = ended {
                        self.ended(ended);
                    }
                }
                _ = self.alarm.expired() => {}
            }
        }
    }

    /// Starts every call that may start now.
    fn begin(&mut self) {
        loop {
            let mut state = self.writer.state();
            let Some(next) = state.queue.next(clock::now()) else { return };
            match next {
                Next::Expired(call) => {
                    drop(state);
                    call.withdrawn();
                }
                Next::Probe => {
                    drop(state);
                    let probe = call::probe(self.client.clone());
                    self.calls.spawn(async {
                        Ended::Probe(match probe.await {
                            Err(CallError::Unanswered(why)) => Err(why),
                            _ => Ok(()),
                        })
                    });
                }
                Next::Call(key, call) => {
                    let event = match &key {
                        Key::Event(uid, reason) => {
                            state.events.take(&(uid.clone(), *reason), &self.writer.shared.instance)
                        }
                        _ => None,
                    };
                    let retry = state.queue.retry(&key);
                    drop(state);
                    self.send(key, retry, call, event);
                }
            }
        }
    }

    fn send(&mut self, key: Key, retry: Option<Retry<Key>>, call: Call, event: Option<Event>) {
        let (client, shared) = (self.client.clone(), self.writer.shared.clone());
        self.calls.spawn(async move {
            let (kind, object) = (call.kind(), call.object());
            let sent = call.send(client, shared.lists.clone(), &shared.metrics, event).await;
            if let Some(kind) = kind {
                let result = match sent.judged.verdict {
                    Verdict::Done => WriteResult::Ok,
                    Verdict::Conflict => WriteResult::Conflict,
                    Verdict::Refused => WriteResult::Error,
                    Verdict::Unanswered => WriteResult::Timeout,
                };
                shared.metrics.wrote(kind, result);
            }
            Ended::Call { key, retry, object, sent: Box::new(sent) }
        });
    }

    fn ended(&mut self, ended: Ended) {
        let now = clock::now();
        let entropy = self.random.entropy();
        let mut state = self.writer.state();
        let (answered, problem, finish) = match ended {
            Ended::Probe(answer) => {
                state.queue.probe_done(now, answer.is_ok(), entropy);
                (Some(answer.is_ok()), answer.err(), None)
            }
            Ended::Call { key, retry, object, sent } => {
                let Judged { verdict, problem, panicked } = sent.judged;
                state.queue.done(now, &key, verdict, entropy);
                let finish = match sent.finish {
                    Finish::PassOn(finish) => Some(finish),
                    Finish::Moved(before, after, finish) => {
                        if let (Key::Role { pod, .. }, Some(after)) = (&key, after) {
                            rebase(&mut state.queue, pod, before.as_ref(), &after);
                        }
                        Some(finish)
                    }
                    Finish::Again(call) => {
                        if let Some(retry) = retry {
                            // A newer read of the same object is queued already.
                            drop(state.queue.put_back(now, key, retry, call));
                        }
                        None
                    }
                };
                let error = problem.as_deref().unwrap_or_default();
                if panicked {
                    self.writer.shared.metrics.panicked();
                    tracing::error!(%object, error, "A call panicked. Other calls are not affected.");
                } else if verdict == Verdict::Refused {
                    tracing::warn!(%object, error, "The API server refused a call.");
                }
                // A panic says nothing about the API server.
                ((!panicked).then_some(verdict != Verdict::Unanswered), problem, finish)
            }
        };
        let waiting = state.queue.len();
        drop(state);
        let shared = &self.writer.shared;
        if answered == Some(true) {
            shared.answered_at.fetch_max(now.0, Ordering::AcqRel);
            if shared.awaited.swap(false, Ordering::AcqRel) {
                (shared.on_answer)();
            }
            if let Some(closed) = self.closed.take() {
                tracing::info!(waiting, "The API server answers again after {:.1} s.", closed.elapsed().as_secs_f64());
            }
        } else if answered == Some(false) && self.closed.is_none() {
            self.closed = Some(Instant::now());
            let error = problem.unwrap_or_default();
            tracing::warn!(%error, waiting, "The API server does not answer: calls wait until it does.");
        }
        if let Some(finish) = finish {
            finish();
        }
    }
}

/// A role write of this process has changed the pod from one version to the next, and changed only the role for one
/// lease. The pending role writes of other leases, decided on the previous version, are valid for the next version too.
fn rebase(queue: &mut Queue<Key, Call>, pod: &Arc<str>, before: Option<&String>, after: &str) {
    queue.change_lane(pod, |call| {
        if let Call::PodRole { write, .. } = call
            && write.version.as_ref() == before
        {
            write.version = Some(after.to_owned());
        }
    });
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::metrics::panics::Panics;

    /// A sender whose API server is away, and the counters of panics.
    fn sender() -> (Sender, Panics) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let registry = Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = OperatorMetrics::register(&registry, &[], &panics).unwrap();
        let writer = Writer::new("operator-0".to_owned(), ListCount::default(), metrics, || {});
        (Sender::new(writer, client).unwrap(), panics)
    }

    #[tokio::test]
    async fn a_call_that_panicked_is_counted_and_says_nothing_about_the_api_server() {
        let (mut sender, panics) = sender();
        let ended = |verdict, panicked, key: &str| {
            let judged = Judged { verdict, problem: None, panicked };
            let sent = Box::new(Sent { judged, finish: Finish::PassOn(Box::new(|| {})) });
            Ended::Call { key: Key::ReadPod(key.into()), retry: None, object: "pod n/a".to_owned(), sent }
        };
        sender.ended(ended(Verdict::Refused, true, "a"));
        assert_eq!((panics.operator.get(), sender.writer.answered_at(), sender.closed), (1, None, None));
        sender.ended(ended(Verdict::Refused, false, "b"));
        assert!(sender.writer.answered_at().is_some());
        assert_eq!(panics.operator.get(), 1);
    }
}
