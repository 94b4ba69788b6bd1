//! The task of the engine: it waits for inputs, handles them, and works in time slices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redislease_lock::clock::Alarm;
use redislease_lock::mailbox::Mailbox;
use redislease_plan::api::RedisLease;
use redislease_plan::election::PodFacts;
use redislease_plan::engine::{Input, Machine, Watched};
use redislease_plan::index::{LeaseId, NamespaceFacts, WorkloadChange};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::driver::{Driver, Message, Outside};

/// The capacity of a watch's channel. When it is full, the watch waits.
const AHEAD: usize = 1024;
/// How many inputs of one kind are handled before the leases get turns, so that many pod events do not delay answers.
const BATCH: usize = 256;
/// How long leases get turns before inputs are handled again.
const SLICE: Duration = Duration::from_millis(5);

/// The sending ends of the engine's channels.
#[derive(Clone, Debug)]
pub struct Senders {
    /// From the watch of leases.
    pub leases: Sender<Watched<RedisLease>>,
    /// From the watch of pods.
    pub pods: Sender<Watched<PodFacts>>,
    /// From the watch of namespaces.
    pub namespaces: Sender<Watched<NamespaceFacts>>,
    /// From the watch of the metadata of workloads.
    pub workloads: Sender<WorkloadChange>,
    /// Answers, and changes of quorums. Bounded by the number of pending requests and of quorums.
    pub others: UnboundedSender<Message>,
}

/// The receiving ends of the engine's channels.
#[derive(Debug)]
pub struct Inbox {
    leases: Receiver<Watched<RedisLease>>,
    pods: Receiver<Watched<PodFacts>>,
    namespaces: Receiver<Watched<NamespaceFacts>>,
    workloads: Receiver<WorkloadChange>,
    others: UnboundedReceiver<Message>,
    /// The leases whose machines have a new view.
    pub(super) mailbox: Arc<Mailbox<LeaseId>>,
}

/// Creates the channels.
pub fn channels() -> (Senders, Inbox) {
    let (leases, lease_events) = mpsc::channel(AHEAD);
    let (pods, pod_events) = mpsc::channel(AHEAD);
    let (namespaces, namespace_events) = mpsc::channel(AHEAD);
    let (workloads, workload_events) = mpsc::channel(AHEAD);
    // Answers of calls, whose number in flight is limited, and changes of quorums, of which there are a few in a second. Their
    // senders must not wait for the engine.
    let (others, other_inputs) = mpsc::unbounded_channel();
    let inbox = Inbox {
        leases: lease_events,
        pods: pod_events,
        namespaces: namespace_events,
        workloads: workload_events,
        others: other_inputs,
        mailbox: Arc::new(Mailbox::new()),
    };
    (Senders { leases, pods, namespaces, workloads, others }, inbox)
}

/// Runs until `stop`.
pub async fn run<M: Machine, O: Outside>(mut engine: Driver<M, O>, mut inbox: Inbox, stop: CancellationToken) {
    let mut alarm = match Alarm::new() {
        Ok(alarm) => alarm,
        Err(error) => return tracing::error!(%error, "The engine cannot create its timer."),
    };
    loop {
        let more = inbox.drain(&mut engine);
        let idle = engine.work(Instant::now() + SLICE);
        if stop.is_cancelled() {
            return;
        }
        if more || !idle {
            tokio::task::yield_now().await;
            continue;
        }
        if let Err(error) = alarm.set(engine.next_deadline()) {
            return tracing::error!(%error, "The timer of the engine cannot be set.");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Some(message) = inbox.others.recv() => engine.take(message),
            () = inbox.mailbox.filled() => {}
            Some(event) = inbox.leases.recv() => engine.take(Input::Lease(event)),
            Some(event) = inbox.pods.recv() => engine.take(Input::Pod(event)),
            Some(event) = inbox.namespaces.recv() => engine.take(Input::Namespace(event)),
            Some(change) = inbox.workloads.recv() => engine.take(Input::WorkloadChanged(change)),
            expired = alarm.expired() => {
                if let Err(error) = expired {
                    return tracing::error!(%error, "The timer of the engine failed.");
                }
            }
        }
    }
}

impl Inbox {
    /// Handles a batch of each kind of input. Returns whether there may be more.
    fn drain<M: Machine, O: Outside>(&mut self, engine: &mut Driver<M, O>) -> bool {
        let mut shown = Vec::new();
        self.mailbox.take(&mut shown);
        for lease in shown {
            engine.take(Input::Shown(lease));
        }
        let more = [
            take_batch(|| self.others.try_recv().ok(), |message| engine.take(message)),
            take_batch(|| self.leases.try_recv().ok(), |event| engine.take(Input::Lease(event))),
            take_batch(|| self.pods.try_recv().ok(), |event| engine.take(Input::Pod(event))),
            take_batch(|| self.namespaces.try_recv().ok(), |event| engine.take(Input::Namespace(event))),
            take_batch(|| self.workloads.try_recv().ok(), |change| engine.take(Input::WorkloadChanged(change))),
        ];
        more.contains(&true)
    }
}

/// Handles at most [`BATCH`] inputs. Returns whether there may be more.
fn take_batch<T>(mut next: impl FnMut() -> Option<T>, mut handle: impl FnMut(T)) -> bool {
    (0..BATCH).all(|_| next().map(&mut handle).is_some())
}
