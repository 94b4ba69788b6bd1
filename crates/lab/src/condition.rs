//! The conditions of objects.

use serde_json::Value;

/// A condition of a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason: one word.
    pub reason: String,
    /// The message: a sentence.
    pub message: String,
}

impl Condition {
    /// The condition of this type in the status of an object.
    pub fn of(object: &Value, kind: &str) -> Option<Self> {
        let conditions = object["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some(Self { status: text("status"), reason: text("reason"), message: text("message") })
    }

    /// Whether an object has the condition of this type, and its status is `True`.
    pub fn is_true(object: &Value, kind: &str) -> bool {
        Self::of(object, kind).is_some_and(|condition| condition.status == "True")
    }

    pub(crate) fn brief(object: &Value, kind: &str) -> String {
        Self::of(object, kind).map_or_else(
            || format!("{kind}=-"),
            |Self { status, reason, message }| format!("{kind}={status} ({reason}: {message})"),
        )
    }
}
