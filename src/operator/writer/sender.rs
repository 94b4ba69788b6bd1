//! The task that sends the queued calls and passes their answers on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use k8s_openapi::api::events::v1::Event;
use kube::Client;
use redislease_lock::clock::{self, Alarm};
use redislease_lock::nodes::random::Random;
use tokio::task::JoinSet;

use super::Writer;
use super::call::{self, Call};
use super::key::Key;
use super::outcome::{Finish, Judged, Sent};
use crate::metrics::operator::WriteResult;
use crate::operator::kube_api::CallError;
use crate::plan::calls::{Next, Queue, Retry, Verdict};

/// A call that completed.
enum Ended {
    Call { key: Key, retry: Option<Retry<Key>>, object: String, sent: Box<Sent> },
    Probe(Result<(), String>),
}

/// The task behind a writer.
pub(super) struct Sender {
    pub writer: Writer,
    client: Client,
    calls: JoinSet<Ended>,
    alarm: Alarm,
    random: Random,
    /// Since when the gate is closed.
    closed: Option<Instant>,
}

impl Sender {
    /// Creates a task that sends nothing yet.
    ///
    /// # Errors
    /// The system cannot create another timer.
    pub fn new(writer: Writer, client: Client) -> std::io::Result<Self> {
        let (alarm, random) = (Alarm::new()?, Random::new());
        Ok(Self { writer, client, calls: JoinSet::new(), alarm, random, closed: None })
    }

    /// Sends queued calls until `is_done`.
    pub async fn run(&mut self, is_done: impl Fn(&Queue<Key, Call>) -> bool) {
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
                    // A panic in a call is an answer too.
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
                Next::Call(key, call) if !call.is_allowed(clock::now()) => {
                    state.queue.unsent(&key);
                    drop(state);
                    call.withdrawn();
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
            let sent = call.send(client, shared.lists.clone(), event).await;
            if let Some(kind) = kind {
                let result = match sent.judged.verdict {
                    Verdict::Done => WriteResult::Ok,
                    Verdict::Conflict => WriteResult::Conflict,
                    Verdict::Refused | Verdict::Panicked => WriteResult::Error,
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
                let Judged { verdict, problem } = sent.judged;
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
                            // A newer read of the same object may be queued already.
                            let unsent = state.queue.put_back(now, key.clone(), retry, call);
                            if let (Some(older), Some(newer)) = (unsent, state.queue.queued(&key)) {
                                newer.join(older);
                            }
                        }
                        None
                    }
                };
                let error = problem.as_deref().unwrap_or_default();
                let answered = match verdict {
                    Verdict::Panicked => {
                        self.writer.shared.metrics.panicked();
                        tracing::error!(%object, error, "A call panicked. Other calls are not affected.");
                        None
                    }
                    Verdict::Refused => {
                        tracing::warn!(%object, error, "The API server refused a call.");
                        Some(true)
                    }
                    verdict => Some(verdict != Verdict::Unanswered),
                };
                (answered, problem, finish)
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
            // This only sends to a channel. A panic here is not contained: the lease would wait for its answer for ever.
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
    use crate::index::ListCount;
    use crate::metrics::operator::OperatorMetrics;
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
        let ended = |verdict, key: &str| {
            let judged = Judged { verdict, problem: None };
            let sent = Box::new(Sent { judged, finish: Finish::PassOn(Box::new(|| {})) });
            Ended::Call { key: Key::ReadPod(key.into()), retry: None, object: "pod n/a".to_owned(), sent }
        };
        sender.ended(ended(Verdict::Panicked, "a"));
        assert_eq!((panics.operator.get(), sender.writer.answered_at(), sender.closed), (1, None, None));
        sender.ended(ended(Verdict::Refused, "b"));
        assert!(sender.writer.answered_at().is_some());
        assert_eq!(panics.operator.get(), 1);
    }
}
