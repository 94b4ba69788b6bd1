//! The names of keys on a node.

/// The keys under one prefix. The key of a lease never collides with the marker, the fence or the
/// key of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
    marker: String,
    fence: String,
    check: String,
}

impl Keyspace {
    /// The keys under `prefix`.
    pub fn new(prefix: &str) -> Self {
        let named = |name: &str| format!("{prefix}:{name}");
        Self { prefix: prefix.to_owned(), marker: named("marker"), fence: named("fence"), check: named("check") }
    }

    /// The key of the marker, which names the server and the configuration that may vote.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The key of the quorum's token counter.
    pub fn fence(&self) -> &str {
        &self.fence
    }

    /// The key on which the commands of the scripts are tried. It expires within two seconds.
    pub fn check(&self) -> &str {
        &self.check
    }

    /// The key of a lease's lock: `key` of the lease's spec, in `namespace`, which contains no slash.
    pub fn lock(&self, namespace: &str, key: &str) -> String {
        // Each acquire makes one, and `format!` takes three times as long.
        [&self.prefix, ":lock:", namespace, "/", key].concat()
    }

    /// The key of the lock with which the operator's replicas of one cluster elect who decides about the leases of one RedisQuorum: two
    /// of them may have the same servers. `cluster` is the UID of the cluster.
    pub fn leader(&self, cluster: &str, quorum: &str) -> String {
        format!("{}:leader:{cluster}/{quorum}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lock_has_the_name_of_another_key() {
        let keyspace = Keyspace::new("redislease");
        assert_eq!(keyspace.lock("jobs", "billing"), "redislease:lock:jobs/billing");
        for key in ["", "marker", "fence", "check", "../marker"] {
            let lock = keyspace.lock("", key);
            assert!(![keyspace.marker(), keyspace.fence(), keyspace.check()].contains(&lock.as_str()), "{lock}");
            assert!(
                keyspace.leader("c", key).starts_with("redislease:leader:c/") && lock.starts_with("redislease:lock:")
            );
        }
    }
}
