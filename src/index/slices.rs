//! The EndpointSlices that the operator manages, by the lease that they belong to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::is_older;
use crate::plan::SliceFacts;

/// How many deleted slices are remembered. An answer is late by one call, of which few are in flight.
const DELETED: usize = 1000;

/// The slices of one namespace.
#[derive(Debug, Default)]
struct Namespace {
    slices: BTreeMap<String, Arc<SliceFacts>>,
    by_lease: BTreeMap<String, BTreeSet<String>>,
}

/// A list in progress.
#[derive(Debug, Default)]
struct Relist {
    named: BTreeSet<(String, String)>,
    /// Slices in an older version than the known one: an answer was newer than the list, or etcd was restored.
    older: Vec<SliceFacts>,
    /// Slices for which an answer arrived after the list began.
    read: BTreeSet<(String, String)>,
}

/// All slices.
#[derive(Debug, Default)]
pub(super) struct Slices {
    namespaces: BTreeMap<String, Namespace>,
    pub listed: bool,
    relist: Option<Relist>,
    /// The UIDs of slices that were deleted, the latest last: the answer to an earlier call can still show one of them.
    deleted: VecDeque<String>,
}

/// Namespace and name of a lease.
pub(super) type Concerned = (String, String);

impl Slices {
    /// The slices of a lease, by their names.
    pub fn of(&self, namespace: &str, lease: &str) -> Vec<Arc<SliceFacts>> {
        let Some(of) = self.namespaces.get(namespace) else { return Vec::new() };
        of.by_lease.get(lease).into_iter().flatten().filter_map(|name| of.slices.get(name).cloned()).collect()
    }

    /// All slices with the namespace and the lease that they belong to.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &Arc<SliceFacts>)> {
        let slices =
            self.namespaces.iter().flat_map(|(namespace, of)| of.slices.values().map(move |slice| (namespace, slice)));
        slices.map(|(namespace, slice)| (namespace.as_str(), slice.lease.as_str(), slice))
    }

    pub fn list_begins(&mut self) {
        self.relist = Some(Relist::default());
    }

    /// Takes a slice of an event or of a list. Returns the leases that this concerns.
    pub fn seen(&mut self, facts: SliceFacts) -> Vec<Concerned> {
        let is_older = self.is_older_than_known(&facts);
        if let Some(relist) = &mut self.relist {
            relist.named.insert(key(&facts));
            if is_older {
                relist.older.push(facts);
                return Vec::new();
            }
        }
        if is_older { Vec::new() } else { self.replace(facts) }
    }

    /// The slice with this namespace and name exists and could not be read. Its last facts stay, unless `uid` says that it
    /// was deleted and created again. Returns the leases that this concerns.
    pub fn unreadable(&mut self, key: (String, String), uid: Option<&str>) -> Vec<Concerned> {
        let (namespace, name) = &key;
        let known = self.namespaces.get(namespace).and_then(|of| of.slices.get(name));
        let replaced = known.map(|slice| slice.uid.clone()).filter(|known| uid.is_some_and(|uid| uid != known));
        let concerned = replaced.map(|uid| self.gone(namespace, name, Some(&uid))).unwrap_or_default();
        if let Some(relist) = &mut self.relist {
            relist.named.insert(key);
        }
        concerned
    }

    /// Takes a slice from the answer to a call, unless it was deleted meanwhile.
    pub fn answered(&mut self, facts: SliceFacts) -> Vec<Concerned> {
        if self.deleted.contains(&facts.uid) {
            return Vec::new();
        }
        if let Some(relist) = &mut self.relist {
            relist.read.insert(key(&facts));
        }
        if self.is_older_than_known(&facts) { Vec::new() } else { self.replace(facts) }
    }

    /// The slice does not exist any more. With `uid`, a slice that was created again with its name stays.
    pub fn gone(&mut self, namespace: &str, name: &str, uid: Option<&str>) -> Vec<Concerned> {
        let Some(of) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        if of.slices.get(name).is_none_or(|slice| uid.is_some_and(|uid| slice.uid != uid)) {
            return Vec::new();
        }
        let Some(slice) = of.slices.remove(name) else { return Vec::new() };
        of.leave(&slice);
        if self.deleted.len() >= DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back(slice.uid.clone());
        if of.slices.is_empty() {
            self.namespaces.remove(namespace);
        }
        vec![(namespace.to_owned(), slice.lease.clone())]
    }

    /// The list is complete: a slice that it does not contain was deleted.
    pub fn list_ends(&mut self) -> Vec<Concerned> {
        self.listed = true;
        let Some(Relist { named, older, read }) = self.relist.take() else { return Vec::new() };
        let all = self
            .namespaces
            .iter()
            .flat_map(|(namespace, of)| of.slices.keys().map(|name| (namespace.clone(), name.clone())));
        let missed: Vec<(String, String)> = all.filter(|key| !named.contains(key) && !read.contains(key)).collect();
        let mut concerned = Vec::new();
        for (namespace, name) in missed {
            concerned.extend(self.gone(&namespace, &name, None));
        }
        for facts in older.into_iter().filter(|facts| !read.contains(&key(facts))) {
            concerned.extend(self.replace(facts));
        }
        concerned
    }

    fn is_older_than_known(&self, facts: &SliceFacts) -> bool {
        let known = self.namespaces.get(&facts.namespace).and_then(|of| of.slices.get(&facts.name));
        known
            .is_some_and(|known| known.uid == facts.uid && is_older(facts.version.as_deref(), known.version.as_deref()))
    }

    fn replace(&mut self, facts: SliceFacts) -> Vec<Concerned> {
        let of = self.namespaces.entry(facts.namespace.clone()).or_default();
        let before = of.slices.get(&facts.name).cloned();
        if before.as_deref() == Some(&facts) {
            return Vec::new();
        }
        let mut concerned = vec![(facts.namespace.clone(), facts.lease.clone())];
        if let Some(before) = before.filter(|before| before.lease != facts.lease) {
            of.leave(&before);
            concerned.push((facts.namespace.clone(), before.lease.clone()));
        }
        of.by_lease.entry(facts.lease.clone()).or_default().insert(facts.name.clone());
        of.slices.insert(facts.name.clone(), Arc::new(facts));
        concerned
    }
}

