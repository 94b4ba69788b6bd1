//! Runs the table of admission cases with the local CEL evaluator and with the validated types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::cel::{ValidationErrors, Validator, apply_defaults};
use serde_json::Value;

use super::{RedisLease, RedisQuorum, ValidLease, ValidQuorum, crd};

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

#[test]
fn printer_columns_are_as_documented() {
    let columns = |crd: CustomResourceDefinition, wide: bool| -> Vec<String> {
        crd.spec.versions[0]
            .additional_printer_columns
            .iter()
            .flatten()
            .filter(|column| (column.priority.unwrap_or(0) > 0) == wide)
            .map(|column| column.name.to_uppercase())
            .collect()
    };
    assert_eq!(columns(crd::redis_lease(), false), ["ACTIVE", "HOLDER", "CLUSTER", "TOKEN", "SINCE", "READY", "AGE"]);
    assert_eq!(
        columns(crd::redis_lease(), true),
        ["REASON", "LAST END", "QUORUM", "CANDIDATES", "TRANSITIONS", "NODE", "MESSAGE"]
    );
    assert_eq!(columns(crd::redis_quorum(), false), ["READY", "HEALTH", "VOTES", "LONGEST", "LEADER", "AGE"]);
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
