//! The three watches, and the task that keeps quorums in line with their resources.
//!
//! Leases come first: the highest token of any status must be known before a node's counter can be seeded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::House;
use super::quorums::SECRET_EVERY;
use super::sweep;
use crate::api::{RedisLease, RedisQuorum};
use crate::clock;
use crate::http::{Part, Readiness};
use crate::plan::PodFacts;

/// A watch that died silently is noticed after so many seconds.
const WATCH_SECONDS: u32 = 45;

/// What is reported as missing until it has happened.
struct Parts {
    leases: Part,
    quorums: Part,
    pods: Part,
    nodes: Part,
}

/// Starts everything that watches.
pub(super) fn spawn(house: &Arc<House>, readiness: &Readiness, tasks: &TaskTracker) {
    let parts = Parts {
        leases: readiness.needs("leases: not listed yet"),
        quorums: readiness.needs("quorums: not listed yet"),
        pods: readiness.needs("pods: not listed yet"),
        nodes: readiness.needs("quorums: not every node was tried yet"),
    };
    let (leases_listed, first_leases) = tokio::sync::oneshot::channel();
    let (pods_listed, first_pods) = tokio::sync::oneshot::channel();
    let (changed, quorums) = mpsc::unbounded_channel();
    tasks.spawn(watch_leases(house.clone(), tasks.clone(), parts.leases, leases_listed));
    tasks.spawn(watch_pods(house.clone(), parts.pods, pods_listed));
    tasks.spawn({
        let house = house.clone();
        async move {
            if first_leases.await.is_err() {
                return;
            }
            tokio::join!(
                watch_quorums(house.clone(), parts.quorums, changed),
                keep_quorums(house.clone(), quorums, parts.nodes),
                async {
                    if first_pods.await.is_ok() {
                        sweep::run(house.clone()).await;
                    }
                }
            );
        }
    });
}

/// Follows all objects of a kind; a malformed one is named and left out, and stops no other.
async fn follow<K>(house: &House, api: Api<DeserializeGuard<K>>, kind: &str, mut take: impl FnMut(Event<K>))
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        let event = tokio::select! {
            () = house.stop.cancelled() => return,
            event = events.try_next() => event,
        };
        match event {
            Ok(Some(event)) => {
                if let Some(event) = well_formed(event, kind) {
                    take(event);
                }
            }
            Ok(None) => return,
            Err(error) => tracing::warn!(kind, %error, "the watch broke off and begins again"),
        }
    }
}

