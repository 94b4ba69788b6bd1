//! What admission says about good and bad objects, as one table. A real API server judges every case; the local CEL evaluator judges
//! those decided by a rule; the validated types judge those that are about one object alone.

mod lease;
mod quorum;

use serde_json::{Value, json};

/// An object, what it replaces, and what becomes of it.
pub struct Case {
    /// What the case is about: unique in the table.
    pub what: &'static str,
    /// The object that exists before; `None` for a creation.
    pub old: Option<Value>,
    /// The object that is sent.
    pub new: Value,
    /// Whether `new` goes to the status subresource.
    pub status: bool,
    /// `None`: admitted.
    pub refused: Option<Refusal>,
}

/// The only complaint about an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who complains.
    pub by: Judge,
    /// The field complained about.
    pub field: &'static str,
    /// The sentence. It is the whole complaint of a rule, and the end of one of the schema.
    pub says: &'static str,
}

/// Who refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// A CEL rule.
    Rule,
    /// The schema, which the local evaluator of rules does not know.
    Schema,
}

impl Case {
    /// Creation of an object that is as it should be.
    fn good(what: &'static str, new: Value) -> Self {
        Self { what, old: None, new, status: false, refused: None }
    }

    /// Creation of an object that breaks a rule.
    fn bad(what: &'static str, new: Value, field: &'static str, says: &'static str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Rule, field, says }), ..Self::good(what, new) }
    }

    /// Creation of an object that does not have the schema.
    fn malformed(what: &'static str, new: Value, field: &'static str, says: &'static str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Schema, field, says }), ..Self::good(what, new) }
    }

    /// The same as a change of `old`.
    fn changes(self, old: Value) -> Self {
        Self { old: Some(old), ..self }
    }

    /// The same as a change of the status of `old`.
    fn changes_status(self, old: Value) -> Self {
        Self { status: true, ..self.changes(old) }
    }
}

/// A `RedisLease` with what a user must write, changed by a JSON merge patch.
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

/// A `RedisQuorum` with what a user must write, changed by a JSON merge patch.
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
fn nodes(addresses: &[&str]) -> Value {
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

/// The whole table.
pub fn all() -> Vec<Case> {
    [
        lease::creations(),
        lease::candidates(),
        lease::durations(),
        lease::changes(),
        lease::statuses(),
        quorum::creations(),
        quorum::changes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
