//! Reads the leases, page by page.

use kube::api::ListParams;
use kube::core::ObjectList;
use kube::{Api, Client, ResourceExt as _};
use redislease_plan::api::{RedisLease, ValidLease};
use redislease_plan::election::takeover;

use super::scope::Scope;
use crate::operator::kube_api::{self, CallError};
use crate::operator::published::{TRIES, TRY_AGAIN};

/// The leases whose durations let them move when a replica of the operator fails. `None` without the kind: another finding says so.
pub(super) async fn at_risk(client: &Client, scope: &Scope) -> Option<Result<Vec<(String, String)>, String>> {
    let apis: Vec<Api<RedisLease>> = match scope.watched.as_slice() {
        [] => vec![Api::all(client.clone())],
        watched => watched.iter().map(|namespace| Api::namespaced(client.clone(), namespace)).collect(),
    };
    let mut found = Vec::new();
    for api in apis {
        match at_risk_of(&api, &mut found).await {
            Ok(()) => {}
            Err(CallError::NotFound) => return None,
            Err(error) => return Some(Err(error.to_string())),
        }
    }
    Some(Ok(found))
}

/// Adds the leases at risk, each with the reason. Nothing else of a page is kept.
async fn at_risk_of(api: &Api<RedisLease>, found: &mut Vec<(String, String)>) -> Result<(), CallError> {
    let at_risk = |lease: RedisLease| {
        // Why a spec is not valid, the conditions of the lease say.
        let risk = takeover::risk(&ValidLease::try_from(&lease).ok()?)?;
        Some((format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any()), risk))
    };
    let take = |items: Vec<_>| found.extend(items.into_iter().filter_map(at_risk));
    kube_api::each_page(ListParams::default(), |page| read(api, page), take).await
}

async fn read(api: &Api<RedisLease>, page: ListParams) -> Result<ObjectList<RedisLease>, CallError> {
    let mut tries = 1;
    loop {
        match kube_api::call(api.list(&page)).await {
            Err(CallError::Unanswered(_)) if tries < TRIES => tries += 1,
            done => return done,
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::RawQuery;
    use serde_json::json;

    use super::*;

    /// An API server with three pages of one lease, whose durations let it move.
    fn pages(queries: Arc<Mutex<Vec<String>>>) -> Client {
        let answer = async move |RawQuery(query): RawQuery| {
            let mut queries = queries.lock().unwrap();
            queries.push(query.unwrap_or_default());
            let number = queries.len();
            let spec = json!({
                "candidates": {"selector": {"matchLabels": {"app": "a"}}},
                "leaseDuration": "9s", "renewInterval": "2s", "gracePeriod": "1s",
            });
            json!({
                "apiVersion": "redislease.io/v1alpha1", "kind": "RedisLeaseList",
                "metadata": {"continue": if number < 3 { format!("page{number}") } else { String::new() }},
                "items": [{"metadata": {"name": format!("lease-{number}"), "namespace": "shop"}, "spec": spec}],
            })
            .to_string()
        };
        Client::new(Router::new().fallback(answer), "default")
    }

    #[tokio::test]
    async fn every_page_of_the_leases_is_read() {
        let queries = Arc::default();
        let found = at_risk(&pages(Arc::clone(&queries)), &Scope::default()).await.unwrap().unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["shop/lease-1", "shop/lease-2", "shop/lease-3"]);
        let queries = queries.lock().unwrap();
        assert!(queries.iter().all(|query| query.contains("limit=500")), "{queries:?}");
        let tokens: Vec<bool> = queries.iter().map(|query| query.contains("continue=page")).collect();
        assert_eq!(tokens, [false, true, true], "{queries:?}");
    }
}
