//! The labels of namespaces, which decide whether their leases may use a quorum.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::listing::Listing;
use super::watched::Watched;

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
    list: Listing<Arc<str>>,
}

impl NamespaceLabels {
    /// Takes an event of the watch. Returns the namespaces whose labels have changed.
    pub fn take(&mut self, event: Watched<NamespaceFacts>) -> Vec<Arc<str>> {
        match event {
            Watched::ListBegins => self.list.begins(),
            Watched::Seen(namespace) => {
                let NamespaceFacts { name, labels } = *namespace;
                self.list.contains([name.clone()]);
                let before = self.known.insert(name.clone(), labels);
                if before.as_ref() != self.known.get(&name) {
                    return vec![name];
                }
            }
            Watched::Deleted(namespace) => return self.forget(&namespace.name),
            Watched::Unreadable(metadata) | Watched::DeletedUnreadable(metadata) => {
                return self.forget(metadata.name.as_deref().unwrap_or_default());
            }
            // Namespaces are listed all together.
            Watched::Unlisted(_) => {}
            Watched::ListEnds => {
                let Some(list) = self.list.ends() else { return Vec::new() };
                return self.known.extract_if(.., |name, _| list.lacks(name)).map(|(name, _)| name).collect();
            }
        }
        Vec::new()
    }

    /// The labels become unknown: an unknown namespace ends no term.
    fn forget(&mut self, name: &str) -> Vec<Arc<str>> {
        self.known.remove_entry(name).into_iter().map(|(name, _)| name).collect()
    }

    /// The labels of a namespace; `None` while they are unknown.
    pub fn get(&self, name: &str) -> Option<&Labels> {
        self.known.get(name)
    }
}
