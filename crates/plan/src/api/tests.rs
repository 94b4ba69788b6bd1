//! Runs the table of admission cases with the local CEL evaluator and with the validated types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::cel::{ValidationErrors, Validator, apply_defaults};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::lease_status::HandoverState;
use super::{RedisLease, RedisLeaseStatus, RedisQuorum, RedisQuorumStatus, ValidLease, ValidQuorum, crd};

#[path = "../../../../tests/kube/cases/mod.rs"]
#[allow(dead_code, reason = "the fields for subresources are used with a real API server only")]
mod cases;

use cases::Judge;

fn definition(object: &Value) -> CustomResourceDefinition {
    match object["kind"].as_str() {
        Some("RedisLease") => crd::redis_lease(),
        Some("RedisQuorum") => crd::redis_quorum(),
        other => panic!("no definition of {other:?}"),
    }
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().expect("a schema");
    serde_json::to_value(&schema.open_api_v3_schema).expect("a schema is JSON")
}

/// Removes nulls, as the API server does before it evaluates rules.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
        for field in fields.values_mut() {
            *field = without_nulls(field.take());
        }
    }
    value
}

#[test]
fn cel_rules_accept_and_reject_each_case() {
    for case in cases::all() {
        if matches!(&case.refused, Some(refusal) if refusal.by == Judge::Schema) {
            continue;
        }
        let schema = schema(&definition(&case.new));
        let stored = |object: &Value| apply_defaults(&schema, &without_nulls(object.clone()));
        let old = case.old.as_ref().map(stored);
        let complaints: Vec<(String, String)> = Validator::new()
            .validate(&schema, &stored(&case.new), old.as_ref())
            .err()
            .into_iter()
            .flat_map(ValidationErrors::into_vec)
            .map(|error| (error.field_path, error.message))
            .collect();
        let expected: Vec<(String, String)> =
            case.refused.iter().map(|refusal| (refusal.field.into(), refusal.says.clone())).collect();
        assert_eq!(complaints, expected, "{}", case.what);
    }
}

/// Validation rejects every object that admission rejects on creation, and no other.
#[test]
fn validation_agrees_with_admission() {
    for case in cases::all().iter().filter(|case| case.old.is_none()) {
        let object = apply_defaults(&schema(&definition(&case.new)), &case.new);
        let parsed = match object["kind"].as_str() {
            Some("RedisLease") => serde_json::from_value::<RedisLease>(object)
                .map_err(|error| error.to_string())
                .and_then(|lease| ValidLease::try_from(&lease).map(drop).map_err(|e| e.to_string())),
            _ => serde_json::from_value::<RedisQuorum>(object)
                .map_err(|error| error.to_string())
                .and_then(|quorum| ValidQuorum::try_from(&quorum).map(drop).map_err(|e| e.to_string())),
        };
        assert_eq!(parsed.is_err(), case.refused.is_some(), "{}: {parsed:?}", case.what);
    }
}

/// The API server and the operator fill in the same defaults.
#[test]
fn defaults_in_types_and_schema_agree() {
    for object in [cases::lease(serde_json::json!({})), cases::quorum(serde_json::json!({}))] {
        let filled = apply_defaults(&schema(&definition(&object)), &object);
        let read = match object["kind"].as_str() {
            Some("RedisLease") => serde_json::from_value::<RedisLease>(object).map(serde_json::to_value),
            _ => serde_json::from_value::<RedisQuorum>(object).map(serde_json::to_value),
        };
        let written = read.expect("the object reads").expect("the object is JSON");
        assert_eq!(written["spec"], filled["spec"]);
    }
}

/// `kubectl explain` shows `<empty>` for a field without a description.
#[test]
fn every_field_has_a_description() {
    fn check(path: &str, schema: &Value) {
        let description = schema["description"].as_str().unwrap_or_default();
        assert!(!description.is_empty(), "{path} has no description");
        assert!(!description.contains('\n'), "{path}: {description:?}");
        assert_eq!(schema.get("nullable"), None, "{path} may be null");
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            check(&format!("{path}.{name}"), property);
        }
        if schema["items"]["type"] == "object" {
            check(&format!("{path}[]"), &schema["items"]);
        }
    }
    for crd in crd::all() {
        check(&crd.spec.names.kind, &schema(&crd));
    }
}

/// Collects the messages of all rules; for a computed message, the text before the first value.
fn sentences(schema: &Value, found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let computed = || rule["messageExpression"].as_str().and_then(|text| text.split('\'').nth(1));
        let sentence = rule["message"].as_str().or_else(computed);
        found.push(sentence.unwrap_or_else(|| panic!("a rule without a message: {rule}")).to_owned());
    }
    for property in schema["properties"].as_object().into_iter().flat_map(|all| all.values()) {
        sentences(property, found);
    }
    if schema["items"].is_object() {
        sentences(&schema["items"], found);
    }
}

