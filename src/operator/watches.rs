//! The watches: each follows the objects of one kind and sends what it sees to whoever needs it.

use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt};
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
use crate::http::Part;
use crate::nodes::random::Random;

/// A watch that died silently is noticed after so many seconds.
const WATCH_SECONDS: u32 = 45;

/// Follows all objects of a kind until `stop` or until nobody listens. `facts` keeps of an object what is needed. A
/// malformed object is named in the log and stops no other. `listed` is done with the first complete list; `lists`
/// counts the lists.
pub(super) async fn follow<K, F>(
    api: Api<DeserializeGuard<K>>,
    kind: &'static str,
    facts: impl Fn(K) -> F,
    out: Sender<Watched<F>>,
    listed: Option<Part>,
    lists: Option<ListCount>,
    stop: CancellationToken,
) where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let mut random = Random::new();
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = watcher(api, config).boxed();
    let (mut backoff, mut listed) = (Backoff::default(), listed);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.try_next() => event,
        };
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                let (pause, warn) = backoff.failed(random.entropy().0);
                let error = kube_api::causes(&error);
                if warn {
                    tracing::warn!(kind, %error, "The watch broke off and begins again.");
                } else {
                    tracing::debug!(kind, %error, ?pause, "The watch cannot begin yet.");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                continue;
            }
        };
        // The first page of a list is no success: the second one may fail again and again.
        let succeeded = !matches!(event, Event::Init | Event::InitApply(_));
        if succeeded && backoff.succeeded() {
            tracing::info!(kind, "The watch goes on.");
        }
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

fn read<K, F>(event: Event<DeserializeGuard<K>>, kind: &str, facts: impl Fn(K) -> F) -> Watched<F> {
    let whole = |DeserializeGuard(object): DeserializeGuard<K>| match object {
        Ok(object) => Ok(Box::new(facts(object))),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(kind, namespace, name, error = %invalid.error, "A malformed object is left as it is: correct it.");
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
