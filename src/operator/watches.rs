//! The watches: each follows the objects of one kind and sends their events to one receiver.

use redislease_plan::engine::Watched;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use redislease_lock::contain::contained;
use redislease_lock::nodes::random::Random;
use redislease_plan::index::ListCount;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::kube_api;
use super::merge::{Merged, Open, Shown, merge};
use super::trimmed::{Object, Trimmed};
use super::unreadable::Unreadable;
use crate::http::Part;
use crate::locked::locked;
use crate::metrics::operator::OperatorMetrics;

/// The idle timeout of a watch in seconds, after which a dead connection is noticed.
const WATCH_SECONDS: u32 = 45;

/// How long a watch waits at most for the first list of another kind.
const OTHERS_FIRST: Duration = Duration::from_secs(5);

/// The capacity of the channel of a watch with few events.
pub(super) const AHEAD: usize = 64;

/// The namespaces of leases, pods and workloads.
pub(super) struct Namespaces {
    pub client: Client,
    pub chosen: Vec<String>,
}

impl Namespaces {
    /// One API for each watched namespace, or one API for all namespaces if none is configured.
    pub fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self.chosen.as_slice() {
            [] => vec![Api::all(self.client.clone())],
            chosen => chosen.iter().map(|namespace| Api::namespaced(self.client.clone(), namespace)).collect(),
        }
    }
}

/// The objects to watch.
pub(super) struct Objects<T> {
    pub apis: Vec<Api<T>>,
    pub kind: &'static str,
    /// Counts panics.
    pub metrics: OperatorMetrics,
    /// Reports objects that cannot be read.
    pub unreadable: Unreadable,
    /// Completed with the first complete list.
    pub listed: Option<Part>,
    /// Counts the lists.
    pub lists: Option<ListCount>,
    /// Cancelled with the first complete list.
    pub before: Option<CancellationToken>,
    /// The watch begins when this is cancelled, or after five seconds.
    pub after: Option<CancellationToken>,
}

impl<T> Objects<T> {
    /// All objects of a kind, through these APIs. Panics are counted in `metrics`.
    pub fn all(apis: Vec<Api<T>>, kind: &'static str, metrics: &OperatorMetrics) -> Self {
        let (metrics, unreadable) = (metrics.clone(), Unreadable::default());
        Self { apis, kind, metrics, unreadable, listed: None, lists: None, before: None, after: None }
    }
}

/// Follows the objects until `stop` or until the receiver is dropped. `facts` extracts the relevant part of an object. A
/// malformed object, or one for which `facts` panics, is logged and does not affect others.
pub(super) async fn follow<K: Object, F>(
    mut objects: Objects<Trimmed<K>>,
    facts: impl Fn(K) -> F,
    out: Sender<Watched<F>>,
    stop: CancellationToken,
) {
    let (kind, metrics) = (objects.kind, objects.metrics.clone());
    let unreadable = std::mem::take(&mut objects.unreadable);
    follow_objects(objects, |object| whole(object, kind, &unreadable, &metrics, &facts), out, stop).await;
}

/// As [`follow`], for the metadata of the objects: the API server sends nothing else.
pub(super) async fn follow_metadata<K, F>(
    objects: Objects<PartialObjectMeta<K>>,
    facts: impl Fn(ObjectMeta) -> F,
    out: Sender<Watched<F>>,
    stop: CancellationToken,
) where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (kind, metrics) = (objects.kind, objects.metrics.clone());
    let read = |PartialObjectMeta { metadata, .. }| {
        let name = identity(&metadata);
        facts_of(kind, &metrics, name, || facts(metadata))
    };
    follow_objects(objects, read, out, stop).await;
}

async fn follow_objects<T, F>(
    objects: Objects<T>,
    read: impl Fn(T) -> Read<F>,
    out: Sender<Watched<F>>,
    stop: CancellationToken,
) where
    T: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let Objects { apis, kind, mut listed, lists, before, after, .. } = objects;
    if let Some(first) = after
        && !others_listed(&first, OTHERS_FIRST, &stop).await
    {
        return;
    }
    let namespaces: Vec<_> = apis.iter().map(|api| api.namespace().unwrap_or_default().to_owned()).collect();
    let open = apis.into_iter().map(|api| {
        // It outlives the stream.
        let backoff = Arc::<Mutex<Backoff>>::default();
        let begin = move || {
            let (api, path) = (api.clone(), api.resource_url().to_owned());
            let open = move || watcher(api.clone(), watcher::Config::default().timeout(WATCH_SECONDS));
            paced(open, kind, path, Arc::clone(&backoff)).boxed()
        };
        Box::new(begin) as Open<_>
    });
    let mut events = merge(open.collect()).boxed();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        let event = match event {
            None => return,
            Some(Merged::Event(event)) => event,
            Some(Merged::Unlisted(index)) => {
                if out.send(Watched::Unlisted(namespaces[index].clone())).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let is_list = matches!(event, Event::InitDone);
        match (&event, &lists) {
            (Event::Init, Some(lists)) => lists.begin(),
            (Event::InitDone, Some(lists)) => lists.end(),
            _ => {}
        }
        if out.send(watched(event, &read)).await.is_err() {
            return;
        }
        if is_list {
            if let Some(listed) = listed.take() {
                listed.done();
            }
            before.iter().for_each(CancellationToken::cancel);
        }
    }
}

