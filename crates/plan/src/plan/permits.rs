//! Limits how many leases acquire and publish a term at the same time, and how many statuses wait for the API server.
//!
//! After an outage thousands of leases need a new term at once, and the API server accepts a few hundred writes a second.
//! Without a limit, the last terms would wait for their publication longer than their leases last, and the memory would
//! hold all the waiting statuses. A lease that waits for a permit keeps nothing but its place in the queue. Namespaces take
//! turns, and a namespace in which many terms end does not keep another one from its next term.
//!
//! The limit of attempts applies to each quorum: an attempt on a quorum that does not answer lasts until its timeout, and
//! must not delay the leases on another quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fair_queue::FairQueue;

/// How many leases of one quorum may acquire and publish at the same time, and how many statuses of one kind may wait for
/// the API server. It is ten times the number of calls that are sent at once, so the queue does not run empty, and an API
/// server that accepts 200 writes a second publishes as many terms in 1.3 s.
pub const PERMITS: usize = 256;

/// A lease's use of a permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermitUse {
    /// It needs none.
    #[default]
    None,
    /// It waits for one.
    Waits,
    /// It uses one.
    Uses,
}

/// A lease's use of each kind of permit after a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitUses {
    /// To acquire and publish a term.
    pub attempt: PermitUse,
    /// To write a status by which a term ends.
    pub end: PermitUse,
    /// To write another status, other than a publication.
    pub other: PermitUse,
}

/// The permits that a lease has or can have in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permitted {
    /// To acquire and publish a term.
    pub attempt: bool,
    /// To write a status by which a term ends.
    pub end: bool,
    /// To write another status, other than a publication.
    pub other: bool,
}

impl Permitted {
    /// Every permit.
    pub const ALL: Self = Self { attempt: true, end: true, other: true };
}

/// The permits of all leases, which `K` identifies.
#[derive(Clone, Debug)]
pub struct Permits<K> {
    attempts: Pool<K>,
    ends: Pool<K>,
    others: Pool<K>,
}

/// All leases share the API server.
const API_SERVER: &str = "";

impl<K: Clone + Ord> Permits<K> {
    /// `at_once` permits of each kind; those for attempts are for each quorum.
    pub const fn new(at_once: usize) -> Self {
        Self { attempts: Pool::new(at_once), ends: Pool::new(at_once), others: Pool::new(at_once) }
    }

    /// What the lease may do in its next turn. While ends of terms of its namespace wait to be written, no attempt of the
    /// namespace starts: the ends are written first, so the publication would wait.
    pub fn permitted(&self, lease: &K, quorum: &str, namespace: &str) -> Permitted {
        Permitted {
            attempt: !self.ends.waits_in(namespace) && self.attempts.allow(lease, quorum),
            end: self.ends.allow(lease, API_SERVER),
            other: self.others.allow(lease, API_SERVER),
        }
    }

    /// Records the uses after a turn in which the lease had the permits `permitted`.
    pub fn record(&mut self, lease: &K, quorum: &str, namespace: &Arc<str>, permitted: Permitted, uses: PermitUses) {
        // A lease that had the permit and still waits gets no second offer: it would be offered forever.
        let needs = |usage, permitted| if usage == PermitUse::Waits && permitted { PermitUse::None } else { usage };
        self.attempts.record(lease, quorum, namespace, needs(uses.attempt, permitted.attempt));
        self.ends.record(lease, API_SERVER, namespace, needs(uses.end, permitted.end));
        self.others.record(lease, API_SERVER, namespace, needs(uses.other, permitted.other));
        self.ends_changed(namespace);
    }

    /// Offers a free permit to a lease that waits for one. It keeps the offer until its uses are recorded.
    pub fn offer(&mut self) -> Option<K> {
        if let Some((lease, namespace)) = self.ends.offer(|_| false) {
            self.ends_changed(&namespace);
            return Some(lease);
        }
        let ends = &self.ends;
        let attempt = self.attempts.offer(|namespace| ends.waits_in(namespace));
        attempt.or_else(|| self.others.offer(|_| false)).map(|(lease, _)| lease)
    }

