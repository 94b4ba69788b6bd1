//! The task that sends the queued calls and passes their answers on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use kube::Client;
use redislease_core::time::Millis;
use redislease_lock::clock::{self, Alarm};
use redislease_lock::contain::contained_task;
use redislease_lock::nodes::random::Random;
use redislease_plan::plan::Bucket;
use redislease_plan::plan::calls::{Answer, CallError, Calls, Effect, Judged, Priority, Request, Verdict};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::{self, Payload};
use super::{Done, Writer};
use crate::operator::kube_api::{self, Connect};

/// How long the writer sends pending events at the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

/// The refused calls in the log: 20 at once, and one more in 10 s. An admission policy can refuse the calls of all leases.
type RefusalsLogged = Bucket<20, 10_000_000>;

impl Writer {
    /// Sends queued calls until `stop`; then only events, for a limited time.
    pub async fn run(self, connect: Connect, stop: CancellationToken) {
        let mut sender = match Sender::new(self, connect) {
            Ok(sender) => sender,
            Err(error) => return tracing::error!(error, "The API writer cannot start."),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sender.run(|_| false) => {}
        }
        // An object may have used up its events.
        let until = clock::now() + Millis::from(FLUSH);
        sender.writer.state().calls.keep_only(Priority::Events, until);
        let flushed = tokio::time::timeout(FLUSH, sender.run(|calls| !calls.has(Priority::Events))).await;
        if flushed.is_err() {
            tracing::warn!(
                "Some events were not sent: the API server did not accept them within {} s.",
                FLUSH.as_secs()
            );
        }
    }
}

/// A call that is over.
struct Ended {
    /// How many clients there were before its own.
    client: u64,
    number: u64,
    answer: Answer,
    took: Duration,
}

/// The task behind a writer.
struct Sender {
    writer: Writer,
    client: Client,
    connect: Connect,
    /// How many clients there were before this one.
    reconnects: u64,
    /// The calls in flight.
    calls: JoinSet<Ended>,
    alarm: Alarm,
    random: Random,
    refusals: RefusalsLogged,
}

impl Sender {
    /// Creates a task that sends nothing yet.
    ///
    /// # Errors
    /// The system cannot create another timer, or there is no client.
    fn new(writer: Writer, connect: Connect) -> Result<Self, String> {
        let alarm = Alarm::new().map_err(|error| format!("a timer cannot be created: {error}"))?;
        let (client, random) = (connect()?, Random::new());
        let calls = JoinSet::new();
        Ok(Self { writer, client, connect, reconnects: 0, calls, alarm, random, refusals: RefusalsLogged::default() })
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
                    if let Ok(Ended { client, number, answer, took }) = ended {
                        // A connection that breaks is not used again, and a server with too much work has answered.
                        let is_silent = matches!(answer, Err(CallError::Unanswered(_))) && took >= kube_api::TIMEOUT;
                        if is_silent && client == self.reconnects {
                            self.reconnect();
                        }
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
        let (of, began) = (self.reconnects, Instant::now());
        self.calls.spawn(async move {
            // A panic, such as one while an object of a tenant is read, fails this call only.
            let answer = contained_task(call::send(client, &shared.lists, &request, payload).boxed()).await;
            let answer = answer.unwrap_or_else(|panicked| Err(CallError::Panicked(format!("panic: {panicked}"))));
            Ended { client: of, number, answer, took: began.elapsed() }
        });
    }

    /// Leaves the connections that are open. If an API server is gone without a word, and others serve its address, each idle connection
    /// to it would cost another call its whole timeout, and a stop would come minutes late.
    fn reconnect(&mut self) {
        self.reconnects += 1;
        match (self.connect)() {
            Ok(client) => self.client = client,
            Err(error) => tracing::error!(error, "The connections to the API server stay as they are."),
        }
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let (now, entropy) = (clock::now(), self.random.entropy());
        let ended = self.writer.state().calls.answered(now, number, answer, entropy);
        let Some((request, Judged { verdict, problem })) = ended else { return };
        let metrics = &self.writer.shared.metrics;
        metrics.called(&request, verdict);
        let error = problem.unwrap_or_default();
        match verdict {
            Verdict::Panicked => {
                metrics.panicked();
                tracing::error!(object = %request, error, "A call panicked. Other calls are not affected.");
            }
            Verdict::Refused if self.refusals.has(now, 1) => {
                self.refusals.take(now);
                tracing::warn!(object = %request, error, "The API server refused a call.");
            }
            // The metrics count it.
            Verdict::Refused => tracing::debug!(object = %request, error, "The API server refused a call."),
            Verdict::Done | Verdict::Conflict | Verdict::Raced | Verdict::Unanswered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prometheus::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::metrics::operator::OperatorMetrics;
    use crate::metrics::panics::Panics;
    use crate::operator::authority::Authorities;
    use redislease_plan::index::ListCount;

    fn connect_to(url: &str) -> Connect {
        let access = kube::Config::new(url.parse().unwrap());
        Box::new(move || kube_api::connect(&access))
    }

    /// A sender whose API server is away, and the counters of panics.
    fn sender() -> (Sender, Panics) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = OperatorMetrics::register(&registry, &[], &panics).unwrap();
        let writer = Writer::new("operator-0".to_owned(), ListCount::default(), metrics, Authorities::default(), || {});
        (Sender::new(writer, connect_to("http://127.0.0.1:1")).unwrap(), panics)
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

    /// Answers that the object does not exist, on each connection. Connections before `silent` get no answer.
    async fn serve(listener: TcpListener, silent: Arc<AtomicUsize>, requests: mpsc::UnboundedSender<usize>) {
        let body = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 404}"#;
        let answer = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        for number in 0.. {
            let (mut connection, _) = listener.accept().await.unwrap();
            let (silent, requests, answer) = (silent.clone(), requests.clone(), answer.clone());
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while connection.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let _ = requests.send(number);
                    if number >= silent.load(Ordering::Relaxed) {
                        // So that the next call opens another connection.
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        connection.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    }

    /// An API server behind an address is gone without a word. Others serve the address.
    #[tokio::test]
    async fn one_call_only_waits_for_an_answer_on_an_idle_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (silent, (sent, mut requests)) = (Arc::<AtomicUsize>::default(), mpsc::unbounded_channel());
        tokio::spawn(serve(listener, silent.clone(), sent));
        let (sender, _) = sender();
        let writer = sender.writer.clone();
        let stop = CancellationToken::new();
        let task = tokio::spawn(writer.clone().run(connect_to(&url), stop.clone()));
        let (answered, mut answers) = mpsc::unbounded_channel();
        let ask = |name: &str| {
            let answered = answered.clone();
            let request = Request::Quorum { namespace: "n".into(), name: name.into() };
            writer.submit(request, Box::new(move |_| _ = answered.send(())));
        };
        let names = ["a", "b", "c", "d"];
        for name in names {
            ask(name);
        }
        for _ in names {
            answers.recv().await.unwrap();
        }
        let open = std::iter::from_fn(|| requests.try_recv().ok()).max().unwrap() + 1;
        assert!(open > 2, "{open} connections are idle");
        silent.store(open, Ordering::Relaxed);
        ask("e");
        tokio::time::timeout(kube_api::TIMEOUT * 3, answers.recv()).await.unwrap().unwrap();
        let asked: Vec<usize> = std::iter::from_fn(|| requests.try_recv().ok()).collect();
        assert_eq!(asked.iter().filter(|number| **number < open).count(), 1, "{asked:?}, {open} were idle");
        stop.cancel();
        task.await.unwrap();
    }
}
