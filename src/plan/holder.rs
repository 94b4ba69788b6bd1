//! The holder as it stands behind a value on the nodes: how another cluster, or another lease, recognises it.

use std::fmt;
use std::str::FromStr;

/// Who holds: `<cluster>/<namespace>/<lease>/<pod>/<pod uid>`. None of the parts contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderName {
    /// The cluster, as its operator was told; may be empty.
    pub cluster: String,
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
        let Self { cluster, namespace, lease, pod, pod_uid } = self;
        write!(f, "{cluster}/{namespace}/{lease}/{pod}/{pod_uid}")
    }
}

/// A text that does not name a holder: a value was not written by this operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignHolder;

impl FromStr for HolderName {
    type Err = ForeignHolder;

    fn from_str(text: &str) -> Result<Self, ForeignHolder> {
        let parts: Vec<&str> = text.split('/').collect();
        let [cluster, namespace, lease, pod, pod_uid] = parts[..] else { return Err(ForeignHolder) };
        Ok(Self {
            cluster: cluster.to_owned(),
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
        for text in ["eu-west-1/jobs/billing/billing-x2x8k/5c1f", "/jobs/billing/billing-0/5c1f"] {
            assert_eq!(text.parse::<HolderName>().unwrap().to_string(), text);
        }
        assert_eq!("billing-0".parse::<HolderName>(), Err(ForeignHolder));
        assert_eq!("a/b/c/d/e/f".parse::<HolderName>(), Err(ForeignHolder));
    }
}