fn well_formed<K>(event: Event<DeserializeGuard<K>>, kind: &str) -> Option<Event<K>> {
    let read = |DeserializeGuard(object): DeserializeGuard<K>| {
        object
            .map_err(|invalid| {
                let name = invalid.metadata.name.clone().unwrap_or_default();
                let namespace = invalid.metadata.namespace.clone().unwrap_or_default();
                tracing::error!(kind, %namespace, %name, error = %invalid.error, "malformed object left as it is: correct it");
            })
            .ok()
    };
    match event {
        Event::Apply(object) => read(object).map(Event::Apply),
        Event::Delete(object) => read(object).map(Event::Delete),
        Event::InitApply(object) => read(object).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

async fn watch_leases(house: Arc<House>, tasks: TaskTracker, part: Part, first: tokio::sync::oneshot::Sender<()>) {
    let mut named = BTreeSet::new();
    let mut first = Some((part, first));
    let see = |lease: RedisLease| house.directory.seen(&house, &tasks, lease);
    let api = Api::all(house.client.clone());
    follow(&house, api, "RedisLease", |event| match event {
        Event::Init => named.clear(),
        Event::InitApply(lease) => {
            named.insert(super::directory::name_of(&lease));
            see(lease);
        }
        Event::InitDone => {
            house.directory.retain(&named);
            if let Some((part, first)) = first.take() {
                part.done();
                let _ = first.send(());
            }
        }
        Event::Apply(lease) => see(lease),
        Event::Delete(lease) => house.directory.gone(&lease),
    })
    .await;
}

async fn watch_pods(house: Arc<House>, part: Part, first: tokio::sync::oneshot::Sender<()>) {
    let mut first = Some((part, first));
    let api = Api::all(house.client.clone());
    follow::<Pod>(&house, api, "Pod", |event| match event {
        Event::Init => house.pods.list_begins(),
        Event::InitApply(pod) | Event::Apply(pod) => house.pods.seen(PodFacts::from(&pod), clock::now()),
        Event::InitDone => {
            house.pods.list_ends();
            if let Some((part, first)) = first.take() {
                part.done();
                let _ = first.send(());
            }
        }
        Event::Delete(pod) => house.pods.deleted(&PodFacts::from(&pod)),
    })
    .await;
}

/// What happened to the resources of quorums.
enum Change {
    Seen(Box<RedisQuorum>),
    Gone(String),
    /// A list is complete: these are all there are.
    Listed(BTreeSet<String>),
}

async fn watch_quorums(house: Arc<House>, part: Part, changed: mpsc::UnboundedSender<Change>) {
    let mut named = BTreeSet::new();
    let mut part = Some(part);
    let tell = |change| {
        // Whoever keeps the quorums has ended: so does this process.
        let _ = changed.send(change);
    };
    let api = Api::namespaced(house.client.clone(), house.quorums.namespace());
    follow::<RedisQuorum>(&house, api, "RedisQuorum", |event| match event {
        Event::Init => named.clear(),
        Event::InitApply(quorum) => {
            named.insert(quorum.name_any());
            tell(Change::Seen(Box::new(quorum)));
        }
        Event::InitDone => {
            tell(Change::Listed(named.clone()));
            if let Some(part) = part.take() {
                part.done();
            }
        }
        Event::Apply(quorum) => tell(Change::Seen(Box::new(quorum))),
        Event::Delete(quorum) => tell(Change::Gone(quorum.name_any())),
    })
    .await;
}

/// Keeps every quorum in line with its resource, and the resource's status in line with the nodes.
async fn keep_quorums(house: Arc<House>, mut changes: mpsc::UnboundedReceiver<Change>, part: Part) {
    let mut resources: BTreeMap<String, RedisQuorum> = BTreeMap::new();
    let mut part = Some(part);
    let mut listed = false;
    loop {
        let mut dirty: BTreeSet<String> = BTreeSet::new();
        let moved = house.quorums.any_node_moves();
        tokio::select! {
            () = house.stop.cancelled() => return,
            change = changes.recv() => {
                let mut next = change;
                while let Some(change) = next {
                    match change {
                        Change::Seen(quorum) => {
                            dirty.insert(quorum.name_any());
                            resources.insert(quorum.name_any(), *quorum);
                        }
                        Change::Gone(name) => {
                            resources.remove(&name);
                            house.quorums.forget(&name);
                        }
                        Change::Listed(names) => {
                            listed = true;
                            let gone: Vec<String> = resources.keys().filter(|name| !names.contains(*name)).cloned().collect();
                            for name in gone {
                                resources.remove(&name);
                                house.quorums.forget(&name);
                            }
                        }
                    }
                    next = changes.try_recv().ok();
                }
            }
            // What a node did is shown on its quorum, and may let leases begin.
            () = moved => {
                dirty.extend(resources.keys().cloned());
                house.quorums.changed();
            }
            // Secrets are read again, and what could not be written is tried again.
            () = tokio::time::sleep(SECRET_EVERY) => dirty.extend(resources.keys().cloned()),
        }
        for name in dirty {
            let Some(quorum) = resources.get(&name) else { continue };
            match house.quorums.reconcile(quorum).await {
                Ok(Some(answered)) => {
                    resources.insert(name, answered);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(quorum = %name, %error, "the API server did not take the quorum's status"),
            }
        }
        if listed {
            house.quorums.all_read();
        }
        if listed
            && house.quorums.evaluated()
            && let Some(part) = part.take()
        {
            part.done();
        }
    }
}
