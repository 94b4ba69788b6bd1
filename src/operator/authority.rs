//! The authority of this process over the leases of each quorum, as the elections in [`quorums`](super::quorums) grant it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redislease_core::time::Time;
use redislease_lock::keeper::Policy;
use redislease_plan::plan::{Authority, Granted};
use tokio::sync::Notify;

use super::slot::Slot;
use crate::locked::locked;

/// The authority of this process over the leases of one quorum.
#[derive(Debug)]
pub struct Grant(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    granted: Granted,
    /// The lock on which the authority depends.
    lock: Option<Arc<Slot>>,
}

impl Grant {
    /// Creates a grant with an authority that depends on no lock.
    pub fn of(authority: Authority) -> Arc<Self> {
        let granted = Granted { authority, ..Granted::default() };
        Arc::new(Self(Mutex::new(Shared { granted, lock: None })))
    }

    /// The authority at `now`.
    pub fn authority(&self, now: Time) -> Authority {
        self.with_gains(now).0
    }

    /// The authority at `now`, and how often this process has gained the right to decide until then.
    pub fn with_gains(&self, now: Time) -> (Authority, u32) {
        let shared = locked(&self.0);
        (shared.granted.at(now, shared.lock.as_ref().map(|lock| lock.stop_at())), shared.granted.gains)
    }

    /// Until when decisions about a lease may be carried out, as far as is known now: a process that was paused may have lost the
    /// right to it.
    pub fn decides_until(&self) -> Time {
        let shared = locked(&self.0);
        shared.granted.decides_until(shared.lock.as_ref().map(|lock| lock.stop_at()))
    }

    /// Replaces the authority, and the lock on which it depends.
    pub fn set(&self, granted: Granted, lock: Option<Arc<Slot>>) {
        *locked(&self.0) = Shared { granted, lock };
    }
}

impl Policy for Grant {
    fn may_end(&self, now: Time) -> bool {
        now < self.decides_until()
    }
}

/// The authority of this process on every quorum, for tasks other than the engine. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Arc<AllGrants>);

#[derive(Debug, Default)]
struct AllGrants {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    grants: BTreeMap<String, Arc<Grant>>,
    /// Whether every RedisQuorum that existed at the start has been read.
    read: bool,
}

impl Authorities {
    /// Takes the grant of a quorum.
    pub fn set(&self, quorum: &str, grant: &Arc<Grant>) {
        let before = locked(&self.0.known).grants.insert(quorum.to_owned(), grant.clone());
        if before.is_none_or(|before| !Arc::ptr_eq(&before, grant)) {
            self.notify();
        }
    }

    /// Every RedisQuorum that existed at the start has been read.
    pub fn all_read(&self) {
        locked(&self.0.known).read = true;
        self.notify();
    }

    /// An authority has changed.
    pub fn notify(&self) {
        self.0.changed.notify_one();
    }

    /// Waits for a change. Only one task may wait.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Whether this process decides about the leases on a quorum at `now`. Without a RedisQuorum of this name there is no
    /// election, and every replica decides.
    pub fn leads(&self, quorum: &str, now: Time) -> bool {
        let known = locked(&self.0.known);
        known.read && known.grants.get(quorum).is_none_or(|grant| grant.authority(now) == Authority::Lead)
    }

    /// Until when this process decides about the leases on each quorum, as far as is known now.
    pub fn each(&self, mut of: impl FnMut(&str, Time)) {
        for (quorum, grant) in &locked(&self.0.known).grants {
            of(quorum, grant.decides_until());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use redislease_core::lease::{Standing, TermId, TermView, View};
    use redislease_core::op::{Attempt, Holder, Token};

    #[test]
    fn leadership_ends_with_the_time_of_its_lock() {
        let slot = Slot::new(|| {});
        let grant = |authority, lock| {
            let granted = Granted { authority, named_until: Some(Time(10)), gains: 0 };
            Grant(Mutex::new(Shared { granted, lock }))
        };
        let lead = grant(Authority::Lead, Some(slot.clone()));
        assert_eq!(lead.authority(Time(0)), Authority::Renew, "the lock has no view yet");
        let id = TermId { attempt: Attempt(1), token: Token(1), holder: Holder("here/uid///operator-0/1".into()) };
        let term = TermView { id, valid_until: Some(Time(15)), stop_at: Some(Time(10)), failed_rounds: 0 };
        slot.show(&View { standing: Standing::Held(term), ..View::default() });
        assert_eq!(lead.authority(Time(9)), Authority::Lead);
        assert_eq!(lead.authority(Time(10)), Authority::Renew);
        for authority in [Authority::Follow, Authority::Renew, Authority::End] {
            assert_eq!(grant(authority, Some(slot.clone())).authority(Time(9)), authority);
        }
        assert_eq!(grant(Authority::End, None).authority(Time(10)), Authority::Renew, "another may be named meanwhile");
        assert_eq!(Grant::of(Authority::Lead).authority(Time(9)), Authority::Lead, "no election is possible");
    }

    /// Each notification makes every annotated workload due.
    #[tokio::test]
    async fn a_grant_that_is_set_again_is_no_change() {
        let authorities = Authorities::default();
        let grant = Grant::of(Authority::Follow);
        authorities.set("q", &grant);
        authorities.changed().await;
        authorities.set("q", &grant);
        assert!(authorities.changed().now_or_never().is_none());
        authorities.set("q", &Grant::of(Authority::Follow));
        assert!(authorities.changed().now_or_never().is_some());
    }
}
