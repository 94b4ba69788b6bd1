//! What a program learns for its metrics.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redislease_lab::{RedisOptions, RedisServer};
use redislease_locker::{AcquireError, Locker, Lost, Node, NodeState, Observer};

use crate::support::{LONGEST, PATIENCE, all_up, builder, confirmed, delete, eventually, ms, once, servers, urls};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Takes the lines but for those that come at any time.
    fn take(&self) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        lines.into_iter().filter(|line| !line.contains("vote") && !line.contains("renewed")).collect()
    }

    fn has(&self, part: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line.contains(part))
    }
}

impl Observer for Log {
    fn acquired(&self, key: &str, token: u64, waited: Duration) {
        assert!(waited < PATIENCE);
        self.add(format!("{key} acquired {token}"));
    }

    fn failed(&self, key: &str, error: &AcquireError) {
        self.add(format!("{key} failed: {error}"));
    }

    fn renewed(&self, key: &str, took: Option<Duration>) {
        self.add(format!("{key} renewed: {}", took.is_some()));
    }

    fn lost(&self, key: &str, token: u64, why: Lost) {
        self.add(format!("{key} lost {token}: {why:?}"));
    }

    fn released(&self, key: &str, token: u64, held: Duration) {
        assert!(held < PATIENCE);
        self.add(format!("{key} released {token}"));
    }

    fn nodes_changed(&self, nodes: &[Node]) {
        let votes = nodes.iter().filter(|node| node.state == NodeState::Up).count();
        self.add(format!("{votes} of {} vote", nodes.len()));
    }
}

#[tokio::test]
async fn each_event_is_reported_once() {
    let servers = servers(3);
    let log = Log::default();
    let locker = builder(&servers).observer(log.clone()).build().unwrap();
    eventually("all nodes to vote", || log.has("3 of 3 vote")).await;
    assert!(log.has("0 of 3 vote"));

    let guard = once(&locker, "k").ttl(ms(600)).acquire().await.unwrap();
    let token = guard.token();
    let error = once(&locker, "k").acquire().await.unwrap_err();
    eventually("a renewal", || log.has("k renewed: true")).await;
    guard.release().await;
    assert_eq!(
        log.take(),
        [format!("k acquired {token}"), format!("k failed: {error}"), format!("k released {token}")]
    );

    let guard = once(&locker, "k").acquire().await.unwrap();
    let token = guard.token();
    delete(&servers, "k");
    let lost = guard.lost().await;
    assert_eq!(lost, Lost::Missing);
    drop(guard);
    assert_eq!(log.take(), [format!("k acquired {token}"), format!("k lost {token}: Missing")]);

    let error = once(&locker, "").acquire().await.unwrap_err();
    assert_eq!(log.take(), [format!(" failed: {error}")], "also if nothing was sent");
    let error = once(&locker, "k").acquire_blocking().unwrap_err();
    assert_eq!(log.take(), [format!("k failed: {error}")], "also in a runtime, where it is an error");

    let guard = once(&locker, "k").ttl(LONGEST).max_hold(ms(50)).acquire().await.unwrap();
    let token = guard.token();
    assert_eq!(guard.lost().await, Lost::MaxHold);
    guard.release().await;
    assert_eq!(log.take(), [format!("k acquired {token}"), format!("k lost {token}: MaxHold")]);
}

/// Shuts its locker down when a request has got its lock, and waits until the servers know.
#[derive(Clone, Default)]
struct Closing {
    log: Log,
    locker: Arc<OnceLock<Locker>>,
}

impl Observer for Closing {
    fn acquired(&self, key: &str, token: u64, waited: Duration) {
        let locker = self.locker.get().unwrap().clone();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime().block_on(locker.shutdown())).join().unwrap();
        self.log.acquired(key, token, waited);
    }

    fn lost(&self, key: &str, token: u64, why: Lost) {
        self.log.lost(key, token, why);
    }
}

/// Otherwise a metric of the locks that are held would never fall.
#[tokio::test]
async fn a_lock_that_a_shutdown_ends_at_once_is_reported_as_acquired_and_then_as_lost() {
    let servers = servers(3);
    let observer = Closing::default();
    let locker = builder(&servers).observer(observer.clone()).build().unwrap();
    all_up(&locker).await;
    assert!(observer.locker.set(locker.clone()).is_ok());
    let guard = once(&locker, "k").acquire().await.unwrap();
    let token = guard.token();
    assert_eq!(guard.check(), Err(Lost::Closed));
    drop(guard);
    assert_eq!(observer.log.take(), [format!("k acquired {token}"), format!("k lost {token}: Closed")]);
}

