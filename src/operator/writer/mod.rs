//! The API writer: all calls to the API server except the watches.
//!
//! One queue ([`calls`]) orders the calls, limits how many are in flight and how many start in a second, and repeats them. While the
//! API server does not answer, all calls wait behind one probe, so an outage causes no load.
//!
//! For each lease and quorum the queue holds at most one status write, for each lease at most eight role writes, and for
//! each lease, workload and secret at most one read of each kind. A newer call replaces an older one that was not sent
//! yet. Events have a separate bound: they are merged, then dropped and counted, first those of the namespace with the most.
//!
//! | module | concept |
//! |---|---|
//! | [`sender`] | the task that sends the calls |
//! | [`key`] | what a queued call is about |
//! | [`events`], [`pod_events`] | pending events; how many of them are on pods (pure) |
//! | [`call`] | the calls |
//! | [`outcome`], [`managers`] | what their answers mean; who manages a field |
//! | [`owned`] | the calls for the leases of annotated workloads |
//! | [`startable`] | the pods that may have been started |
//! | [`tokens`] | the highest token of all leases on a quorum |

mod call;
mod events;
mod key;
mod managers;
mod outcome;
mod owned;
mod pod_events;
mod sender;
mod startable;
mod tokens;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use redislease_core::time::Time;
use redislease_lock::clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::annotations::Change;
use super::engine::PodName;
use super::leadership::Grant;
use crate::index::{ListCount, WorkloadKey};
use crate::metrics::operator::OperatorMetrics;
use crate::plan::calls::{self, Level, Queue, Submission};
use crate::plan::{Priority, RoleWrite};
use crate::status::{Notice, NoticeReason};
pub use call::{Call, Done, Found, RoleAnswer};
use events::{Accepted, Events};
use key::Key;
pub use owned::Changed;
use sender::Sender;

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
            state: Mutex::new(State { queue: Queue::new(calls::CONCURRENCY), events: Events::default() }),
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
        self.submit(Submission { not_after, ..job(Key::Status(uid.into()), namespace, priority.into(), call) });
    }

    /// Withdraws the status write of a lease, if it was not sent yet.
    pub fn withdraw_status(&self, uid: &str) {
        self.withdraw(&Key::Status(uid.into()));
    }

    /// Writes the role of a pod for a lease. `lease` is the name that distinguishes the leases of one pod.
    pub fn write_role(
        &self,
        namespace: &Arc<str>,
        lease: &str,
        name: &str,
        write: RoleWrite,
        grant: Option<Arc<Grant>>,
        done: Done<RoleAnswer>,
    ) {
        let pod: Arc<str> = write.uid.as_str().into();
        let (priority, not_after) = (write.priority, write.not_after);
        let call = Call::PodRole { namespace: namespace.clone(), lease: name.to_owned(), write, grant, done };
        let key = Key::Role { pod: pod.clone(), lease: lease.into() };
        self.submit(Submission { lane: Some(pod), not_after, ..job(key, namespace, priority.into(), call) });
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
            Call::Startable { .. } => (Key::ReadStartable(of.into()), Level::Active),
            Call::Node { .. } => (Key::ReadNode(of.into()), Level::End),
            Call::Workload { key, .. } => (Key::ReadWorkload(key.clone()), Level::Active),
            Call::Quorum { .. } => (Key::ReadQuorum(of.into()), Level::End),
            Call::Tokens { .. } => (Key::ReadTokens(of.into()), Level::End),
            Call::Secret { .. } => (Key::ReadSecret(of.into()), Level::Publication),
            Call::ClusterUid { .. } => (Key::ReadClusterUid, Level::End),
            Call::QuorumStatus { .. } => (Key::QuorumStatus(of.into()), Level::Standby),
            Call::LeaseStatus { .. } | Call::PodRole { .. } | Call::OwnedLease { .. } | Call::Event(_) => return,
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
        let pods = on_pods.into_iter().map(|(name, uid)| pod_reference(PodName { namespace: &tenant, name, uid }));
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

    /// As [`Writer::report_once`], on a pod. Returns `false` if many pods had such events just before: nothing is reported.
    pub fn report_once_on_pod(&self, reason: NoticeReason, note: &str, pod: PodName<'_>) -> bool {
        let now = clock::now();
        let is_accepted = self.state().events.mistakes.takes(now, &pod.namespace.into());
        if is_accepted {
            let notice = Notice { reason, note: note.to_owned(), on_pods: Vec::new() };
            self.report_once(notice, pod_reference(pod));
        }
        is_accepted
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

    fn submit(&self, mut job: Submission<Key, Call>) {
        let mut state = self.state();
        let older = state.queue.withdraw(&job.key);
        let mut withdrawn = None;
        match older {
            Some(older @ Call::Lease { .. }) => job.payload.join(older),
            older => withdrawn = older,
        }
        state.queue.submit(clock::now(), job);
        drop(state);
        if let Some(call) = withdrawn {
            call.withdrawn();
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

fn pod_reference(pod: PodName<'_>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.name.to_owned()),
        namespace: Some(pod.namespace.to_owned()),
        uid: Some(pod.uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn job(key: Key, tenant: &Arc<str>, level: Level, call: Call) -> Submission<Key, Call> {
    Submission::new(key, tenant.clone(), level, call)
}