#[test]
fn every_rule_rejects_at_least_one_case() {
    let cases = cases::all();
    let mut all = Vec::new();
    for crd in crd::all() {
        sentences(&schema(&crd), &mut all);
    }
    assert!(all.len() > 25, "{all:#?}");
    for sentence in all {
        let seen =
            cases.iter().filter_map(|case| case.refused.as_ref()).any(|refusal| refusal.says.starts_with(&sentence));
        assert!(seen, "no case is rejected with: {sentence}");
    }
}

/// The paths of all fields and entries.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    let fields: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, field)| (key.clone(), field)).collect(),
        Value::Array(entries) => entries.iter().enumerate().map(|(index, entry)| (index.to_string(), entry)).collect(),
        _ => return,
    };
    for (key, field) in fields {
        found.push(format!("{path}/{key}"));
        paths(field, &format!("{path}/{key}"), found);
    }
}

/// Reads a status without each field in turn, and with a value of another type there. Nothing else is lost.
fn reads_every_part<T: Serialize + DeserializeOwned>(whole: &Value) {
    assert_eq!(serde_json::to_value(serde_json::from_value::<T>(whole.clone()).unwrap()).unwrap(), *whole);
    let mut found = Vec::new();
    paths(whole, "", &mut found);
    for path in found {
        let (parent, field) = path.rsplit_once('/').unwrap();
        let mut without = whole.clone();
        without.pointer_mut(parent).and_then(Value::as_object_mut).map(|fields| fields.remove(field));
        let mut with_another = whole.clone();
        *with_another.pointer_mut(&path).unwrap() = json!([{"another": true}]);
        let top = path.split('/').nth(1).unwrap();
        for status in [without, with_another] {
            let read = serde_json::from_value::<T>(status).unwrap_or_else(|error| panic!("{path}: {error}"));
            let mut read = serde_json::to_value(read).unwrap();
            if let Some(entries) = whole[top].as_array().filter(|entries| entries.len() > 1) {
                assert!(
                    read[top].as_array().map_or(0, Vec::len) + 1 >= entries.len() || path == format!("/{top}"),
                    "{path}"
                );
            }
            read[top] = whole[top].clone();
            assert_eq!(read, *whole, "{path}");
        }
    }
}

#[test]
fn a_handover_that_cannot_be_read_keeps_its_id() {
    let read =
        |handover: Value| serde_json::from_value::<RedisLeaseStatus>(json!({"handover": handover})).unwrap().handover;
    let newer = json!({"id": "i", "state": "Newer", "time": "2026-01-01T00:00:00Z", "message": "m"});
    for part in [newer, json!({"id": "i"})] {
        let part = read(part).unwrap();
        assert_eq!((part.id.as_str(), part.state), ("i", HandoverState::Unknown));
    }
    assert_eq!((read(json!({"state": "Running"})), read(Value::Null)), (None, None));
}

#[test]
fn an_unreadable_part_of_a_status_is_as_if_absent() {
    let time = "2026-01-01T00:00:00Z";
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "Why", "message": "m", "lastTransitionTime": time});
    let past = |token: u64| {
        json!({"fencingToken": token, "cluster": "c", "pod": "p", "acquireTime": time, "endTime": time,
            "reason": "HolderStopped"})
    };
    let conditions = [condition("Ready"), condition("Active")];
    reads_every_part::<RedisLeaseStatus>(&json!({
        "observedGeneration": 1, "attempt": "0a", "fencingToken": 9, "acquireTime": time, "transitions": 3,
        "holder": {"cluster": "c", "namespace": "n", "pod": "p", "podUID": "u"},
        "quorum": {"name": "default", "fingerprint": "f"},
        "lastTransition": {"time": time, "reason": "Acquired", "message": "m"},
        "history": [past(8), past(7)],
        "handover": {"id": "i", "state": "Running", "time": time, "message": "m"},
        "candidates": {"total": 2, "eligible": 1, "ineligible": [{"pod": "p", "reason": "NotReady"}]},
        "conditions": conditions,
    }));
    let node = |name: &str| json!({"name": name, "state": "Up"});
    reads_every_part::<RedisQuorumStatus>(&json!({
        "observedGeneration": 1, "fingerprint": "f", "votes": "2/2",
        "leader": {"instance": "i", "since": time, "transitions": 1},
        "nodes": [node("a"), node("b")], "conditions": conditions,
    }));
}