impl Namespace {
    fn leave(&mut self, slice: &SliceFacts) {
        if let Some(names) = self.by_lease.get_mut(&slice.lease) {
            names.remove(&slice.name);
            if names.is_empty() {
                self.by_lease.remove(&slice.lease);
            }
        }
    }
}

fn key(facts: &SliceFacts) -> (String, String) {
    (facts.namespace.clone(), facts.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Family;

    fn slice(name: &str, version: &str) -> SliceFacts {
        let slice = SliceFacts::new("n", "billing", "l", "active", Family::V4);
        SliceFacts { name: name.into(), uid: format!("uid-{name}"), version: Some(version.into()), ..slice }
    }

    fn versions(slices: &Slices) -> Vec<(String, String)> {
        let of = slices.of("n", "billing");
        of.iter().map(|slice| (slice.name.clone(), slice.version.clone().unwrap_or_default())).collect()
    }

    #[test]
    fn the_newest_version_counts_until_the_slice_is_gone() {
        let mut slices = Slices::default();
        let concerned = vec![("n".to_owned(), "billing".to_owned())];
        assert_eq!(slices.seen(slice("a", "5")), concerned);
        assert_eq!(slices.seen(slice("a", "4")), []);
        assert_eq!(slices.answered(slice("a", "7")), concerned);
        assert_eq!(slices.seen(slice("a", "7")), [], "nothing is new");
        assert_eq!(versions(&slices), [("a".into(), "7".into())]);
        assert_eq!(slices.gone("n", "a", Some("another")), []);
        assert_eq!(slices.gone("n", "a", Some("uid-a")), concerned);
        assert!(slices.namespaces.is_empty());
    }

    #[test]
    fn a_late_answer_does_not_bring_a_deleted_slice_back() {
        let mut slices = Slices::default();
        slices.seen(slice("a", "5"));
        slices.gone("n", "a", Some("uid-a"));
        assert_eq!(slices.answered(slice("a", "6")), []);
        assert_eq!(versions(&slices), []);
        let again = SliceFacts { uid: "uid-again".into(), ..slice("a", "8") };
        assert_eq!(slices.answered(again).len(), 1, "one with its name that was created later");
        // The number of remembered slices is limited.
        for number in 0..2 * DELETED {
            let name = format!("s-{number}");
            slices.seen(slice(&name, "9"));
            slices.gone("n", &name, None);
        }
        assert_eq!(slices.deleted.len(), DELETED);
        assert_eq!(slices.answered(slice("s-1999", "9")), []);
    }

    #[test]
    fn a_list_replaces_what_it_does_not_contain_unless_an_answer_is_newer() {
        let mut slices = Slices::default();
        for name in ["a", "b", "c"] {
            slices.seen(slice(name, "5"));
        }
        slices.list_begins();
        slices.seen(slice("a", "3"));
        slices.answered(slice("c", "6"));
        slices.list_ends();
        assert_eq!(versions(&slices), [("a".into(), "3".into()), ("c".into(), "6".into())]);
    }

    #[test]
    fn a_slice_that_moves_to_another_lease_concerns_both() {
        let mut slices = Slices::default();
        slices.seen(slice("a", "5"));
        let moved = SliceFacts { lease: "other".into(), ..slice("a", "6") };
        assert_eq!(slices.seen(moved).len(), 2);
        assert_eq!((versions(&slices).len(), slices.of("n", "other").len()), (0, 1));
    }
}
