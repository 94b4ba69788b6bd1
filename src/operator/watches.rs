//! The three watches.
//!
//! Leases come first: the highest token of any status must be known before a node's counter can be seeded.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::House;
use super::directory;
use super::kube_api;
use super::patience::Patience;
use super::sweep;
use super::upkeep::{self, Change};
use crate::api::{RedisLease, RedisQuorum};
use crate::clock;
use crate::election::PodFacts;
use crate::http::{Part, Readiness};

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
    let lifeline = &house.lifeline;
    let leases = watch_leases(house.clone(), tasks.clone(), parts.leases, leases_listed);
    tasks.spawn(lifeline.lasting("the watch of RedisLeases", leases));
    tasks.spawn(lifeline.lasting("the watch of pods", watch_pods(house.clone(), parts.pods, pods_listed)));
    tasks.spawn({
        let house = house.clone();
        async move {
            if first_leases.await.is_err() {
                return;
            }
            tokio::join!(
                house
                    .lifeline
                    .lasting("the watch of RedisQuorums", watch_quorums(house.clone(), parts.quorums, changed)),
                house.lifeline.lasting("the upkeep of RedisQuorums", upkeep::run(house.clone(), quorums, parts.nodes)),
                house.lifeline.unbroken("the search for labels of deleted leases".to_owned(), async {
                    if first_pods.await.is_ok() {
                        sweep::run(house.clone()).await;
                    }
                })
            );
        }
    });
}

/// One object of an event.
enum Seen<K> {
    Whole(K),
    /// It cannot be read, but it is there.
    Malformed(Box<ObjectMeta>),
}

/// Follows all objects of a kind; a malformed one is named in the log and stops no other.
async fn follow<K>(house: &House, api: Api<DeserializeGuard<K>>, kind: &str, mut take: impl FnMut(Event<Seen<K>>))
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = watcher(api, config).boxed();
    let mut patience = Patience::default();
    loop {
        let event = tokio::select! {
            () = house.stop.cancelled() => return,
            event = events.try_next() => event,
        };
        match event {
            Ok(Some(event)) => {
                if !matches!(event, Event::Init) && patience.answered() {
                    tracing::info!(kind, "the watch goes on");
                }
                take(read(event, kind));
            }
            Ok(None) => return,
            Err(error) => {
                let (pause, said) = patience.failed();
                // Once in a while is enough to know; the rest is for who looks closely.
                if said {
                    tracing::warn!(kind, error = %kube_api::causes(&error), "the watch broke off and begins again");
                } else {
                    tracing::debug!(kind, error = %kube_api::causes(&error), ?pause, "the watch cannot begin yet");
                }
                tokio::select! {
                    () = house.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

impl<K: kube::Resource> Seen<K> {
    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Whole(object) => object.meta(),
            Self::Malformed(metadata) => metadata,
        }
    }
}

fn read<K>(event: Event<DeserializeGuard<K>>, kind: &str) -> Event<Seen<K>> {
    let read = |DeserializeGuard(object): DeserializeGuard<K>| match object {
        Ok(object) => Seen::Whole(object),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind, namespace, name, error = %invalid.error, "malformed object left as it is: correct it");
            Seen::Malformed(Box::new(invalid.metadata))
        }
    };
    match event {
        Event::Apply(object) => Event::Apply(read(object)),
        Event::Delete(object) => Event::Delete(read(object)),
        Event::InitApply(object) => Event::InitApply(read(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

async fn watch_leases(house: Arc<House>, tasks: TaskTracker, part: Part, first: tokio::sync::oneshot::Sender<()>) {
    let mut named = BTreeSet::new();
    let mut first = Some((part, first));
    // A lease that cannot be read is neither new nor gone: what is held goes on.
    let see = |lease: Seen<RedisLease>| match lease {
        Seen::Whole(lease) => house.directory.seen(&house, &tasks, lease),
        Seen::Malformed(lease) => house.directory.unreadable(&lease),
    };
    let api = Api::all(house.client.clone());
    follow::<RedisLease>(&house, api, "RedisLease", |event| match event {
        Event::Init => named.clear(),
        Event::InitApply(lease) => {
            named.insert(directory::name_of(lease.metadata()));
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
        Event::Delete(lease) => house.directory.gone(lease.metadata()),
    })
    .await;
}

async fn watch_pods(house: Arc<House>, part: Part, first: tokio::sync::oneshot::Sender<()>) {
    let mut first = Some((part, first));
    let api = Api::all(house.client.clone());
    follow::<Pod>(&house, api, "Pod", |event| match event {
        Event::Init => house.pods.list_begins(),
        Event::InitApply(Seen::Whole(pod)) | Event::Apply(Seen::Whole(pod)) => {
            house.pods.seen(PodFacts::from(&pod), clock::now());
        }
        Event::InitDone => {
            house.pods.list_ends();
            if let Some((part, first)) = first.take() {
                part.done();
                let _ = first.send(());
            }
        }
        Event::Delete(Seen::Whole(pod)) => house.pods.deleted(&PodFacts::from(&pod)),
        // Its end proves nothing that can be read.
        Event::Delete(Seen::Malformed(pod)) => {
            let ObjectMeta { namespace, uid, .. } = *pod;
            house.pods.missed(&namespace.unwrap_or_default(), &uid.unwrap_or_default());
        }
        Event::InitApply(Seen::Malformed(_)) | Event::Apply(Seen::Malformed(_)) => {}
    })
    .await;
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
            named.extend(quorum.metadata().name.clone());
            if let Seen::Whole(quorum) = quorum {
                tell(Change::Seen(Box::new(quorum)));
            }
        }
        Event::InitDone => {
            tell(Change::Listed(named.clone()));
            if let Some(part) = part.take() {
                part.done();
            }
        }
        Event::Apply(Seen::Whole(quorum)) => tell(Change::Seen(Box::new(quorum))),
        Event::Apply(Seen::Malformed(_)) => {}
        Event::Delete(quorum) => tell(Change::Gone(quorum.metadata().name.clone().unwrap_or_default())),
    })
    .await;
}
