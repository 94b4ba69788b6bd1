//! Waits until the created pods run.

use std::{
    collections::BTreeSet,
    sync::mpsc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};
use tokio::runtime::Runtime;

use super::board::{Following, follow};
use crate::{Error, Result};

/// Counts the running pods while they are created.
pub(super) struct PodsRunning {
    // Held until the count is dropped.
    _watch: Following,
    count: mpsc::Receiver<()>,
}

impl PodsRunning {
    pub fn watch(runtime: &Runtime, client: &Client) -> Self {
        let (running, count) = mpsc::channel();
        let mut seen = BTreeSet::new();
        let pods: Api<Pod> = Api::all(client.clone());
        let watch = follow(runtime, pods, Some("lease"), move |pod: &Pod, _| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Running") && seen.insert(pod.name_any()) {
                // The receiver is dropped when enough pods have been counted.
                let _ = running.send(());
            }
        });
        Self { _watch: watch, count }
    }

    /// Waits until `count` pods have run.
    ///
    /// # Errors
    /// Fewer run after `within`.
    pub fn wait(&self, count: usize, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        for running in 0..count {
            let left = deadline.saturating_duration_since(Instant::now());
            let late = |_| Error::not_in_time("all pods run", within, format!("{running} of {count} run"));
            self.count.recv_timeout(left).map_err(late)?;
        }
        Ok(())
    }
}
