//! Who else holds the keys, as far as this cluster can tell.

use redislease_core::lease::{Standing, View};
use redislease_core::op::{Stage, Stored};
use redislease_core::time::Time;

use crate::plan::HolderName;
use crate::status::Inputs;
use crate::status::ledger::named;

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
    /// The same, but that cluster calls itself as this one does.
    Namesake(String),
    /// Another lease, or something that is no lease.
    OtherLease(String),
}

impl Rival {
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Some(view) = inputs.view else { return Self::Nobody };
        match &view.refused_by {
            Some(value) => Self::behind(value, inputs),
            None if untold(view) => Self::AsBefore,
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
        let HolderName { cluster, namespace, lease, pod, pod_uid } = &name;
        if (namespace.as_str(), lease.as_str()) != (inputs.namespace, inputs.lease) {
            return Self::OtherLease(match cluster.as_str() {
                "" => format!("RedisLease {namespace}/{lease} holds a key of this lease."),
                cluster => format!("RedisLease {namespace}/{lease} of cluster {cluster} holds a key of this lease."),
            });
        }
        if cluster != inputs.cluster {
            return Self::Peer(format!("{pod} of cluster {} holds the lease.", shown(cluster)));
        }
        if is_ours(value, pod_uid, inputs) {
            return Self::Nobody;
        }
        Self::Namesake(format!(
            "{pod} is no pod of this cluster and holds the lease under the same cluster name, {}: \
             give each cluster on the quorum its own name.",
            shown(cluster)
        ))
    }
}

fn shown(cluster: &str) -> String {
    if cluster.is_empty() { "the empty one".into() } else { cluster.into() }
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

/// A value of this cluster: the term that the status names, one that it has named and that a node still keeps, or an
/// attempt for a pod of ours that was never published. It ends by itself.
fn is_ours(value: &Stored, pod_uid: &str, inputs: &Inputs<'_>) -> bool {
    let status = inputs.previous;
    let is = |token: i64| u64::try_from(token).is_ok_and(|token| token == value.number);
    let pod_is_ours = inputs.electorate.is_none_or(|electorate| electorate.find(pod_uid).is_some());
    named(status) == Some(value.attempt)
        || status.fencing_token.is_some_and(is)
        || status.history.iter().any(|past| is(past.fencing_token))
        || pod_is_ours
}