/// Waits until `first` is cancelled, at most for `most`. Returns whether to go on: `stop` ends the wait.
async fn others_listed(first: &CancellationToken, most: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = first.cancelled() => true,
        () = tokio::time::sleep(most) => true,
    }
}

/// Whether the API server may have been restored from a backup before it serves this watch again. A restored server accepts a
/// watch from a resource version that it has yet to reach, and sends no event until then. A full list also costs much, so a
/// watch that a healthy server closes or delays goes on from its version.
fn is_outage(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            // A server that has lost its etcd answers 429 until it has read everything again.
            status.code >= 500 || (status.code == 429 && status.message.contains("initializing"))
        }
        watcher::Error::WatchStartFailed(_) => true,
        _ => false,
    }
}

/// Whether the API server refuses the list.
fn is_refusal(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

/// The events of what `open` opens, with a pause after each error. After an outage of the API server it lists again. The pauses grow
/// until a list is complete and the watch after it works.
fn paced<T: Send, S: Stream<Item = Result<Event<T>, watcher::Error>> + Send>(
    open: impl Fn() -> S + Clone + Send,
    kind: &'static str,
    path: String,
    backoff: Arc<Mutex<Backoff>>,
) -> impl Stream<Item = Shown<T>> + Send {
    let state = (Box::pin(open()), Random::new(), backoff);
    stream::unfold(state, move |(mut results, mut random, backoff)| {
        let (path, open) = (path.clone(), open.clone());
        async move {
            let event = loop {
                let error = match results.next().await? {
                    Ok(event) => break event,
                    Err(error) => error,
                };
                if is_outage(&error) {
                    results = Box::pin(open());
                }
                let refused = is_refusal(&error);
                let error = kube_api::causes(&error);
                let (pause, warn) = locked(&backoff).failed(Instant::now(), random.entropy().0);
                if warn {
                    tracing::warn!(kind, path, %error, "The watch broke off and restarts.");
                } else {
                    tracing::debug!(kind, path, %error, ?pause, "The watch cannot start; retrying after the pause.");
                }
                tokio::time::sleep(pause).await;
                if refused {
                    return Some((Shown::Refused, (results, random, backoff)));
                }
            };
            // The first page of a list is not a success: the second one may fail repeatedly.
            let recovered = match event {
                Event::Init | Event::InitApply(_) => false,
                Event::InitDone => locked(&backoff).listed(Instant::now()),
                Event::Apply(_) | Event::Delete(_) => locked(&backoff).succeeded(),
            };
            if recovered {
                tracing::info!(kind, path, "The watch works again.");
            }
            Some((Shown::Event(event), (results, random, backoff)))
        }
    })
}

/// The facts about an object, or the metadata of a malformed object.
type Read<F> = Result<Box<F>, Box<ObjectMeta>>;

fn whole<K: Object, F>(
    Trimmed(object): Trimmed<K>,
    kind: &str,
    unreadable: &Unreadable,
    metrics: &OperatorMetrics,
    facts: impl Fn(K) -> F,
) -> Read<F> {
    match object {
        Ok(object) => {
            let name = identity(object.meta());
            facts_of(kind, metrics, name, || facts(object))
        }
        Err(malformed) => {
            unreadable.report::<K>(&malformed);
            Err(Box::new(malformed.metadata))
        }
    }
}

/// The facts about one object. A panic affects only this object.
fn facts_of<F>(kind: &str, metrics: &OperatorMetrics, name: ObjectMeta, facts: impl FnOnce() -> F) -> Read<F> {
    contained(|| Box::new(facts())).map_err(|panicked| {
        metrics.panicked();
        let (namespace, of) = (name.namespace.as_deref().unwrap_or_default(), name.name.as_deref().unwrap_or_default());
        tracing::error!(kind, namespace, name = of, panic = %panicked, "An object is ignored: its facts could not be read.");
        Box::new(name)
    })
}

/// The part of the metadata that says which object it is, and in which version.
fn identity(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        ..ObjectMeta::default()
    }
}

