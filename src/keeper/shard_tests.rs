use super::*;
use crate::keeper::Observer;
use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config, OnDeadline, Renewal, Standing, TermId, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::quorum::Quorum;
use redislease_core::time::Drift;
use std::sync::Mutex;

/// The standings in the views, and their times.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<(Time, Standing)>>>);

impl Observer for Shown {
    fn renewed(&self, _: &Renewal, _: u64) {}
    fn changed(&self, view: &View) {
        self.0.lock().unwrap().push((clock::now(), view.standing.clone()));
    }
}

fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(2000),
        renew_interval: Millis(300),
        stop_budget: Millis(500),
        command_timeout: Millis(100),
        drift: Drift::STANDARD,
        backoff: Backoff { strategy: Strategy::None, min: Millis(10), max: Millis(10), limit: None, jitter: 0 },
        deadline: OnDeadline::Seal,
    }
}

#[tokio::test]
async fn a_shard_without_a_timer_still_keeps_its_deadlines() {
    let handle = ShardHandle::new();
    let shared = handle.0.clone();
    let views = Shown::default();
    let observer = Box::new(views.clone());
    // Without nodes, an adopted term becomes unconfirmed after one interval.
    let id = handle.open(Setup { nodes: None, keys: ["k".to_owned()].into(), config: config(), observer });
    let began = clock::now();
    let term = TermId { attempt: Attempt(7), token: Token(7), holder: Holder("pod".into()) };
    handle.send(id, Command::Adopt(term));
    let mut running = Shard::new(shared, IntCounter::new("panics", "p").unwrap());
    let uncertain = async {
        loop {
            let doubt = views
                .0
                .lock()
                .unwrap()
                .iter()
                .find_map(|(at, standing)| matches!(standing, Standing::Uncertain(_)).then_some(*at));
            if let Some(at) = doubt {
                return at;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let at = tokio::select! {
        () = running.run(Err(io::ErrorKind::Other.into())) => panic!("it ended"),
        at = uncertain => at,
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("{:?}", views.0.lock().unwrap()),
    };
    assert!(at >= began + config().renew_interval, "{:?}", at.since(began));
    assert!(running.alarm.is_none());
}
