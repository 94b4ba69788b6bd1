//! Who else holds the keys, as far as this cluster can tell.

use redislease_core::lease::{Standing, View};
use redislease_core::op::{Stage, Stored};
use redislease_core::time::Time;

use crate::api::conditions::LeaseReady;
use crate::election::HolderName;
use crate::status::Inputs;

/// Longest piece of somebody else's value that is shown.
const SHOWN: usize = 80;

/// Who else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// Nobody that is known of.
    Nobody,
    /// Nothing new: the last try said it, and no other has ended since.
    AsBefore,
    /// A pod of another cluster holds the same lease.
    Peer(String),
    /// The same, but that other cluster calls itself as this one does.
    Namesake(String),
    /// Another lease of this cluster, or something that is no lease.
    OtherLease(String),
}

impl Rival {
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Some(view) = inputs.view else { return Self::Nobody };
        match &view.refused_by {
            Some(value) => Self::behind(value, inputs),
            None if untold(view) && may_try(inputs) => Self::AsBefore,
            None => Self::Nobody,
        }
    }

    fn behind(value: &Stored, inputs: &Inputs<'_>) -> Self {
        if value.stage != Stage::Term {
            return Self::Nobody;
        }
        let Ok(name) = value.metadata.parse::<HolderName>() else {
            let shown: String = value.metadata.escape_debug().take(SHOWN).collect();
            return Self::OtherLease(format!(
                "A value that is no holder's name holds a key of this lease: \"{shown}\"."
            ));
        };
        let HolderName { cluster, namespace, lease, pod, .. } = &name;
        let same_name = (namespace.as_str(), lease.as_str()) == (inputs.namespace, inputs.lease);
        if cluster.uid == inputs.cluster.uid {
            // The term that the status names, or an attempt that nobody published: both end by themselves.
            return if same_name {
                Self::Nobody
            } else {
                Self::OtherLease(format!("RedisLease {namespace}/{lease} holds a key of this lease."))
            };
        }
        // Across clusters the keys make the lease, whatever its resources are called.
        let holds = if same_name {
            "holds the lease".into()
        } else {
            format!("holds the lease as RedisLease {namespace}/{lease}")
        };
        let called = if cluster.name.is_empty() { "the empty one" } else { &cluster.name };
        if cluster.name == inputs.cluster.name {
            return Self::Namesake(format!(
                "{pod} of another cluster {holds} under the cluster name of this one, {called}: \
                 give each cluster on the quorum its own name."
            ));
        }
        Self::Peer(format!("{pod} of cluster {called} {holds}."))
    }
}

/// Whether a try may still come that tells: for a pod that may be elected, or that is not listed yet.
fn may_try(inputs: &Inputs<'_>) -> bool {
    let forbidden = inputs.obstacle.is_some_and(|obstacle| obstacle.reason != LeaseReady::QuorumUnavailable);
    !forbidden && inputs.electorate.is_none_or(|electorate| !electorate.eligible.is_empty())
}

/// Whether the last try has not ended: a lease is as it was until then.
fn untold(view: &View) -> bool {
    match view.standing {
        Standing::Acquiring(..) => true,
        // No try has been made at all: the first may begin at the origin of time.
        Standing::Idle => view.retry_at.is_none_or(|at| at == Time(0)),
        _ => false,
    }
}
