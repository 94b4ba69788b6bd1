//! Keeps every quorum in line with its resource, and the resource's status in line with the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use tokio::sync::mpsc;

use super::pace::Pace;
use super::quorums::{SECRET_EVERY, Shown};
use super::{House, QUORUM};
use crate::api::{RedisQuorum, RedisQuorumStatus};
use crate::http::Part;

/// Between two writes of one quorum's status, and before what did not succeed is tried again.
const PACE: Duration = Duration::from_secs(1);

/// What happened to the resources of quorums.
pub(super) enum Change {
    Seen(Box<RedisQuorum>),
    Gone(String),
    /// A list is complete: these are all there are.
    Listed(BTreeSet<String>),
}

/// Runs until the process stops.
pub(super) async fn run(house: Arc<House>, mut changes: mpsc::UnboundedReceiver<Change>, part: Part) {
    let mut part = Some(part);
    let mut upkeep = Upkeep {
        resources: BTreeMap::new(),
        listed: false,
        unread: BTreeSet::new(),
        unshown: BTreeSet::new(),
        written: BTreeMap::new(),
        paces: BTreeMap::new(),
    };
    let mut all_read = Instant::now();
    loop {
        let idle = upkeep.unread.is_empty() && upkeep.unshown.is_empty();
        let pause = if idle { SECRET_EVERY.saturating_sub(all_read.elapsed()) } else { PACE };
        let moved = house.quorums.any_node_moves();
        tokio::select! {
            () = house.stop.cancelled() => return,
            change = changes.recv() => {
                let mut next = change;
                while let Some(change) = next {
                    upkeep.take(&house, change);
                    next = changes.try_recv().ok();
                }
            }
            // What a node did is shown on its quorum, and may let leases begin.
            () = moved => {
                upkeep.all_again();
                house.quorums.changed();
            }
            // A quorum of another configuration waits for the last lease on the old one.
            () = house.quorums.is_let_go() => {}
            () = tokio::time::sleep(pause) => {}
        }
        if all_read.elapsed() >= SECRET_EVERY {
            upkeep.all_again();
            all_read = Instant::now();
        }
        let began = Instant::now();
        upkeep.read(&house).await;
        upkeep.show(&house, began).await;
        if upkeep.listed
            && house.quorums.evaluated()
            && let Some(part) = part.take()
        {
            part.done();
        }
    }
}

struct Upkeep {
    resources: BTreeMap<String, RedisQuorum>,
    listed: bool,
    /// What is to be brought in line with its resource and its secret.
    unread: BTreeSet<String>,
    /// What may show something else than it should.
    unshown: BTreeSet<String>,
    written: BTreeMap<String, Instant>,
    paces: BTreeMap<String, Pace<RedisQuorumStatus>>,
}

impl Upkeep {
    fn all_again(&mut self) {
        self.unread.extend(self.resources.keys().cloned());
    }

    fn take(&mut self, house: &House, change: Change) {
        match change {
            Change::Seen(quorum) => {
                self.unread.insert(quorum.name_any());
                self.resources.insert(quorum.name_any(), *quorum);
            }
            Change::Gone(name) => {
                self.resources.remove(&name);
                house.quorums.forget(&name);
            }
            Change::Listed(names) => {
                self.listed = true;
                let gone: Vec<String> = self.resources.keys().filter(|name| !names.contains(*name)).cloned().collect();
                for name in gone {
                    self.resources.remove(&name);
                    house.quorums.forget(&name);
                }
            }
        }
    }

    /// Every quorum is opened before any status is written: leases wait for it.
    async fn read(&mut self, house: &House) {
        for name in std::mem::take(&mut self.unread) {
            let Some(quorum) = self.resources.get(&name) else { continue };
            if unless_stopped(house, house.quorums.apply(quorum)).await == Some(false) {
                self.unread.insert(name.clone());
            }
            self.unshown.insert(name);
        }
        if self.listed {
            house.quorums.all_read();
        }
    }

    async fn show(&mut self, house: &House, began: Instant) {
        for name in std::mem::take(&mut self.unshown) {
            let Some(quorum) = self.resources.get(&name) else { continue };
            if self.written.get(&name).is_some_and(|written| written.elapsed() < PACE) {
                // Nodes that come and go are shown as they are by now.
                self.unshown.insert(name);
                continue;
            }
            let pace = self.paces.entry(name.clone()).or_default();
            let Some(shown) = unless_stopped(house, house.quorums.show(quorum, pace)).await else { return };
            house.metrics.reconciled(QUORUM, shown.is_ok() && !self.unread.contains(&name), began.elapsed());
            match shown {
                Ok(Shown::InOrder) => {}
                Ok(Shown::Written(answered)) => {
                    self.written.insert(name.clone(), Instant::now());
                    self.resources.insert(name, *answered);
                }
                Ok(Shown::Later) => {
                    self.unshown.insert(name);
                }
                Err(error) => {
                    tracing::warn!(quorum = %name, %error, "the API server did not take the quorum's status");
                    self.unshown.insert(name);
                }
            }
        }
    }
}

/// What waits for the API server does not keep the process from ending.
async fn unless_stopped<T>(house: &House, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = house.stop.cancelled() => None,
        done = work => Some(done),
    }
}
