//! The labels of namespaces, which decide whether their leases may use a quorum.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::listing::Listing;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// The relevant part of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct NamespaceFacts {
    pub name: Arc<str>,
    pub labels: Labels,
}

impl NamespaceFacts {
    /// A namespace without labels.
    pub fn unlabelled(name: &str) -> Self {
        Self { name: name.into(), labels: Labels::new() }
    }
}

impl From<ObjectMeta> for NamespaceFacts {
    fn from(metadata: ObjectMeta) -> Self {
        Self { name: metadata.name.unwrap_or_default().into(), labels: metadata.labels.unwrap_or_default() }
    }
}

/// The labels of all namespaces that were read.
#[derive(Debug, Default)]
pub(super) struct NamespaceLabels {
    known: BTreeMap<Arc<str>, Labels>,
    pub list: Listing<Arc<str>>,
}

impl NamespaceLabels {
    /// A namespace exists. Returns whether its labels have changed.
    pub fn seen(&mut self, facts: NamespaceFacts) -> bool {
        let NamespaceFacts { name, labels } = facts;
        self.list.contains([name.clone()]);
        let before = self.known.insert(name.clone(), labels);
        before.as_ref() != self.known.get(&name)
    }

    /// A namespace does not exist any more. Its labels become unknown: an unknown namespace ends no term.
    pub fn gone(&mut self, name: &str) -> bool {
        self.known.remove(name).is_some()
    }

    /// The list is complete. Returns the namespaces that it did not contain.
    pub fn list_ends(&mut self) -> Vec<Arc<str>> {
        let Some(list) = self.list.ends() else { return Vec::new() };
        self.known.extract_if(.., |name, _| list.lacks(name)).map(|(name, _)| name).collect()
    }

    /// The labels of a namespace; `None` while they are unknown.
    pub fn get(&self, name: &str) -> Option<&Labels> {
        self.known.get(name)
    }
}
