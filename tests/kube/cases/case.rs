//! An admission case, and the objects that cases are made of.

use serde_json::{Value, json};

/// An object, the object that it replaces, and the expected result.
pub struct Case {
    /// The description of the case: unique in the table.
    pub what: &'static str,
    /// The existing object; `None` for a creation.
    pub old: Option<Value>,
    /// The object that is sent.
    pub new: Value,
    /// Whether `new` goes to the status subresource.
    pub status: bool,
    /// `None` if the object is admitted.
    pub refused: Option<Refusal>,
}

/// The only expected error for an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The validator that reports the error.
    pub by: Judge,
    /// The invalid field.
    pub field: &'static str,
    /// The message: the whole message of a rule, or the end of a schema message.
    pub says: String,
}

/// The validator of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// A CEL rule.
    Rule,
    /// The schema, which the local evaluator does not check.
    Schema,
}

impl Case {
    /// Creation of a valid object.
    pub fn good(what: &'static str, new: Value) -> Self {
        Self { what, old: None, new, status: false, refused: None }
    }

    /// Creation of an object that violates a rule.
    pub fn bad(what: &'static str, new: Value, field: &'static str, says: &str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Rule, field, says: says.to_owned() }), ..Self::good(what, new) }
    }

    /// Creation of an object with a field that must be a duration of at most an hour, and is not.
    pub fn not_a_duration(what: &'static str, new: Value, field: &'static str) -> Self {
        let name = field.trim_start_matches("spec.");
        let says = format!(
            "{name} must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms"
        );
        Self::bad(what, new, field, &says)
    }

    /// Creation of an object with a field that must be a DNS name, and is not.
    pub fn not_a_dns_name(what: &'static str, new: Value, field: &'static str) -> Self {
        let name = field.trim_start_matches("spec.").trim_start_matches("candidates.");
        let says = format!(
            "{name} must consist of lower-case letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit"
        );
        Self::bad(what, new, field, &says)
    }

    /// Creation of an object that violates the schema.
    pub fn malformed(what: &'static str, new: Value, field: &'static str, says: &str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Schema, field, says: says.to_owned() }), ..Self::good(what, new) }
    }

    /// The same as an update of `old`.
    pub fn changes(self, old: Value) -> Self {
        Self { old: Some(old), ..self }
    }

    /// The same as an update of the status of `old`.
    pub fn changes_status(self, old: Value) -> Self {
        Self { status: true, ..self.changes(old) }
    }
}

/// A `RedisLease` with the required fields, modified by a JSON merge patch.
pub fn lease(patch: Value) -> Value {
    let mut object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": "billing", "namespace": "default"},
        "spec": {"candidates": {"selector": {"matchLabels": {"app": "billing"}}}},
    });
    merge(&mut object, patch);
    object
}

/// A `RedisQuorum` with the required fields, modified by a JSON merge patch.
pub fn quorum(patch: Value) -> Value {
    let mut object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"nodes": nodes(&["redis-a:6379", "redis-b:6379", "redis-c:6379"])},
    });
    merge(&mut object, patch);
    object
}

/// Nodes `a`, `b`, ... at these addresses.
pub fn nodes(addresses: &[&str]) -> Value {
    addresses.iter().zip('a'..).map(|(address, name)| json!({"name": name.to_string(), "address": address})).collect()
}

fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    object.remove(&key);
                } else {
                    merge(object.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (object, patch) => *object = patch,
    }
}
