//! The definitions that the API server publishes, compared with those of this program.

use std::time::Duration;

use axum::http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use redislease_plan::api::crd;
use serde_json::Value;

use super::facts::KindFacts;
use crate::operator::kube_api::{self, CallError};

/// An API server publishes and stores a new kind some time after it was created.
pub(super) const TRIES: u32 = 10;
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Compares the fields of both kinds with those that the API server publishes.
pub(super) async fn kinds(client: &Client) -> Vec<KindFacts> {
    let mut kinds = published_kinds(client).await;
    for _ in 1..TRIES {
        if kinds.iter().all(|kind| kind.missing_fields != Ok(None)) {
            break;
        }
        tokio::time::sleep(TRY_AGAIN).await;
        kinds = published_kinds(client).await;
    }
    kinds
}

async fn published_kinds(client: &Client) -> Vec<KindFacts> {
    let request = Request::get("/openapi/v3/apis/redislease.io/v1alpha1").body(Vec::new());
    let published = match request {
        Ok(request) => kube_api::call(client.request::<Value>(request)).await,
        Err(error) => Err(CallError::Refused(error.to_string())),
    };
    let kind = |(kind, crd): (&'static str, CustomResourceDefinition)| {
        let missing_fields = match &published {
            Ok(document) => Ok(missing_fields(document, kind, &crd)),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        KindFacts { kind, missing_fields }
    };
    [("RedisLease", crd::redis_lease()), ("RedisQuorum", crd::redis_quorum())].map(kind).into()
}

/// The fields of `spec` that the document lacks; `None` if it lacks the kind.
fn missing_fields(document: &Value, kind: &str, crd: &CustomResourceDefinition) -> Option<Vec<String>> {
    let schema = document["components"]["schemas"].get(format!("io.redislease.v1alpha1.{kind}"))?;
    let known = &schema["properties"]["spec"]["properties"];
    let schema = crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let fields = schema.properties.as_ref()?.get("spec")?.properties.as_ref()?;
    Some(fields.keys().filter(|field| known.get(field.as_str()).is_none()).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_older_definition_lacks_fields() {
        let document = |spec: Value| {
            let schema = json!({"properties": {"spec": {"properties": spec}}});
            json!({"components": {"schemas": {"io.redislease.v1alpha1.RedisQuorum": schema}}})
        };
        let crd = crd::redis_quorum();
        let missing = missing_fields(&document(json!({"nodes": {}, "keyPrefix": {}})), "RedisQuorum", &crd).unwrap();
        assert!(missing.contains(&"tls".to_owned()) && !missing.contains(&"nodes".to_owned()), "{missing:?}");
        assert_eq!(missing_fields(&document(json!({})), "RedisLease", &crd), None);
    }
}
