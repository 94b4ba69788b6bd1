//! What a queued call is about.

use std::sync::Arc;

use crate::index::WorkloadKey;
use crate::status::NoticeReason;

/// The key of a job in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Status(Arc<str>),
    QuorumStatus(Arc<str>),
    Role { pod: Arc<str>, lease: Arc<str> },
    ReadLease(Arc<str>),
    ReadPod(Arc<str>),
    ReadStartable(Arc<str>),
    ReadNode(Arc<str>),
    ReadWorkload(WorkloadKey),
    ReadQuorum(Arc<str>),
    ReadTokens(Arc<str>),
    ReadSecret(Arc<str>),
    ReadClusterUid,
    OwnedLease(WorkloadKey),
    Event(Arc<str>, NoticeReason),
}
