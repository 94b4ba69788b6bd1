//! How leases and versions are told apart.

/// The number of a lease in this process. A resource that was created again is another lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Whether a resource version is older than a known one. Versions increase, unless etcd was restored from a backup.
pub fn is_older(version: Option<&str>, known: Option<&str>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    matches!((number(version), number(known)), (Some(version), Some(known)) if version < known)
}