/// Its methods do what a program may get wrong.
#[derive(Clone, Default)]
struct Careless {
    panics: bool,
    locker: Arc<OnceLock<Locker>>,
}

impl Careless {
    fn reported(&self) {
        if let Some(locker) = self.locker.get() {
            assert_eq!(locker.nodes().len(), 3);
            locker.lock("another").check().unwrap();
        }
        assert!(!self.panics, "planted");
    }
}

impl Observer for Careless {
    fn acquired(&self, _: &str, _: u64, _: Duration) {
        self.reported();
    }

    fn failed(&self, _: &str, _: &AcquireError) {
        self.reported();
    }

    fn renewed(&self, _: &str, _: Option<Duration>) {
        self.reported();
    }

    fn lost(&self, _: &str, _: u64, _: Lost) {
        self.reported();
    }

    fn released(&self, _: &str, _: u64, _: Duration) {
        self.reported();
    }

    fn nodes_changed(&self, _: &[Node]) {
        self.reported();
    }
}

/// Without the catch, the last panic ends the whole process: it comes while another one unwinds.
#[tokio::test]
async fn an_observer_that_panics_costs_no_lock_and_no_process() {
    let servers = servers(3);
    let locker = builder(&servers).observer(Careless { panics: true, ..Careless::default() }).build().unwrap();
    locker.ready(PATIENCE).await.unwrap();
    let guard = locker.lock("k").ttl(ms(900)).wait(PATIENCE).acquire().await.unwrap();
    once(&locker, "k").acquire().await.unwrap_err();
    // Several renewals.
    tokio::time::sleep(ms(1200)).await;
    assert_eq!(guard.check(), Ok(guard.token()));
    let task = tokio::spawn(async move {
        let _guard = guard;
        panic!("planted");
    });
    assert!(task.await.unwrap_err().is_panic());
    once(&locker, "k").acquire().await.unwrap().release().await;
}

#[tokio::test]
async fn an_observer_may_call_the_locker() {
    let servers = servers(3);
    let observer = Careless::default();
    let locker = builder(&servers).observer(observer.clone()).build().unwrap();
    assert!(observer.locker.set(locker.clone()).is_ok());
    // Within a time, because a report that waits for itself would hold up this test for ever.
    tokio::time::timeout(PATIENCE, all_up(&locker)).await.unwrap();
    let guard = locker.lock("k").wait(PATIENCE).acquire().await.unwrap();
    once(&locker, "k").acquire().await.unwrap_err();
    eventually("the lock on every server", || confirmed(&servers, "k") == 3).await;
    servers[0].process().kill().unwrap();
    eventually("the node to be down", || locker.nodes()[0].state == NodeState::Down).await;
    guard.verify().await.unwrap();
    guard.release().await;
}

/// What a subscriber writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn each_lock_has_a_span_in_which_its_work_runs() {
    let (written, servers) = (Written::default(), servers(3));
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    // For all threads: with a subscriber of this thread only, a span that another test met first would stay disabled.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let locker = builder(&servers).build().unwrap();
    all_up(&locker).await;
    let guard = locker.lock("traced").wait(PATIENCE).acquire().await.unwrap();
    let span = format!("lock{{key=\"traced\" token={}}}", guard.token());
    guard.run(async { tracing::info!("at work") }).await.unwrap();
    let line = |part: &str| written.text().lines().any(|line| line.contains(&span) && line.contains(part));
    assert!(line("at work") && !line("close"), "{}", written.text());
    guard.release().await;
    eventually("the end of the span", || line("close")).await;

    // What the connections log is in the words of a program too.
    let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
    let secured = RedisServer::start_with(&options).unwrap();
    let _refused = Locker::builder(urls(std::slice::from_ref(&secured))).single_node().build().unwrap();
    eventually("the refusal", || written.text().contains("in credentials() or in the URLs")).await;
    assert!(!written.text().contains("RedisQuorum"), "{}", written.text());
}
