//! Reads the leases, page by page.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::{Api, Client};
use redislease_plan::api::conditions::{ConditionReason, ConditionType, LeaseReady};
use redislease_plan::api::{RedisLease, ValidLease};
use redislease_plan::election::takeover;

use super::facts::LeaseFacts;
use super::scope::Scope;
use crate::operator::kube_api::{self, CallError};
use crate::operator::published::{TRIES, TRY_AGAIN};
use crate::operator::trimmed::{Malformed, Trimmed};

/// The leases that this version cannot read, those of which the operator says that the spec is invalid or names something that cannot be used, and those whose durations let them move when a replica
/// of the operator fails. `None` without the kind: another finding says so.
pub(super) async fn with_problems(client: &Client, scope: &Scope) -> Option<Result<LeaseFacts, String>> {
    let apis: Vec<Api<Trimmed<RedisLease>>> = match scope.watch_namespaces.as_slice() {
        [] => vec![Api::all(client.clone())],
        watched => watched.iter().map(|namespace| Api::namespaced(client.clone(), namespace)).collect(),
    };
    let mut found = LeaseFacts::default();
    for api in apis {
        match add_from(&api, scope, &mut found).await {
            Ok(()) => {}
            Err(error) if kube_api::lacks_kind(&error) => return None,
            Err(error) => return Some(Err(error.to_string())),
        }
    }
    Some(Ok(found))
}

/// Adds the leases with problems. Nothing else of a page is kept.
async fn add_from(api: &Api<Trimmed<RedisLease>>, scope: &Scope, found: &mut LeaseFacts) -> Result<(), CallError> {
    let mut add = |Trimmed(read): Trimmed<RedisLease>| match read {
        Ok(lease) if scope.quorum.as_ref().is_some_and(|only| *only != lease.spec.quorum_ref.name) => {}
        Ok(lease) => {
            let name = name_of(&lease.metadata);
            let ready = lease.status.as_ref().and_then(|status| status.condition(ConditionType::Ready));
            let is_current = |ready: &&Condition| ready.observed_generation == lease.metadata.generation;
            let invalid = [LeaseReady::InvalidSpec, LeaseReady::InvalidReference].map(LeaseReady::as_str);
            let invalid = ready.filter(is_current).filter(|ready| invalid.contains(&ready.reason.as_str()));
            if let Some(ready) = invalid {
                return found.invalid.push((name, ready.message.clone()));
            }
            let risk = ValidLease::try_from(&lease).ok().and_then(|valid| takeover::risk(&valid));
            found.at_risk.extend(risk.map(|risk| (name, risk)));
        }
        Err(Malformed { metadata, error }) => found.unreadable.push((name_of(&metadata), error)),
    };
    let take = |items: Vec<_>| items.into_iter().for_each(&mut add);
    kube_api::each_page(ListParams::default(), |page| read(api, page), take).await
}

fn name_of(metadata: &ObjectMeta) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}

async fn read(api: &Api<Trimmed<RedisLease>>, page: ListParams) -> Result<ObjectList<Trimmed<RedisLease>>, CallError> {
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

    /// An API server with three pages of one lease whose durations let it move, one of a newer version, and one that was invalid before its
    /// generation 2, which is the present one on the first page only.
    fn pages(queries: Arc<Mutex<Vec<String>>>) -> Client {
        let answer = async move |RawQuery(query): RawQuery| {
            let mut queries = queries.lock().unwrap();
            queries.push(query.unwrap_or_default());
            let number = queries.len();
            let spec = json!({
                "candidates": {"selector": {"matchLabels": {"app": "a"}}},
                "leaseDuration": "9s", "renewInterval": "2s", "gracePeriod": "1s",
            });
            let invalid = json!({"conditions": [{
                "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "too long", "observedGeneration": 2,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]});
            let newer = json!({"candidates": {}, "granularity": "Zone"});
            json!({
                "apiVersion": "redislease.io/v1alpha1", "kind": "RedisLeaseList",
                "metadata": {"continue": if number < 3 { format!("page{number}") } else { String::new() }},
                "items": [
                    {"metadata": {"name": format!("lease-{number}"), "namespace": "shop"}, "spec": spec},
                    {"metadata": {"name": format!("newer-{number}"), "namespace": "shop"}, "spec": newer},
                    {
                        "metadata": {"name": format!("invalid-{number}"), "namespace": "shop", "generation": 1 + number},
                        "spec": {"candidates": {"selector": {"matchLabels": {"app": "a"}}}}, "status": invalid,
                    },
                ],
            })
            .to_string()
        };
        Client::new(Router::new().fallback(answer), "default")
    }

    #[tokio::test]
    async fn every_page_of_the_leases_is_read() {
        let queries = Arc::default();
        let found = with_problems(&pages(Arc::clone(&queries)), &Scope::default()).await.unwrap().unwrap();
        let names = |found: &[(String, String)]| found.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&found.at_risk), ["shop/lease-1", "shop/lease-2", "shop/lease-3"]);
        assert_eq!(found.invalid, [("shop/invalid-1".to_owned(), "too long".to_owned())]);
        assert_eq!(names(&found.unreadable), ["shop/newer-1", "shop/newer-2", "shop/newer-3"]);
        let problem = &found.unreadable[0].1;
        assert_eq!(problem, "granularity: unknown variant `Zone`, expected `Pod` or `Cluster`");
        let queries = queries.lock().unwrap().clone();
        assert!(queries.iter().all(|query| query.contains("limit=500")), "{queries:?}");
        let tokens: Vec<bool> = queries.iter().map(|query| query.contains("continue=page")).collect();
        assert_eq!(tokens, [false, true, true], "{queries:?}");
        let other = Scope { quorum: Some("other".into()), ..Scope::default() };
        let found = with_problems(&pages(Arc::default()), &other).await.unwrap().unwrap();
        assert!(found.at_risk.is_empty() && found.invalid.is_empty(), "{found:?}");
    }
}
