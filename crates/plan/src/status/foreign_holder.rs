//! Who else holds the keys of a lease: a pod of another cluster, another lease, or a program.

use redislease_core::op::{Stage, Stored};

use crate::election::HolderName;
use crate::status::Inputs;

/// Maximum number of characters that a message shows of what a program calls itself.
const SHOWN: usize = 80;

/// Who else holds the keys of the lease. Messages are complete sentences for conditions and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ForeignHolder {
    /// No other holder is known.
    Nobody,
    /// Unknown until the nodes have answered an attempt or a read: what status says stays valid.
    Unchanged,
    /// A pod of another cluster holds the lease.
    PeerCluster(String),
    /// As `PeerCluster`, and the other cluster has the name of this cluster.
    SameClusterName(String),
    /// Another lease of this cluster, or a program that is no operator.
    OtherLease(String),
}

impl ForeignHolder {
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Some(view) = inputs.view else { return Self::Nobody };
        match &view.refused_by {
            Some(value) => Self::from_value(value, inputs),
            None if inputs.reads_keys && view.standing.term().is_none() && !view.keys_read => Self::Unchanged,
            None => Self::Nobody,
        }
    }

    /// `value` is the value of a key.
    fn from_value(value: &Stored, inputs: &Inputs<'_>) -> Self {
        if value.stage != Stage::Term {
            return Self::Nobody;
        }
        let Ok(name) = value.metadata.parse::<HolderName>() else {
            let shown: String = value.metadata.escape_debug().take(SHOWN).collect();
            return Self::OtherLease(format!(
                "A program that uses `redislease run` or the library holds a key of this lease: \"{shown}\". \
                 Use different spec.keys, unless it and this lease must exclude each other."
            ));
        };
        let HolderName { cluster, namespace, lease, pod, .. } = &name;
        let same_resource = (namespace.as_str(), lease.as_str()) == (inputs.namespace, inputs.lease);
        if cluster.uid == inputs.cluster.uid {
            // A value of this lease itself belongs to the term in status, or to an attempt that was never published. Both expire.
            return if same_resource {
                Self::Nobody
            } else {
                Self::OtherLease(format!(
                    "RedisLease {namespace}/{lease} holds a key of this lease. \
                     Use different spec.keys, unless the two leases must exclude each other."
                ))
            };
        }
        // Clusters share a lease through its keys. The names of their RedisLeases may differ.
        let resource = if same_resource { String::new() } else { format!(" as RedisLease {namespace}/{lease}") };
        if cluster.name == inputs.cluster.name {
            let called = if cluster.name.is_empty() {
                "has no name, like this one".into()
            } else {
                format!("has the name of this one, {}", cluster.name)
            };
            return Self::SameClusterName(format!(
                "{pod} of another cluster holds the lease{resource}. The other cluster {called}: \
                 set a different --cluster-name for each cluster on the quorum."
            ));
        }
        let other =
            if cluster.name.is_empty() { "a cluster without a name" } else { &format!("cluster {}", cluster.name) };
        Self::PeerCluster(format!("{pod} of {other} holds the lease{resource}."))
    }
}
