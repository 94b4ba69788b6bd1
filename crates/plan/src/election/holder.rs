//! The holder's name in a value on the Redis nodes. Other clusters and other leases identify the holder by it.

use std::fmt;
use std::str::FromStr;

use redislease_core::op::Holder;

/// A cluster, as named in the values on the Redis nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// The operator's `--cluster-name`, for display. May be empty.
    pub name: String,
    /// The UID of the cluster's kube-system namespace. It identifies the cluster independently of its name.
    pub uid: String,
}

/// A holder. Its text form is `<cluster>/<cluster uid>/<namespace>/<lease>/<pod>/<pod uid>`; no part contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct HolderName {
    /// The cluster that the pod runs in.
    pub cluster: Cluster,
    /// The namespace of the lease and of the pod.
    pub namespace: String,
    pub lease: String,
    pub pod: String,
    pub pod_uid: String,
}

impl From<&HolderName> for Holder {
    fn from(name: &HolderName) -> Self {
        Self(name.to_string().into())
    }
}

impl fmt::Display for HolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster: Cluster { name, uid }, namespace, lease, pod, pod_uid } = self;
        write!(f, "{name}/{uid}/{namespace}/{lease}/{pod}/{pod_uid}")
    }
}

/// The error for a text that is not a holder's name: RedisLease did not write this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHolderName;

impl FromStr for HolderName {
    type Err = InvalidHolderName;

    fn from_str(text: &str) -> Result<Self, InvalidHolderName> {
        let parts: Vec<&str> = text.split('/').collect();
        let [cluster, cluster_uid, namespace, lease, pod, pod_uid] = parts[..] else { return Err(InvalidHolderName) };
        Ok(Self {
            cluster: Cluster { name: cluster.to_owned(), uid: cluster_uid.to_owned() },
            namespace: namespace.to_owned(),
            lease: lease.to_owned(),
            pod: pod.to_owned(),
            pod_uid: pod_uid.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_and_parsing_round_trip() {
        for text in ["eu-west-1/77a0/jobs/billing/billing-x2x8k/5c1f", "/77a0/jobs/billing/billing-0/5c1f"] {
            assert_eq!(text.parse::<HolderName>().unwrap().to_string(), text);
        }
        assert_eq!("billing-0".parse::<HolderName>(), Err(InvalidHolderName));
        assert_eq!("a/b/c/d/e/f/g".parse::<HolderName>(), Err(InvalidHolderName));
    }
}
