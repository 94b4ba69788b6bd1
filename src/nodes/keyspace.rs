//! The names of keys on a node.

/// The keys under one prefix. The key of a lease never collides with the marker or the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
    marker: String,
    fence: String,
}

impl Keyspace {
    /// The keys under `prefix`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), marker: format!("{prefix}:marker"), fence: format!("{prefix}:fence") }
    }

    /// Which server may vote, under which configuration.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The counter of the whole quorum.
    pub fn fence(&self) -> &str {
        &self.fence
    }

    /// The lock behind the key `key` of a lease in `namespace`, which contains no slash.
    pub fn lock(&self, namespace: &str, key: &str) -> String {
        format!("{}:lock:{namespace}/{key}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lock_is_called_marker_or_fence() {
        let keyspace = Keyspace::new("redislease");
        assert_eq!(keyspace.lock("jobs", "billing"), "redislease:lock:jobs/billing");
        for key in ["", "marker", "fence", "../marker"] {
            let lock = keyspace.lock("", key);
            assert!(lock != keyspace.marker() && lock != keyspace.fence(), "{lock}");
        }
    }
}
