//! The watches: each follows the objects of one kind and sends their events to one receiver.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::engine::Watched;
use super::index::ListCount;
use super::kube_api;
use super::merge::{Open, merge};
use crate::http::Part;
use crate::nodes::random::Random;

/// The idle timeout of a watch in seconds, after which a dead connection is noticed.
const WATCH_SECONDS: u32 = 45;

/// Follows all objects of a kind through these APIs, until `stop` or until the receiver is dropped. `facts` extracts the
/// relevant part of an object. A malformed object is logged and does not affect others. `listed` is completed with the
/// first complete list; `lists` counts the lists.
pub(super) async fn follow<K, F>(
    apis: Vec<Api<DeserializeGuard<K>>>,
    kind: &'static str,
    facts: impl Fn(K) -> F,
    out: Sender<Watched<F>>,
    listed: Option<Part>,
    lists: Option<ListCount>,
    stop: CancellationToken,
) where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let open = apis.into_iter().map(|api| {
        let backoff = Arc::<Mutex<Backoff>>::default();
        Box::new(move || retried(api.clone(), kind, Arc::clone(&backoff)).boxed()) as Open<_>
    });
    let mut events = merge(open.collect()).boxed();
    let mut listed = listed;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        let is_list = matches!(event, Event::InitDone);
        match (&event, &lists) {
            (Event::Init, Some(lists)) => lists.begin(),
            (Event::InitDone, Some(lists)) => lists.end(),
            _ => {}
        }
        if out.send(read(event, kind, &facts)).await.is_err() {
            return;
        }
        if let Some(part) = listed.take_if(|_| is_list) {
            part.done();
        }
    }
}

/// The events of one watch. After an error it pauses and continues. `backoff` outlives the stream.
fn retried<K>(
    api: Api<DeserializeGuard<K>>,
    kind: &'static str,
    backoff: Arc<Mutex<Backoff>>,
) -> impl Stream<Item = Event<DeserializeGuard<K>>> + Send
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let path = api.resource_url().to_owned();
    let events = watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)).boxed();
    let state = (events, Random::new(), backoff);
    stream::unfold(state, move |(mut events, mut random, backoff)| {
        let path = path.clone();
        async move {
            let locked = || backoff.lock().unwrap_or_else(PoisonError::into_inner);
            let event = loop {
                let error = match events.next().await? {
                    Ok(event) => break event,
                    Err(error) => kube_api::causes(&error),
                };
                let (pause, warn) = locked().failed(random.entropy().0);
                if warn {
                    tracing::warn!(kind, path, %error, "The watch broke off and restarts.");
                } else {
                    tracing::debug!(kind, path, %error, ?pause, "The watch cannot start; retrying after the pause.");
                }
                tokio::time::sleep(pause).await;
            };
            // The first page of a list is not a success: the second one may fail repeatedly.
            let succeeded = !matches!(event, Event::Init | Event::InitApply(_));
            if succeeded && locked().succeeded() {
                tracing::info!(kind, path, "The watch works again.");
            }
            Some((event, (events, random, backoff)))
        }
    })
}

fn read<K, F>(event: Event<DeserializeGuard<K>>, kind: &str, facts: impl Fn(K) -> F) -> Watched<F> {
    let whole = |DeserializeGuard(object): DeserializeGuard<K>| match object {
        Ok(object) => Ok(Box::new(facts(object))),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind, namespace, name, error = %invalid.error, "A malformed object is ignored: correct it.");
            Err(Box::<ObjectMeta>::new(invalid.metadata))
        }
    };
    match event {
        Event::Init => Watched::ListBegins,
        Event::InitDone => Watched::ListEnds,
        Event::Apply(object) | Event::InitApply(object) => {
            whole(object).map_or_else(Watched::Unreadable, Watched::Seen)
        }
        Event::Delete(object) => whole(object).map_or_else(Watched::DeletedUnreadable, Watched::Deleted),
    }
}
