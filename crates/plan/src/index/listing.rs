//! A list in progress: what a complete list lacks was deleted without an event.

use std::collections::BTreeSet;

/// The list of one kind, while it is in progress. `K` is the name or the UID of an object, `T` what the list shows of it.
#[derive(Debug)]
pub struct Listing<K, T = ()>(Option<Complete<K, T>>);

/// A complete list.
#[derive(Debug)]
pub struct Complete<K, T> {
    named: BTreeSet<K>,
    older: Vec<T>,
    read: BTreeSet<K>,
}

impl<K, T> Default for Listing<K, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord, T> Listing<K, T> {
    /// A list begins. One that broke off is dropped.
    pub fn begins(&mut self) {
        self.0 = Some(Complete { named: BTreeSet::new(), older: Vec::new(), read: BTreeSet::new() });
    }

    /// Whether a list is in progress.
    pub const fn is_in_progress(&self) -> bool {
        self.0.is_some()
    }

    /// The list contains these objects.
    pub fn contains(&mut self, keys: impl IntoIterator<Item = K>) {
        if let Some(list) = &mut self.0 {
            list.named.extend(keys);
        }
    }

    /// The list shows an object that was deleted, or in an older version than the known one: either an answer was newer than the
    /// list, or etcd was restored from a backup. Only the complete list can decide.
    pub fn shows_older(&mut self, object: T) {
        if let Some(list) = &mut self.0 {
            list.older.push(object);
        }
    }

    /// The list contains this object in a newer version than the known one. If the watch of a part that is complete already shows that,
    /// what the list said before is outdated.
    pub fn shows_newer(&mut self, key: K) {
        if let Some(list) = self.0.as_mut().filter(|list| !list.older.is_empty()) {
            list.read.insert(key);
        }
    }

    /// An answer about this object arrived after the list began.
    pub fn answered(&mut self, key: K) {
        if let Some(list) = &mut self.0 {
            list.read.insert(key);
        }
    }

    /// The list is complete; `None` if none was in progress.
    pub const fn ends(&mut self) -> Option<Complete<K, T>> {
        self.0.take()
    }
}

impl<K: Ord, T> Complete<K, T> {
    /// Whether the list lacks this object.
    pub fn lacks(&self, key: &K) -> bool {
        !self.named.contains(key)
    }

    /// The older objects about which no answer arrived meanwhile.
    pub fn older(self, key: impl Fn(&T) -> K) -> impl Iterator<Item = T> {
        let Self { older, read, .. } = self;
        older.into_iter().filter(move |object| !read.contains(&key(object)))
    }
}
