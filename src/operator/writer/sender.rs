//! The task that sends the queued calls and passes their answers on.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use redislease_lock::clock::{self, Alarm};
use redislease_lock::contain::contained_task;
use redislease_lock::nodes::random::Random;
use redislease_plan::plan::calls::{Answer, Calls, Effect, Judged, Priority, Request, Verdict};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::{self, Payload};
use super::{Done, Writer};
use crate::metrics::operator::WriteResult;
use crate::operator::kube_api;

/// How long the writer sends pending events at the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

impl Writer {
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
        sender.writer.state().calls.keep_only(Priority::Events);
        let flushed = tokio::time::timeout(FLUSH, sender.run(|calls| !calls.has(Priority::Events))).await;
        if flushed.is_err() {
            tracing::warn!(
                "Some events were not sent: the API server did not accept them within {} s.",
                FLUSH.as_secs()
            );
        }
    }
}

/// The task behind a writer.
struct Sender {
    writer: Writer,
    client: Client,
    /// The calls in flight: each ends with its number and answer.
    calls: JoinSet<(u64, Answer)>,
    alarm: Alarm,
    random: Random,
}

impl Sender {
    /// Creates a task that sends nothing yet.
    ///
    /// # Errors
    /// The system cannot create another timer.
    fn new(writer: Writer, client: Client) -> std::io::Result<Self> {
        let (alarm, random) = (Alarm::new()?, Random::new());
        Ok(Self { writer, client, calls: JoinSet::new(), alarm, random })
    }

    /// Sends queued calls until `is_done`.
    async fn run(&mut self, is_done: impl Fn(&Calls<Done>) -> bool) {
        loop {
            self.begin();
            let (deadline, done, lengths) = {
                let state = self.writer.state();
                (state.calls.next_deadline(), is_done(&state.calls), state.calls.lengths())
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
                    // A panic in a call is an answer too, and nothing aborts a call.
                    if let Ok((number, answer)) = ended {
                        self.answered(number, answer);
                    }
                }
                _ = self.alarm.expired() => {}
            }
        }
    }

    /// Carries out what the queue of calls asks for now.
    fn begin(&mut self) {
        let shared = self.writer.shared.clone();
        shared.authorities.each(|quorum, until| self.writer.state().calls.decides_until(quorum, until));
        loop {
            let mut state = self.writer.state();
            let Some(effect) = state.calls.poll_effect(clock::now()) else { return };
            let waiting: usize = state.calls.lengths().iter().sum();
            let payload = match &effect {
                Effect::Send(_, request) => state.payload(request, &shared.instance),
                _ => Payload::None,
            };
            drop(state);
            match effect {
                Effect::Send(number, request) => self.send(number, request, payload),
                // This only sends to a channel. A panic here is not contained: the lease would wait for its answer for ever.
                Effect::Outcome(done, outcome) => done(outcome),
                Effect::Answered => (shared.on_answer)(),
                Effect::Unreachable(error) => {
                    tracing::warn!(%error, waiting, "The API server does not answer: calls wait until it does.");
                }
                Effect::Reachable(after) => {
                    let seconds = Duration::from_millis(after.0).as_secs_f64();
                    tracing::info!(waiting, "The API server answers again after {seconds:.1} s.");
                }
            }
        }
    }

    fn send(&mut self, number: u64, request: Arc<Request>, payload: Payload) {
        let (client, shared) = (self.client.clone(), self.writer.shared.clone());
        self.calls.spawn(async move {
            // A panic, such as one while an object of a tenant is read, fails this call only.
            let answer = contained_task(call::send(client, &shared.lists, &request, payload).boxed()).await;
            (number, answer.unwrap_or_else(|panicked| Err(kube_api::panicked(&panicked))))
        });
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let (now, entropy) = (clock::now(), self.random.entropy());
        let ended = self.writer.state().calls.answered(now, number, answer, entropy);
        let Some((request, Judged { verdict, problem })) = ended else { return };
        let metrics = &self.writer.shared.metrics;
        if let Some(kind) = call::kind(&request) {
            let result = match verdict {
                Verdict::Done => WriteResult::Ok,
                Verdict::Conflict | Verdict::Raced => WriteResult::Conflict,
                Verdict::Refused | Verdict::Panicked => WriteResult::Error,
                Verdict::Unanswered => WriteResult::Timeout,
            };
            metrics.wrote(kind, result);
        }
        let error = problem.unwrap_or_default();
        match verdict {
            Verdict::Panicked => {
                metrics.panicked();
                tracing::error!(object = %request, error, "A call panicked. Other calls are not affected.");
            }
            Verdict::Refused => tracing::warn!(object = %request, error, "The API server refused a call."),
            Verdict::Done | Verdict::Conflict | Verdict::Raced | Verdict::Unanswered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::metrics::operator::OperatorMetrics;
    use crate::metrics::panics::Panics;
    use crate::operator::authority::Authorities;
    use redislease_plan::index::ListCount;
    use redislease_plan::plan::calls::CallError;

    /// A sender whose API server is away, and the counters of panics.
    fn sender() -> (Sender, Panics) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let registry = Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = OperatorMetrics::register(&registry, &[], &panics).unwrap();
        let writer = Writer::new("operator-0".to_owned(), ListCount::default(), metrics, Authorities::default(), || {});
        (Sender::new(writer, client).unwrap(), panics)
    }

    #[tokio::test]
    async fn a_call_that_panicked_is_counted_and_says_nothing_about_the_api_server() {
        let (mut sender, panics) = sender();
        let mut end = |request: Request, error: CallError| {
            sender.writer.submit(request, Box::new(|_| ()));
            let mut effects = std::iter::from_fn(|| sender.writer.state().calls.poll_effect(clock::now()));
            let sent = effects.find_map(|effect| match effect {
                Effect::Send(number, _) => Some(number),
                _ => None,
            });
            sender.answered(sent.unwrap(), Err(error));
            (panics.operator.get(), sender.writer.answered_at().is_some())
        };
        assert_eq!(end(Request::ClusterUid, CallError::Panicked("planned by the test".to_owned())), (1, false));
        let quorum = Request::Quorum { namespace: "n".into(), name: "q".into() };
        assert_eq!(end(quorum, CallError::Refused("planned by the test".to_owned())), (1, true));
    }
}