    /// Removes a lease.
    pub fn forget(&mut self, lease: &K) {
        let ended = self.ends.forget(lease);
        self.attempts.forget(lease);
        self.others.forget(lease);
        if let Some(namespace) = ended {
            self.ends_changed(&namespace);
        }
    }

    fn ends_changed(&mut self, namespace: &Arc<str>) {
        if !self.ends.waits_in(namespace) {
            self.attempts.put_back(namespace);
        }
    }

    /// How many leases wait for a permit to acquire a term.
    pub fn waiting_attempts(&self) -> usize {
        self.attempts.waiting.len()
    }
}

/// Permits of one kind, for the leases that `K` identifies. Each scope has permits of its own: a quorum, or the API server.
#[derive(Clone, Debug)]
struct Pool<K> {
    at_once: usize,
    scopes: BTreeMap<String, Scope<K>>,
    /// The leases with a permit, or with an offer of one, and its scope.
    given: BTreeMap<K, String>,
    /// The leases that wait for a permit.
    waiting: BTreeMap<K, Waiting>,
    /// How many leases of a namespace wait.
    waiting_in: BTreeMap<Arc<str>, usize>,
    /// Leases that were first in the queue while their namespace was blocked.
    blocked: BTreeMap<Arc<str>, BTreeSet<K>>,
}

#[derive(Clone, Debug)]
struct Waiting {
    scope: String,
    namespace: Arc<str>,
}

#[derive(Clone, Debug)]
struct Scope<K> {
    given: usize,
    /// Entries of leases that do not wait any more are skipped.
    queue: FairQueue<K>,
}

impl<K: Clone + Ord> Pool<K> {
    /// At most `at_once` leases of each scope have a permit.
    const fn new(at_once: usize) -> Self {
        Self {
            at_once,
            scopes: BTreeMap::new(),
            given: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_in: BTreeMap::new(),
            blocked: BTreeMap::new(),
        }
    }

    fn waits_in(&self, namespace: &str) -> bool {
        self.waiting_in.contains_key(namespace)
    }

    /// Whether the lease has a permit, or one is free.
    fn allow(&self, lease: &K, scope: &str) -> bool {
        self.given.get(lease).is_some_and(|of| of == scope) || self.has_free(scope)
    }

    fn has_free(&self, scope: &str) -> bool {
        self.scopes.get(scope).is_none_or(|scope| scope.given < self.at_once)
    }

    /// Records the use of a permit after a turn of the lease.
    fn record(&mut self, lease: &K, scope: &str, namespace: &Arc<str>, usage: PermitUse) {
        let keeps = usage == PermitUse::Uses && self.given.get(lease).is_some_and(|of| of == scope);
        if !keeps {
            self.take_back(lease);
        }
        self.stop_waiting(lease);
        match usage {
            PermitUse::Uses if !keeps => {
                self.given.insert(lease.clone(), scope.to_owned());
                self.scope(scope).given += 1;
            }
            PermitUse::Waits => {
                let waiting = Waiting { scope: scope.to_owned(), namespace: namespace.clone() };
                self.waiting.insert(lease.clone(), waiting);
                *self.waiting_in.entry(namespace.clone()).or_default() += 1;
                self.scope(scope).queue.push(namespace, lease.clone());
            }
            PermitUse::Uses | PermitUse::None => {}
        }
    }