fn watched<T, F>(event: Event<T>, read: impl Fn(T) -> Read<F>) -> Watched<F> {
    match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(object) | Event::InitApply(object) => read(object).map_or_else(Watched::Unreadable, Watched::Seen),
        Event::Delete(object) => read(object).map_or_else(Watched::DeletedUnreadable, Watched::Deleted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::panics::Panics;
    use redislease_plan::election::PodObject;

    /// Two lists that fail at their second page, and then a third one, which is complete or not. Returns the pause of a failure so much
    /// later.
    async fn pause_after(third: Option<Event<()>>, later: Duration) -> Duration {
        let failed = || [Ok(Event::Init), Ok(Event::InitApply(())), Err(watcher::Error::NoResourceVersion)];
        let results = failed().into_iter().chain(failed()).chain([Ok(Event::Init), Ok(Event::InitApply(()))]);
        let results = Mutex::new(Some(results.chain(third.map(Ok)).collect::<Vec<_>>()));
        let backoff = Arc::<Mutex<Backoff>>::default();
        let open = || stream::iter(results.lock().unwrap().take().expect("the watch is opened once"));
        let events = paced(open, "Pod", "/api".to_owned(), Arc::clone(&backoff));
        events.for_each(|_| std::future::ready(())).await;
        // Without jitter.
        backoff.lock().unwrap().failed(Instant::now() + later, u64::MAX / 2 + 1).0
    }

    /// Whether a watch that could not be opened because of this answer lists again.
    async fn lists_again(answer: kube::Error) -> bool {
        let opened = Mutex::new(vec![
            vec![Ok(Event::Init)],
            vec![
                Ok(Event::Init),
                Ok(Event::InitDone),
                Err(watcher::Error::WatchStartFailed(answer)),
                Ok(Event::Delete(())),
            ],
        ]);
        let open = || stream::iter(opened.lock().unwrap().pop().expect("at most one further list"));
        let events: Vec<_> = paced(open, "Pod", "/api".to_owned(), Arc::default()).collect().await;
        matches!(events.last(), Some(Shown::Event(Event::Init)))
    }

    #[tokio::test]
    async fn a_watch_lists_again_after_an_outage_of_the_api_server() {
        let status = |code, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            kube::Error::Api(Box::new(status))
        };
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(lists_again(kube::Error::Service(Box::new(refused))).await);
        assert!(lists_again(status(503, "the server is shutting down")).await);
        assert!(lists_again(status(504, "Too large resource version: 812, current: 17")).await);
        assert!(lists_again(status(429, "storage is (re)initializing")).await);
        // A server that answers is not away: 10,000 objects are not listed again.
        assert!(!lists_again(status(429, "too many requests, please try again later")).await);
        assert!(!lists_again(status(403, "cannot watch")).await);
    }

    #[tokio::test]
    async fn a_watch_waits_for_the_first_list_of_another_kind_and_not_for_ever() {
        let (first, stop) = (CancellationToken::new(), CancellationToken::new());
        let long = Duration::from_hours(1);
        let began = Instant::now();
        let most = Duration::from_millis(50);
        assert!(others_listed(&first, most, &stop).await && began.elapsed() >= most);
        let ((), goes_on) = tokio::join!(async { first.cancel() }, others_listed(&first, long, &stop));
        assert!(goes_on);
        stop.cancel();
        assert!(!others_listed(&CancellationToken::new(), long, &stop).await);
    }

    #[test]
    fn an_object_whose_facts_panic_is_ignored_and_counted() {
        let registry = prometheus::Registry::new();
        let panics = Panics::register(&registry).unwrap();
        let metrics = OperatorMetrics::register(&registry, &[], &panics).unwrap();
        let read = |name: &str| {
            let pod = serde_json::json!({"metadata": {"name": name, "namespace": "n", "uid": "u"}, "spec": {}});
            let pod: Trimmed<PodObject> = serde_json::from_str(&pod.to_string()).unwrap();
            let facts = |pod: PodObject| {
                let name = pod.metadata.name.unwrap();
                assert_ne!(name, "b", "planned by the test");
                name
            };
            watched(Event::Apply(pod), |pod| whole(pod, "Pod", &Unreadable::default(), &metrics, facts))
        };
        assert!(matches!(read("a"), Watched::Seen(name) if *name == "a"));
        let Watched::Unreadable(b) = read("b") else { panic!("its facts are not known") };
        assert_eq!((b.name.as_deref(), b.namespace.as_deref(), b.uid.as_deref()), (Some("b"), Some("n"), Some("u")));
        assert!(matches!(read("c"), Watched::Seen(_)));
        assert_eq!(panics.operator.get(), 1);
    }

    #[tokio::test]
    async fn only_a_complete_list_resets_the_pause() {
        let soon = Duration::ZERO;
        assert_eq!(pause_after(None, soon).await, Duration::from_millis(400), "the first pages are no success");
        assert_eq!(
            pause_after(Some(Event::InitDone), soon).await,
            Duration::from_millis(400),
            "the watch did not work"
        );
        assert_eq!(pause_after(Some(Event::InitDone), Duration::from_mins(1)).await, Duration::from_millis(100));
    }
}
