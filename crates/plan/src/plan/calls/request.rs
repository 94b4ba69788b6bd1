//! The calls to the API server as values, and what each is about.

use std::fmt;
use std::sync::Arc;

use redislease_core::time::Time;

use super::Priority;
use super::answer::WorkloadKey;
use crate::api::validated::WorkloadKind;
use crate::api::{RedisLease, RedisQuorum};
use crate::plan::{Read, RoleWrite, StatusWrite};
use crate::status::NoticeReason;

/// Every cluster has this namespace throughout its existence, so its UID identifies the cluster.
pub const CLUSTER_NAMESPACE: &str = "kube-system";

/// What a queued call is about: the UID of the lease, the name of the quorum, or the object itself. A newer call of the same key
/// replaces an older one that was not sent yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each key is named after its request")]
pub enum Key {
    LeaseStatus(Arc<str>),
    QuorumStatus(Arc<str>),
    /// The UIDs of the pod or workload, and of the lease.
    Role(Arc<str>, Arc<str>),
    ReadLease(Arc<str>),
    ReadHolder(Arc<str>),
    ReadStartable(Arc<str>),
    ReadNode(Arc<str>),
    ReadWorkload(WorkloadKey),
    ReadQuorum(Arc<str>),
    ReadTokens(Arc<str>),
    ReadSecret(Arc<str>, Arc<str>),
    ReadClusterUid,
    LeaseChange(WorkloadKey),
    Event(EventKey),
}

/// The UID of the object of an event, and its reason. For an event that is sent once, the first part also identifies the text.
pub type EventKey = (Arc<str>, NoticeReason);

/// The lease for which a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// `metadata.namespace`; the lease's pods are in it too.
    pub namespace: Arc<str>,
    /// Its name, which is in the label and the annotations on its objects.
    pub name: Arc<str>,
    /// Its UID. For the role of a lease that does not exist, a text that is no UID.
    pub uid: Arc<str>,
}

/// One call.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Request {
    /// Replace the status of a lease.
    LeaseStatus {
        /// The lease as it was read.
        object: Arc<RedisLease>,
        write: Box<StatusWrite>,
        /// Only the leader of this quorum may write it.
        quorum: Option<Arc<str>>,
    },
    /// Write label and token of a lease on a pod or a workload.
    Role {
        lease: LeaseName,
        write: Box<RoleWrite>,
        /// Only the leader of this quorum may write it.
        quorum: Option<Arc<str>>,
    },
    /// Read an object for a lease.
    Read { lease: LeaseName, read: Read },
    /// Read the selector of a workload, and whether it runs.
    Workload(WorkloadKey),
    /// Read a quorum.
    Quorum { namespace: Arc<str>, name: Arc<str> },
    /// Replace the status of a quorum.
    QuorumStatus(Box<RedisQuorum>),
    /// Read the highest token in the statuses of the leases on a quorum, as etcd has them now.
    Tokens {
        /// What the tokens are read for. A newer read for the same replaces an older one.
        of: Arc<str>,
        quorum: String,
        /// The namespaces of the leases; none mean all.
        namespaces: Arc<[String]>,
    },
    /// Read a secret of a quorum.
    Secret {
        /// The namespace of both.
        namespace: Arc<str>,
        quorum: Arc<str>,
        name: Arc<str>,
    },
    /// Read the UID of the cluster.
    ClusterUid,
    /// Create, change or delete the lease of this annotated workload. The caller has the change.
    LeaseChange(WorkloadKey),
    /// Send the pending event with this key. The caller has the event.
    Event {
        /// The namespace of the object.
        namespace: Arc<str>,
        key: EventKey,
        /// The earliest time to send it.
        not_before: Time,
    },
    /// Read a small object from etcd: tests whether the API server answers.
    Probe,
}

impl Request {
    /// What it is about; `None` for a probe, which is not queued.
    pub fn key(&self) -> Option<Key> {
        Some(match self {
            Self::LeaseStatus { object, .. } => Key::LeaseStatus(text(object.metadata.uid.as_deref())),
            Self::Role { lease, write, .. } => Key::Role(write.uid.as_str().into(), lease.uid.clone()),
            Self::Read { lease, read: Read::Lease } => Key::ReadLease(lease.uid.clone()),
            Self::Read { lease, read: Read::Holder { .. } } => Key::ReadHolder(lease.uid.clone()),
            Self::Read { lease, read: Read::Startable } => Key::ReadStartable(lease.uid.clone()),
            Self::Read { lease, read: Read::Node { .. } } => Key::ReadNode(lease.uid.clone()),
            Self::Workload(key) => Key::ReadWorkload(key.clone()),
            Self::Quorum { name, .. } => Key::ReadQuorum(name.clone()),
            Self::QuorumStatus(object) => Key::QuorumStatus(text(object.metadata.name.as_deref())),
            Self::Tokens { of, .. } => Key::ReadTokens(of.clone()),
            Self::Secret { quorum, name, .. } => Key::ReadSecret(quorum.clone(), name.clone()),
            Self::ClusterUid => Key::ReadClusterUid,
            Self::LeaseChange(key) => Key::LeaseChange(key.clone()),
            Self::Event { key, .. } => Key::Event(key.clone()),
            Self::Probe => return None,
        })
    }

