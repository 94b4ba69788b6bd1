//! What a queued call is about.

use std::sync::Arc;

use super::call::Call;
use super::queue::{Level, Submission};
use crate::operator::index::WorkloadKey;
use crate::plan::Priority;
use crate::status::NoticeReason;

/// The key of a job in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Status(Arc<str>),
    QuorumStatus(Arc<str>),
    Role { pod: Arc<str>, lease: Arc<str> },
    Slice { lease: Arc<str>, name: Arc<str> },
    ReadService(Arc<str>),
    ReadLease(Arc<str>),
    ReadPod(Arc<str>),
    ReadNode(Arc<str>),
    ReadWorkload(WorkloadKey),
    ReadQuorum(Arc<str>),
    ReadTokens(Arc<str>),
    ReadSecret(Arc<str>),
    ReadClusterUid,
    OwnedLease(WorkloadKey),
    Event(Arc<str>, NoticeReason),
}

pub(super) fn job(key: Key, tenant: &Arc<str>, level: Level, payload: Call) -> Submission<Key, Call> {
    Submission { key, tenant: tenant.clone(), lane: None, level, not_before: None, not_after: None, payload }
}

pub(super) const fn level(priority: Priority) -> Level {
    match priority {
        Priority::End => Level::End,
        Priority::Publication => Level::Publication,
        Priority::Active => Level::Active,
        Priority::Standby => Level::Standby,
        Priority::Counts => Level::Counts,
    }
}
