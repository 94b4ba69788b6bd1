//! The holder as it stands behind a value on the nodes: how another cluster, or another lease, recognises it.

use std::fmt;
use std::str::FromStr;

/// A cluster, as the values on the nodes name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// What its operator was told to call it; may be empty. For people.
    pub name: String,
    /// The UID of its namespace kube-system: what tells it from every other, whatever they are called.
    pub uid: String,
}

/// Who holds: `<cluster>/<cluster uid>/<namespace>/<lease>/<pod>/<pod uid>`. None of the parts contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderName {
    /// The cluster of the pod.
    pub cluster: Cluster,
    /// The namespace of lease and pod.
    pub namespace: String,
    /// The name of the `RedisLease`.
    pub lease: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub pod_uid: String,
}

impl fmt::Display for HolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster: Cluster { name, uid }, namespace, lease, pod, pod_uid } = self;
        write!(f, "{name}/{uid}/{namespace}/{lease}/{pod}/{pod_uid}")
    }
}

/// A text that does not name a holder: a value was not written by this operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignHolder;

impl FromStr for HolderName {
    type Err = ForeignHolder;

    fn from_str(text: &str) -> Result<Self, ForeignHolder> {
        let parts: Vec<&str> = text.split('/').collect();
        let [cluster, cluster_uid, namespace, lease, pod, pod_uid] = parts[..] else { return Err(ForeignHolder) };
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
    fn holders_round_trip() {
        for text in ["eu-west-1/77a0/jobs/billing/billing-x2x8k/5c1f", "/77a0/jobs/billing/billing-0/5c1f"] {
            assert_eq!(text.parse::<HolderName>().unwrap().to_string(), text);
        }
        assert_eq!("billing-0".parse::<HolderName>(), Err(ForeignHolder));
        assert_eq!("a/b/c/d/e/f/g".parse::<HolderName>(), Err(ForeignHolder));
    }
}
