//! How leases and versions are told apart, and sets by key.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// The number of a lease in this process. A resource that was created again is another lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Whether a resource version is older than a known one. Versions increase, unless etcd was restored from a backup.
pub fn is_older(version: Option<&str>, known: Option<&str>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    matches!((number(version), number(known)), (Some(version), Some(known)) if version < known)
}

/// Removes a value from the set of a key, and the set with its last value.
pub(super) fn remove_from<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V: Ord + Borrow<W>, W: Ord + ?Sized>(
    sets: &mut BTreeMap<K, BTreeSet<V>>,
    key: &Q,
    value: &W,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
