//! The definitions that the API server publishes, compared with those of this program.

use std::time::Duration;

use axum::http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use redislease_plan::api::crd;
use serde_json::Value;

use super::kube_api::{self, CallError};

/// An API server publishes and stores a new kind some time after it was created.
pub const TRIES: u32 = 10;
pub const TRY_AGAIN: Duration = Duration::from_millis(500);

/// What to do about a definition that is missing or too old.
pub const APPLY: &str =
    "run `redislease crds | kubectl apply --server-side -f -`, or upgrade the chart with `crds.enabled`";

/// The API server does not drop unknown fields at this place.
const KEEPS_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";

/// A kind of this program and what the API server knows about it.
#[derive(Clone, Debug)]
pub struct KindFacts {
    pub kind: &'static str,
    /// The paths of the fields that the API server does not know, such as `spec.tls`; `None` if it does not know the kind.
    pub missing_fields: Result<Option<Vec<String>>, CallError>,
}

/// As [`kinds`], and waits for kinds that the API server does not know yet.
pub async fn kinds_soon(client: &Client) -> Vec<KindFacts> {
    let mut found = kinds(client).await;
    for _ in 1..TRIES {
        if found.iter().all(|kind| kind.missing_fields != Ok(None)) {
            break;
        }
        tokio::time::sleep(TRY_AGAIN).await;
        found = kinds(client).await;
    }
    found
}

/// Compares the fields of both kinds with those that the API server publishes.
pub async fn kinds(client: &Client) -> Vec<KindFacts> {
    let request = Request::get("/openapi/v3/apis/redislease.io/v1alpha1").body(Vec::new());
    let published = match request {
        Ok(request) => kube_api::call(client.request::<Value>(request)).await,
        Err(error) => Err(CallError::Refused(error.to_string())),
    };
    let kind = |(kind, crd): (&'static str, CustomResourceDefinition)| {
        let missing_fields = match &published {
            Ok(document) => Ok(missing_fields(document, kind, &crd)),
            Err(error) if kube_api::lacks_kind(error) => Ok(None),
            Err(error) => Err(error.clone()),
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
        add_field(&needed["properties"][part], known, part, part, &mut missing);
    }
    Some(missing)
}

/// Adds what `known` lacks of the field, at any depth. The items of a list and the values of a map have the path of the list or map.
fn add_field(needed: &Value, known: &Value, name: &str, path: &str, missing: &mut Vec<String>) {
    match known["properties"].get(name) {
        Some(known) => add_missing(needed, known, path, missing),
        None if known[KEEPS_UNKNOWN] == true => {}
        None => missing.push(path.to_owned()),
    }
}

fn add_missing(needed: &Value, known: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, field) in needed["properties"].as_object().into_iter().flatten() {
        add_field(field, known, name, &format!("{path}.{name}"), missing);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(needed) = needed.get(part)
            && (known.get(part).is_some() || known[KEEPS_UNKNOWN] != true)
        {
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
        let newer = document(|schema| schema["properties"]["spec"]["properties"]["new"] = json!({"type": "string"}));
        assert_eq!(missing_fields(&newer, "RedisQuorum", &crd::redis_quorum()), Some(Vec::new()));
        let same = document(|_| {});
        assert_eq!(missing_fields(&same, "RedisQuorum", &crd::redis_quorum()), Some(Vec::new()));
        assert_eq!(missing_fields(&same, "RedisLease", &crd::redis_lease()), None);

        let map = |fields: Value| json!({"additionalProperties": {"properties": fields}});
        let mut missing = Vec::new();
        add_missing(&map(json!({"a": {}, "b": {}})), &map(json!({"a": {}})), "spec.map", &mut missing);
        assert_eq!(missing, ["spec.map.b"]);
    }

    #[test]
    fn a_definition_that_keeps_unknown_fields_lacks_none() {
        for within in
            ["", "/properties/spec", "/properties/spec/properties/nodes/items", "/properties/spec/properties/nodes"]
        {
            let open = |schema: &mut Value| {
                *schema.pointer_mut(within).expect("the field") = json!({KEEPS_UNKNOWN: true});
            };
            let missing = missing_fields(&document(open), "RedisQuorum", &crd::redis_quorum());
            assert_eq!(missing, Some(Vec::new()), "{within}");
        }
    }
}