    /// How urgent it is.
    pub(super) fn priority(&self) -> Priority {
        match self {
            Self::LeaseStatus { write, .. } => write.priority,
            Self::Role { write, .. } => write.priority,
            Self::Workload(_) | Self::Read { read: Read::Startable, .. } => Priority::Active,
            Self::Read { read: Read::Lease, .. } | Self::Secret { .. } => Priority::Publication,
            Self::Read { .. } | Self::Quorum { .. } | Self::Tokens { .. } | Self::ClusterUid | Self::Probe => {
                Priority::End
            }
            // It names the leader. A leader without the quorum contradicts the claim of another replica within seconds, or it has no
            // right to end terms any more: this write must not wait for those of all ending terms.
            Self::QuorumStatus(_) => Priority::End,
            Self::LeaseChange(_) => Priority::Standby,
            Self::Event { .. } => Priority::Events,
        }
    }

    /// The tenant for fairness: a namespace, or none for what concerns the whole cluster.
    pub(super) fn tenant(&self) -> Arc<str> {
        match self {
            Self::LeaseStatus { object, .. } => text(object.metadata.namespace.as_deref()),
            Self::QuorumStatus(object) => text(object.metadata.namespace.as_deref()),
            Self::Role { lease, .. } | Self::Read { lease, .. } => lease.namespace.clone(),
            Self::Workload((namespace, _)) | Self::LeaseChange((namespace, _)) => namespace.clone(),
            Self::Quorum { namespace, .. } | Self::Secret { namespace, .. } | Self::Event { namespace, .. } => {
                namespace.clone()
            }
            Self::Tokens { .. } | Self::ClusterUid | Self::Probe => "".into(),
        }
    }

    /// The writes of one object are sent one after the other.
    pub(super) fn lane(&self) -> Option<Arc<str>> {
        match self {
            Self::Role { write, .. } => Some(write.uid.as_str().into()),
            _ => None,
        }
    }

    /// The earliest time to send it.
    pub(super) const fn not_before(&self) -> Option<Time> {
        match self {
            Self::Event { not_before, .. } => Some(*not_before),
            _ => None,
        }
    }

    /// The call is not sent from this time on.
    pub const fn not_after(&self) -> Option<Time> {
        match self {
            Self::LeaseStatus { write, .. } => write.not_after,
            Self::Role { write, .. } => write.not_after,
            _ => None,
        }
    }

    /// Only the leader of this quorum may make the call.
    pub(super) const fn quorum(&self) -> Option<&Arc<str>> {
        match self {
            Self::LeaseStatus { quorum, .. } | Self::Role { quorum, .. } => quorum.as_ref(),
            _ => None,
        }
    }

    /// Whether it changes nothing: without an answer it is repeated.
    pub(super) const fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Workload(_)
                | Self::Quorum { .. }
                | Self::Tokens { .. }
                | Self::Secret { .. }
                | Self::ClusterUid
        )
    }
}

fn text(part: Option<&str>) -> Arc<str> {
    part.unwrap_or_default().into()
}

/// The object, for the log.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: &Option<String>| text(part.as_deref());
        let kind_of = |workload: &Option<WorkloadKind>| workload.map_or("pod", WorkloadKind::as_str);
        let (kind, namespace, name) = match self {
            Self::LeaseStatus { object, .. } => {
                ("RedisLease", part(&object.metadata.namespace), part(&object.metadata.name))
            }
            Self::QuorumStatus(object) => ("RedisQuorum", self.tenant(), part(&object.metadata.name)),
            Self::Role { write, .. } => (kind_of(&write.workload), self.tenant(), write.pod.as_str().into()),
            Self::Read { lease, read: Read::Lease } => ("RedisLease", self.tenant(), lease.name.clone()),
            Self::Read { read: Read::Holder { pod, workload, .. }, .. } => {
                (kind_of(workload), self.tenant(), pod.as_str().into())
            }
            Self::Read { lease, read: Read::Startable } => {
                ("the pods of RedisLease", self.tenant(), lease.name.clone())
            }
            Self::Read { read: Read::Node { node, .. }, .. } => ("Kubernetes node", "".into(), node.as_str().into()),
            Self::Workload((_, workload)) => (workload.kind.as_str(), self.tenant(), workload.name.as_str().into()),
            Self::Quorum { name, .. } => ("RedisQuorum", self.tenant(), name.clone()),
            Self::Tokens { quorum, .. } => ("the RedisLeases on RedisQuorum", "".into(), quorum.as_str().into()),
            Self::Secret { name, .. } => ("secret", self.tenant(), name.clone()),
            Self::LeaseChange((_, workload)) => {
                ("the RedisLease of the workload", self.tenant(), workload.name.as_str().into())
            }
            Self::ClusterUid | Self::Probe => ("namespace", "".into(), CLUSTER_NAMESPACE.into()),
            Self::Event { key: (_, reason), .. } => ("event", self.tenant(), reason.as_str().into()),
        };
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {namespace}{slash}{name}")
    }
}
