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

/// The fields of `spec` and `status` that the document lacks; `None` if it lacks the kind.
fn missing_fields(document: &Value, kind: &str, crd: &CustomResourceDefinition) -> Option<Vec<String>> {
    let known = document["components"]["schemas"].get(format!("io.redislease.v1alpha1.{kind}"))?;
    let schema = crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let needed = serde_json::to_value(schema).ok()?;
    let mut missing = Vec::new();
    for part in ["spec", "status"] {
        add_missing(&needed["properties"][part], &known["properties"][part], part, &mut missing);
    }
    Some(missing)
}

/// Adds the fields that `known` lacks, at any depth. The items of a list and the values of a map have the path of the list or map.
fn add_missing(needed: &Value, known: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, field) in needed["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match known["properties"].get(name) {
            Some(known) => add_missing(field, known, &path, missing),
            None => missing.push(path),
        }
    }
    for part in ["items", "additionalProperties"] {
        if let Some(needed) = needed.get(part) {
            add_missing(needed, &known[part], path, missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A document with the definition of RedisQuorum as this program has it, after `change`.
    fn document(change: impl FnOnce(&mut Value)) -> Value {
        let crd = crd::redis_quorum();
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let mut schema = serde_json::to_value(schema).unwrap();
        change(&mut schema);
        json!({"components": {"schemas": {"io.redislease.v1alpha1.RedisQuorum": schema}}})
    }

    #[test]
    fn an_older_definition_lacks_fields_at_any_depth() {
        let missing = |parent: &str, field: &str| {
            let change = |schema: &mut Value| {
                let fields = schema.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
                fields.remove(field).expect("the field");
            };
            missing_fields(&document(change), "RedisQuorum", &crd::redis_quorum()).unwrap()
        };
        for (parent, field, path) in [
            ("/properties/spec/properties", "tls", "spec.tls"),
            ("/properties/spec/properties/auth/properties/secretRef/properties", "name", "spec.auth.secretRef.name"),
            ("/properties/spec/properties/nodes/items/properties", "zone", "spec.nodes.zone"),
            ("/properties/status/properties", "votes", "status.votes"),
            ("/properties/status/properties/nodes/items/properties", "message", "status.nodes.message"),
        ] {
            assert_eq!(missing(parent, field), [path]);
        }
        let same = document(|_| {});
        assert_eq!(missing_fields(&same, "RedisQuorum", &crd::redis_quorum()), Some(Vec::new()));
        assert_eq!(missing_fields(&same, "RedisLease", &crd::redis_lease()), None);

        let map = |fields: Value| json!({"additionalProperties": {"properties": fields}});
        let mut missing = Vec::new();
        add_missing(&map(json!({"a": {}, "b": {}})), &map(json!({"a": {}})), "spec.map", &mut missing);
        assert_eq!(missing, ["spec.map.b"]);
    }
}