    /// Offers a free permit to a lease that waits for one, with its namespace. It keeps the offer until its use is recorded.
    /// Leases of the namespaces that are blocked wait until [`Pool::put_back`].
    fn offer(&mut self, is_blocked: impl Fn(&str) -> bool) -> Option<(K, Arc<str>)> {
        let Self { at_once, scopes, given, waiting, blocked, .. } = self;
        let mut found = None;
        'scopes: for (name, scope) in scopes.iter_mut().filter(|(_, scope)| scope.given < *at_once) {
            while let Some(lease) = scope.queue.pop() {
                // The lease may wait in another scope by now, or not at all.
                let Some(Waiting { namespace, .. }) = waiting.get(&lease).filter(|waiting| waiting.scope == *name)
                else {
                    continue;
                };
                if is_blocked(namespace) {
                    blocked.entry(namespace.clone()).or_default().insert(lease);
                    continue;
                }
                scope.given += 1;
                given.insert(lease.clone(), name.clone());
                found = Some((lease, namespace.clone()));
                break 'scopes;
            }
        }
        if let Some((lease, _)) = &found {
            self.stop_waiting(lease);
        }
        found
    }

    /// Queues the leases of a namespace that is not blocked any more.
    fn put_back(&mut self, namespace: &Arc<str>) {
        for lease in self.blocked.remove(namespace).into_iter().flatten() {
            if let Some(Waiting { scope, .. }) = self.waiting.get(&lease) {
                let scope = scope.clone();
                self.scope(&scope).queue.push(namespace, lease);
            }
        }
    }

    /// Removes a lease. Returns its namespace if it waited.
    fn forget(&mut self, lease: &K) -> Option<Arc<str>> {
        self.take_back(lease);
        self.stop_waiting(lease)
    }

    fn stop_waiting(&mut self, lease: &K) -> Option<Arc<str>> {
        let Waiting { namespace, .. } = self.waiting.remove(lease)?;
        if let Some(leases) = self.waiting_in.get_mut(&namespace) {
            *leases -= 1;
            if *leases == 0 {
                self.waiting_in.remove(&namespace);
            }
        }
        Some(namespace)
    }

    fn scope(&mut self, name: &str) -> &mut Scope<K> {
        let unused = || Scope { given: 0, queue: FairQueue::default() };
        self.scopes.entry(name.to_owned()).or_insert_with(unused)
    }

    fn take_back(&mut self, lease: &K) {
        let Some(name) = self.given.remove(lease) else { return };
        if let Some(scope) = self.scopes.get_mut(&name) {
            scope.given -= 1;
            if scope.given == 0 && scope.queue.is_empty() {
                self.scopes.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PermitUse::{None as Unused, Uses, Waits};
    use super::*;

    fn pool(at_once: usize) -> (Pool<u32>, Arc<str>, Arc<str>) {
        (Pool::new(at_once), "shop".into(), "bank".into())
    }

    fn offered(pool: &mut Pool<u32>) -> Option<u32> {
        pool.offer(|_| false).map(|(lease, _)| lease)
    }

    #[test]
    fn a_lease_waits_while_all_permits_of_its_quorum_are_used() {
        let (mut pool, shop, _) = pool(2);
        for lease in [1, 2] {
            assert!(pool.allow(&lease, "q"));
            pool.record(&lease, "q", &shop, Uses);
        }
        assert!(!pool.allow(&3, "q") && pool.allow(&1, "q") && pool.allow(&3, "other"));
        pool.record(&3, "q", &shop, Waits);
        assert_eq!((offered(&mut pool), pool.waiting.len()), (None, 1));
        pool.record(&1, "q", &shop, Unused);
        assert_eq!((offered(&mut pool), pool.waiting.len()), (Some(3), 0));
        assert!(pool.allow(&3, "q") && !pool.allow(&1, "q"), "the offer counts as a use");
        assert_eq!(offered(&mut pool), None);
        pool.record(&3, "q", &shop, Unused);
        assert!(pool.allow(&1, "q"), "the lease did not need the permit any more");
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut pool, shop, bank) = pool(1);
        pool.record(&0, "q", &shop, Uses);
        (1..100).for_each(|lease| pool.record(&lease, "q", &shop, Waits));
        pool.record(&500, "q", &bank, Waits);
        pool.record(&0, "q", &shop, Unused);
        assert_eq!(offered(&mut pool), Some(1));
        pool.record(&1, "q", &shop, Unused);
        assert_eq!(offered(&mut pool), Some(500));
    }

    #[test]
    fn a_lease_that_changes_its_quorum_or_is_deleted_leaves_nothing_behind() {
        let (mut pool, shop, _) = pool(1);
        pool.record(&1, "q", &shop, Uses);
        pool.record(&2, "q", &shop, Waits);
        pool.record(&3, "q", &shop, Waits);
        pool.record(&2, "other", &shop, Waits);
        pool.record(&1, "other", &shop, Uses);
        assert!(pool.allow(&3, "q") && !pool.allow(&2, "other"));
        assert_eq!((offered(&mut pool), offered(&mut pool)), (Some(3), None), "the lease 2 waits on the other quorum");
        pool.forget(&1);
        assert_eq!(offered(&mut pool), Some(2));
        (1..4).for_each(|lease| drop(pool.forget(&lease)));
        assert!(
            pool.scopes.is_empty() && pool.given.is_empty() && pool.waiting.is_empty() && pool.waiting_in.is_empty()
        );
    }

    #[test]
    fn ends_of_a_namespace_are_written_before_an_attempt_of_it_starts() {
        let mut permits: Permits<u32> = Permits::new(1);
        let (shop, bank): (Arc<str>, Arc<str>) = ("shop".into(), "bank".into());
        let ends = |end| PermitUses { end, ..PermitUses::default() };
        let attempt = |attempt| PermitUses { attempt, ..PermitUses::default() };
        permits.record(&1, "q", &shop, Permitted::ALL, ends(Uses));
        assert_eq!(permits.permitted(&3, "q", "shop"), Permitted { end: false, ..Permitted::ALL });
        permits.record(&2, "q", &shop, permits.permitted(&2, "q", "shop"), ends(Waits));
        let permitted = permits.permitted(&3, "q", "shop");
        assert!(!permitted.attempt);
        permits.record(&3, "q", &shop, permitted, PermitUses { attempt: Waits, other: Waits, ..PermitUses::default() });
        assert_eq!((permits.waiting_attempts(), permits.offer()), (1, None), "the lease had a permit for other writes");

        assert!(permits.permitted(&4, "q", "bank").attempt, "no term of the other namespace ends");
        permits.record(&4, "q", &bank, Permitted::ALL, attempt(Uses));
        permits.record(&5, "q", &bank, permits.permitted(&5, "q", "bank"), attempt(Waits));
        permits.record(&4, "q", &bank, Permitted::ALL, attempt(Unused));
        assert_eq!((permits.offer(), permits.offer()), (Some(5), None), "the lease 3 is still blocked");
        permits.record(&5, "q", &bank, Permitted::ALL, attempt(Unused));

        permits.record(&1, "q", &shop, Permitted::ALL, ends(Unused));
        assert_eq!([permits.offer(), permits.offer(), permits.offer()], [Some(2), Some(3), None]);
        assert_eq!((permits.waiting_attempts(), permits.permitted(&3, "q", "shop").attempt), (0, true));
        assert!(permits.attempts.blocked.is_empty());
    }

    #[test]
    fn a_deleted_lease_whose_end_waits_blocks_nothing() {
        let (mut permits, shop): (Permits<u32>, Arc<str>) = (Permits::new(1), "shop".into());
        let ends = |end| PermitUses { end, ..PermitUses::default() };
        permits.record(&1, "q", &shop, Permitted::ALL, ends(Uses));
        permits.record(&2, "q", &shop, permits.permitted(&2, "q", "shop"), ends(Waits));
        let waits = PermitUses { attempt: Waits, ..PermitUses::default() };
        for lease in [3, 4] {
            permits.record(&lease, "q", &shop, permits.permitted(&lease, "q", "shop"), waits);
        }
        assert_eq!(permits.offer(), None);
        permits.forget(&3);
        permits.forget(&2);
        assert_eq!((permits.offer(), permits.offer()), (Some(4), None), "the lease 3 is deleted");
    }
}
