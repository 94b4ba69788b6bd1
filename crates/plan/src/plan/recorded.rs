//! The term that a status names.

use redislease_core::lease::TermId;
use redislease_core::op::{Attempt, Holder, Token};

use crate::api::{RedisLease, RedisLeaseStatus, lease_status};
use crate::election::{Cluster, HolderName};

/// The term that a status names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded<'a> {
    /// The attempt that took it.
    pub attempt: Attempt,
    token: Token,
    holder: &'a lease_status::Holder,
    /// Whether the term may be continued: with `Active=False` or without `Active`, a process may have ended it.
    pub active: bool,
}

impl<'a> Recorded<'a> {
    /// Reads the term from the status; `None` if the status names none, or a part of it is not readable.
    pub fn of(lease: &'a RedisLease) -> Option<Self> {
        let status = lease.status.as_ref()?;
        Some(Self {
            attempt: status.named_attempt()?,
            token: Token(u64::try_from(status.fencing_token?).ok()?),
            holder: status.holder.as_ref()?,
            active: status.may_continue(),
        })
    }

    pub fn pod(&self) -> &'a str {
        &self.holder.pod
    }

    pub fn pod_uid(&self) -> &'a str {
        &self.holder.pod_uid
    }

    /// The term's ID on the Redis nodes, as written by a cluster with this UID for the lease named `lease`.
    pub fn term(&self, lease: &str, cluster_uid: &str) -> TermId {
        let lease_status::Holder { cluster, namespace, pod, pod_uid, .. } = self.holder;
        let name = HolderName {
            cluster: Cluster { name: cluster.clone(), uid: cluster_uid.to_owned() },
            namespace: namespace.clone(),
            lease: lease.to_owned(),
            pod: pod.clone(),
            pod_uid: pod_uid.clone(),
        };
        TermId { attempt: self.attempt, token: self.token, holder: Holder(name.to_string().into()) }
    }
}

/// [`RedisLeaseStatus::given_token`].
pub(super) fn latest_given_token(lease: &RedisLease) -> Token {
    let token = lease.status.as_ref().map(RedisLeaseStatus::given_token);
    Token(token.and_then(|token| token.try_into().ok()).unwrap_or(0))
}

/// The greatest token in the status; 0 before the first term.
pub(super) fn latest_token(lease: &RedisLease) -> Token {
    lease.status.as_ref().map(RedisLeaseStatus::token).unwrap_or_default()
}
