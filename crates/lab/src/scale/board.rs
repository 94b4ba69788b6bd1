//! The leases as one watcher of the API server receives them, with the time of each change.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::{Api, Client, Resource, ResourceExt as _, api::DynamicObject, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::{runtime::Runtime, task::JoinHandle};

use super::objects::leases;
use crate::{Condition, api, poll};

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs [`api::follow`].
pub(super) fn follow<K>(
    runtime: &Runtime,
    objects: Api<K>,
    selector: Option<&str>,
    seen: impl FnMut(&K, bool) + Send + 'static,
) -> Following
where
    K: Resource<DynamicType: Clone + Send + Sync> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config { label_selector: selector.map(str::to_owned), ..watcher::Config::default() };
    let broken = |error: &watcher::Error| eprintln!("  a watch broke and is restarted: {error}");
    Following(runtime.spawn(api::follow(objects, config, seen, broken)))
}

/// The last version of a lease.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) active: bool,
    /// The pod in the status.
    pub(super) holder: Option<String>,
    pub(super) token: u64,
    /// When this token was first received with `Active=True`.
    pub(super) active_at: Option<Instant>,
    /// When it was last received as inactive, or with another token.
    moved_at: Option<Instant>,
}

/// All leases.
#[derive(Debug, Clone, Default)]
pub(super) struct Board(Arc<Mutex<BTreeMap<String, Row>>>);

impl Board {
    /// Watches all leases of the API server.
    pub(super) fn watch(runtime: &Runtime, client: &Client) -> (Self, Following) {
        let board = Self::default();
        let shown = board.clone();
        let following = follow(runtime, leases(client, None), None, move |lease, exists| shown.see(lease, exists));
        (board, following)
    }

    fn see(&self, lease: &DynamicObject, exists: bool) {
        let now = Instant::now();
        let key = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
        let mut rows = self.lock();
        if exists {
            rows.entry(key).or_default().see(lease, now);
        } else {
            rows.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last version of the lease.
    pub(super) fn row(&self, key: &str) -> Row {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// The number of leases.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The token of each lease.
    pub(super) fn tokens(&self) -> BTreeMap<String, u64> {
        self.lock().iter().map(|(key, row)| (key.clone(), row.token)).collect()
    }

    /// The number of leases that were inactive, or got another token, since then.
    pub(super) fn moved_since(&self, since: Instant) -> usize {
        self.lock().values().filter(|row| row.moved_at.is_some_and(|at| at >= since)).count()
    }

    /// Waits until every lease is active with a greater token than `before`; a lease that is not in `before` needs any
    /// token. Returns when the last of them was received, or how many are left after the timeout.
    pub(super) fn all_active(
        &self,
        count: usize,
        before: &BTreeMap<String, u64>,
        within: Duration,
    ) -> Result<Instant, usize> {
        let mut left = count;
        let all = || {
            let rows = self.lock();
            let is_active =
                |(key, row): &(&String, &Row)| row.active && row.token > before.get(*key).copied().unwrap_or_default();
            left = count.saturating_sub(rows.iter().filter(is_active).count());
            let last = rows.values().filter_map(|row| row.active_at).max().unwrap_or_else(Instant::now);
            if left == 0 { Ok(last) } else { Err(String::new()) }
        };
        poll(within, all).map_err(|_| left)
    }

    /// Waits until `wanted` accepts one lease.
    pub(super) fn wait(&self, key: &str, within: Duration, wanted: impl Fn(&Row) -> bool) -> Option<Row> {
        poll(within, || Some(self.row(key)).filter(|row| wanted(row)).ok_or_else(String::new)).ok()
    }
}

impl Row {
    /// Handles an event of the watch.
    fn see(&mut self, lease: &DynamicObject, now: Instant) {
        let status = &lease.data["status"];
        let token = status["fencingToken"].as_u64().unwrap_or_default();
        self.active = Condition::is_true(&lease.data, "Active");
        if !self.active || token != self.token {
            self.moved_at = Some(now);
            self.active_at = None;
        }
        self.token = token;
        self.active_at = self.active_at.or(self.active.then_some(now));
        self.holder = status["holder"]["pod"].as_str().map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, version: u64, token: u64, active: bool) -> DynamicObject {
        let status = if active { "True" } else { "False" };
        serde_json::from_value(json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisLease",
            "metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string()},
            "status": {
                "holder": {"pod": "x"},
                "fencingToken": token,
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "Active", "status": status}],
            },
        }))
        .expect("an object")
    }

    #[test]
    fn all_are_active_when_each_has_a_greater_token_than_before() {
        let board = Board::default();
        board.see(&lease("one", 1, 7, true), true);
        board.see(&lease("two", 2, 8, true), true);
        let before = board.tokens();
        assert!(board.all_active(2, &BTreeMap::new(), Duration::ZERO).is_ok());
        assert_eq!(board.all_active(3, &BTreeMap::new(), Duration::ZERO), Err(1), "one lease was not received yet");
        assert_eq!(board.all_active(2, &before, Duration::ZERO), Err(2));

        let since = Instant::now();
        board.see(&lease("one", 3, 7, false), true);
        board.see(&lease("one", 4, 9, true), true);
        board.see(&lease("one", 4, 9, true), true);
        assert_eq!(board.moved_since(since), 1);
        assert_eq!(board.all_active(2, &before, Duration::ZERO), Err(1));
        board.see(&lease("two", 5, 10, true), true);
        let last = board.all_active(2, &before, Duration::ZERO).expect("all are");
        assert_eq!(Some(last), board.row("a/two").active_at);
        assert!(board.wait("a/two", Duration::ZERO, |row| row.token == 10).is_some());
        assert!(board.wait("a/two", Duration::ZERO, |row| row.token == 11).is_none());

        board.see(&lease("two", 6, 10, true), false);
        assert_eq!(board.len(), 1);
    }
}
