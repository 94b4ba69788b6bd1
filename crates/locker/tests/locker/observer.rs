//! What a program learns for its metrics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redislease_locker::{AcquireError, Lost, Node, NodeState, Observer};

use crate::support::{LONGEST, PATIENCE, builder, eventually, ms, once, servers};

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
    for server in &servers {
        server.command(&["DEL", "redislease:lock:default/k"]).unwrap();
    }
    let lost = guard.lost().await;
    assert_eq!(lost, Lost::Missing);
    drop(guard);
    assert_eq!(log.take(), [format!("k acquired {token}"), format!("k lost {token}: Missing")]);

    let guard = once(&locker, "k").ttl(LONGEST).max_hold(ms(50)).acquire().await.unwrap();
    let token = guard.token();
    assert_eq!(guard.lost().await, Lost::MaxHold);
    guard.release().await;
    assert_eq!(log.take(), [format!("k acquired {token}"), format!("k lost {token}: MaxHold")]);
}
