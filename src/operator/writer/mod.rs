//! The API writer: sends the calls of [`plan::calls`](redislease_plan::plan::calls) to the API server, and passes their outcomes on.
//!
//! Events have a separate bound: they are merged, then dropped and counted, first those of the namespace with the most.

mod call;
mod events;
mod owned;
mod pod_events;
mod sender;
mod startable;
mod tokens;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::ObjectReference;
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_plan::annotations::decide::Change;
use redislease_plan::engine::PodName;
use redislease_plan::index::{ListCount, WorkloadKey};
use redislease_plan::plan::calls::{Calls, Key, Limits, Outcome, Request};
use redislease_plan::status::{Notice, NoticeReason};
use tokio::sync::Notify;

use super::authority::Authorities;
use super::kube_api::reference;
use crate::locked::locked;
use crate::metrics::operator::OperatorMetrics;
use call::Payload;
use events::{Accepted, Events};

/// The callback for the outcome of a call. It runs on any thread and must not block.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Queues calls. Clones share one queue.
#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<WriterState>,
    wake: Notify,
    instance: String,
    lists: ListCount,
    metrics: OperatorMetrics,
    authorities: Authorities,
    on_answer: Box<dyn Fn() + Send + Sync>,
}

struct WriterState {
    calls: Calls<Done>,
    events: Events,
    /// The pending changes of the leases of annotated workloads.
    changes: BTreeMap<WorkloadKey, Change>,
}

impl WriterState {
    /// The part of the request that the queue of calls does not have.
    fn payload(&mut self, request: &Request, instance: &str) -> Payload {
        match request {
            Request::LeaseChange(key) => {
                self.changes.remove(key).map_or(Payload::None, |change| Payload::Change(Box::new(change)))
            }
            Request::Event { key, .. } => {
                self.events.take(key, instance).map_or(Payload::None, |event| Payload::Event(Box::new(event)))
            }
            _ => Payload::None,
        }
    }
}

impl Writer {
    /// Creates a writer that sends nothing before [`Writer::run`]. Events are reported under the name `instance`.
    pub fn new(
        instance: String,
        lists: ListCount,
        metrics: OperatorMetrics,
        authorities: Authorities,
        on_answer: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state =
            WriterState { calls: Calls::new(Limits::STANDARD), events: Events::default(), changes: BTreeMap::new() };
        let shared = Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            instance,
            lists,
            metrics,
            authorities,
            on_answer: Box::new(on_answer),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes a call. It replaces one about the same that was not sent yet.
    pub fn submit(&self, request: Request, done: Done) {
        self.state().calls.submit(clock::now(), request, done);
        self.shared.wake.notify_one();
    }

    /// Withdraws a call, if it was not sent yet.
    pub fn withdraw(&self, key: &Key) {
        self.state().calls.withdraw(key);
        self.shared.wake.notify_one();
    }

    /// Changes the lease of an annotated workload. Replaces a pending change.
    pub fn change_lease(&self, workload: &WorkloadKey, change: Change, done: Done) {
        let mut state = self.state();
        state.calls.submit(clock::now(), Request::LeaseChange(workload.clone()), done);
        state.changes.insert(workload.clone(), change);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Makes sure that the API server is asked: sends a probe unless another call is answered first.
    pub fn probe(&self) {
        self.state().calls.probe();
        self.shared.wake.notify_one();
    }

    /// When a call was last answered.
    pub fn answered_at(&self) -> Option<Time> {
        self.state().calls.answered_at()
    }

    /// Calls `on_answer` of [`Writer::new`] once, when the next call is answered.
    pub fn await_answer(&self) {
        self.state().calls.await_answer();
    }

    /// Reports an event now on `object`, and on each pod that the notice names, unless many pods had events just before.
    pub fn report(&self, notice: &Notice, object: &ObjectReference) {
        let (now, happened) = (clock::now(), jiff::Timestamp::now());
        let tenant: Arc<str> = object.namespace.as_deref().unwrap_or_default().into();
        let mut state = self.state();
        let on_pods: Vec<_> = notice.on_pods.iter().filter(|_| state.events.pods.takes(now, &tenant)).collect();
        let pods = on_pods.into_iter().map(|(name, uid)| reference("v1", "Pod", &tenant, name, uid));
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

    /// Withdraws an event of [`Writer::report_once`] on the object with this UID, if it was not sent yet.
    pub fn withdraw_report(&self, uid: &str, reason: NoticeReason, note: &str) {
        let mut state = self.state();
        if let Some(key) = state.events.withdraw_once(uid, reason, note) {
            state.calls.withdraw(&Key::Event(key));
        }
    }

    /// As [`Writer::report_once`], on a pod. Returns `false` if many pods had such events just before: nothing is reported.
    pub fn report_once_on_pod(&self, reason: NoticeReason, note: &str, pod: &PodName) -> bool {
        let now = clock::now();
        let is_accepted = self.state().events.mistakes.takes(now, &pod.namespace.as_str().into());
        if is_accepted {
            let notice = Notice { reason, note: note.to_owned(), on_pods: Vec::new() };
            self.report_once(notice, reference("v1", "Pod", &pod.namespace, &pod.name, &pod.uid));
        }
        is_accepted
    }

    fn queue_event(&self, state: &mut WriterState, now: Time, tenant: &Arc<str>, accepted: Accepted) {
        match accepted {
            Accepted::Merged => {}
            Accepted::Dropped => self.shared.metrics.event_dropped(),
            Accepted::New { key, due, dropped } => {
                if let Some(dropped) = dropped {
                    state.calls.withdraw(&Key::Event(dropped));
                    self.shared.metrics.event_dropped();
                }
                let request = Request::Event { namespace: tenant.clone(), key, not_before: due };
                state.calls.submit(now, request, Box::new(|_| ()));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        locked(&self.shared.state)
    }
}
