//! Reports objects that cannot be read: each version of an object once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use redislease_plan::status::{Notice, NoticeReason};

use super::kube_api::reference;
use super::trimmed::{Malformed, Object};
use super::writer::Writer;
use crate::locked::locked;

/// How many objects are remembered at most.
const CAPACITY: usize = 1000;

/// Reports the objects of one kind.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Sends an event too.
    writer: Option<Writer>,
    /// The version that was reported last, by UID.
    reported: Mutex<BTreeMap<String, Option<String>>>,
}

impl Unreadable {
    /// Reports objects with events too.
    pub fn with_events(writer: Writer) -> Self {
        Self { writer: Some(writer), ..Self::default() }
    }

    pub fn report<K: Object>(&self, Malformed { metadata, error }: &Malformed) {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let [name, namespace, uid] = [&metadata.name, &metadata.namespace, &metadata.uid].map(text);
        if !self.is_new(&uid, metadata.resource_version.as_ref()) {
            return;
        }
        let kind = K::kind(&());
        tracing::error!(%kind, namespace, name, %error, "A malformed object is ignored: correct it.");
        let Some(writer) = &self.writer else { return };
        let note = format!(
            "The operator ignores this version of the object, because it cannot read it: {error}. Correct the field, or update the operator."
        );
        let object = reference(&K::api_version(&()), &kind, &namespace, &name, &uid);
        writer.report_once(Notice { reason: NoticeReason::InvalidSpec, note, on_pods: Vec::new() }, object);
    }

    /// Whether this version was not reported before.
    fn is_new(&self, uid: &str, version: Option<&String>) -> bool {
        let mut reported = locked(&self.reported);
        if reported.len() >= CAPACITY {
            reported.clear();
        }
        reported.insert(uid.to_owned(), version.cloned()).is_none_or(|known| known.as_ref() != version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_an_object_is_new_once() {
        let unreadable = Unreadable::default();
        let new = |uid: &str, version: &str| unreadable.is_new(uid, Some(&version.to_owned()));
        assert_eq!(
            [new("a", "1"), new("a", "1"), new("b", "1"), new("a", "2"), new("a", "2")],
            [true, false, true, true, false]
        );
        assert!((0..2 * CAPACITY).all(|uid| new(&uid.to_string(), "1")));
        assert!(unreadable.reported.lock().unwrap().len() <= CAPACITY);
    }
}
