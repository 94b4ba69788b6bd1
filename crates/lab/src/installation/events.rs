//! Kubernetes events.

use std::time::Duration;

use serde_json::Value;

use super::installed::Installation;
use crate::Result;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Kind and name of the object that it is about.
    pub on: (String, String),
    /// The reason: one word.
    pub reason: String,
    /// `Normal` or `Warning`.
    pub kind: String,
    /// The sentence that `kubectl describe` shows.
    pub note: String,
}

impl Installation {
    /// All events of a namespace.
    ///
    /// # Errors
    /// [`Error::Answer`](crate::Error::Answer) when the API server does not answer.
    pub fn events(&self, namespace: &str) -> Result<Vec<Event>> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let events = self.control_plane().get(&path)?.unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let read = |event: &Value| Event {
            on: (text(&event["regarding"]["kind"]), text(&event["regarding"]["name"])),
            reason: text(&event["reason"]),
            kind: text(&event["type"]),
            note: text(&event["note"]),
        };
        Ok(events["items"].as_array().into_iter().flatten().map(read).collect())
    }

    /// Polls until an object of a kind and name has an event of a reason whose note contains some words.
    ///
    /// # Errors
    /// [`Error::NotInTime`](crate::Error::NotInTime) with the events of that object.
    pub fn wait_for_event(
        &self,
        namespace: &str,
        on: (&str, &str),
        reason: &str,
        says: &str,
        within: Duration,
    ) -> Result<Event> {
        let what = format!("event {reason} ({says}) on {} {namespace}/{}", on.0, on.1);
        self.wait_for(&what, within, || {
            let mut events = self.events(namespace)?;
            events.retain(|event| (event.on.0.as_str(), event.on.1.as_str()) == on);
            let found = events.iter().find(|event| event.reason == reason && event.note.contains(says));
            found.cloned().ok_or_else(|| format!("{events:?}"))
        })
    }
}
