//! The events of a watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// One event of a watch.
#[derive(Debug)]
pub enum Watched<K> {
    /// A list begins.
    ListBegins,
    /// The object exists.
    Seen(Box<K>),
    /// The object exists and cannot be read.
    Unreadable(Box<ObjectMeta>),
    /// The last event of an object.
    Deleted(Box<K>),
    /// The last event of an object that cannot be read.
    DeletedUnreadable(Box<ObjectMeta>),
    /// The list that ends next lacks this namespace, because the API server refuses it: what is known about its objects stays.
    Unlisted(String),
    /// The list is complete.
    ListEnds,
}

impl<K> Watched<K> {
    /// The same event with facts about the object.
    pub fn map<F>(&self, facts: impl Fn(&K) -> F) -> Watched<F> {
        match self {
            Self::ListBegins => Watched::ListBegins,
            Self::Seen(object) => Watched::Seen(Box::new(facts(object))),
            Self::Unreadable(metadata) => Watched::Unreadable(metadata.clone()),
            Self::Deleted(object) => Watched::Deleted(Box::new(facts(object))),
            Self::DeletedUnreadable(metadata) => Watched::DeletedUnreadable(metadata.clone()),
            Self::Unlisted(namespace) => Watched::Unlisted(namespace.clone()),
            Self::ListEnds => Watched::ListEnds,
        }
    }
}
