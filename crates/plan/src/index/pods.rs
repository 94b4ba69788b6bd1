//! Which pods exist. For a deleted pod, its last event decides whether the keys of its terms may be released.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redislease_core::time::Time;

use super::ids::{LeaseId, is_older};
use super::listing::Listing;
use super::namespace::{Namespace, PodUid};
use crate::election::{PodFacts, Sighting};
use crate::plan::PodKnowledge;
use crate::plan::calls::Asked;

/// How many deleted pods are remembered. More are remembered only while leases name them as their holders.
pub(super) const REMEMBERED: usize = 10_000;

/// Counts the beginnings and ends of pod lists: the count is odd while a list is in progress. Clones share the count. The
/// index handles the events of a list later than this count changes.
#[derive(Clone, Debug, Default)]
pub struct ListCount(Arc<AtomicU64>);

impl ListCount {
    /// Call this before requesting a pod from the API server.
    pub fn ask(&self) -> Asked {
        Asked(self.0.load(Ordering::Acquire))
    }

    /// The watch calls this before it requests a list. A list that broke off has not ended.
    pub fn begin(&self) {
        let count = self.0.load(Ordering::Acquire);
        self.0.store(Self::begun(count), Ordering::Release);
    }

    /// The watch calls this when the list is complete.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// The next odd count.
    const fn begun(count: u64) -> u64 {
        count + 1 + count % 2
    }
}

/// The pods by namespace, facts about deleted pods, and the list in progress.
#[derive(Debug, Default)]
pub(super) struct Pods {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Deleted pods, and whether their processes have ended.
    gone: BTreeMap<PodUid, bool>,
    gone_order: VecDeque<(Arc<str>, PodUid)>,
    pub listed: bool,
    pub lists: ListCount,
    /// How many beginnings and ends of lists were handled: at most the count of [`ListCount`].
    taken: u64,
    list: Listing<PodUid, PodFacts>,
}

impl Pods {
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(name)
    }

    pub fn namespace_mut(&mut self, name: &Arc<str>) -> &mut Namespace {
        self.namespaces.entry(name.clone()).or_default()
    }

    pub fn namespaces(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace)> {
        self.namespaces.iter()
    }

    /// Removes a lease that was indexed under this name, unless another one has taken the name.
    pub fn remove_name(&mut self, namespace: &Arc<str>, name: &str, id: LeaseId) {
        if let Some(pods) = self.namespaces.get_mut(namespace) {
            if pods.names.get(name) == Some(&id) {
                pods.names.remove(name);
            }
            if pods.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    fn known(&self, facts: &PodFacts) -> Option<&Arc<Sighting>> {
        self.namespace(&facts.namespace).and_then(|pods| pods.pod(&facts.uid))
    }

    pub fn list_begins(&mut self) {
        self.taken = ListCount::begun(self.taken);
        self.list.begins();
    }

    /// Takes a pod of an event or of a list.
    pub fn seen(&mut self, facts: PodFacts, now: Time) -> BTreeSet<LeaseId> {
        let known = self.known(&facts).and_then(|known| known.facts.resource_version.as_deref());
        let is_older = is_older(facts.resource_version.as_deref(), known);
        if self.list.is_in_progress() {
            self.list.contains([PodUid::from(facts.uid.as_str())]);
            if is_older || self.gone.contains_key(facts.uid.as_str()) {
                self.list.shows_older(facts);
                return BTreeSet::new();
            }
            self.list.shows_newer(facts.uid.as_str().into());
        } else if is_older {
            // The answer to a call was newer than the watch.
            return BTreeSet::new();
        }
        self.replace(facts, now)
    }

    /// The pod is in a list and could not be read: its last facts stay.
    pub fn unreadable(&mut self, uid: &str) {
        self.list.contains([PodUid::from(uid)]);
    }

    pub fn unlisted(&mut self, namespace: &str) {
        let known = self.namespaces.get(namespace);
        self.list.contains(known.into_iter().flat_map(Namespace::uids).cloned());
    }

    /// The list is complete: a pod that it does not contain was deleted without a last event.
    pub fn list_ends(&mut self, now: Time) -> BTreeSet<LeaseId> {
        self.taken += 1;
        self.listed = true;
        let Some(list) = self.list.ends() else { return BTreeSet::new() };
        let mut concerned = BTreeSet::new();
        let missed: Vec<(Arc<str>, PodUid)> = self
            .namespaces
            .iter()
            .flat_map(|(namespace, pods)| pods.uids().map(|uid| (namespace.clone(), uid.clone())))
            .filter(|(_, uid)| list.lacks(uid))
            .collect();
        for (namespace, uid) in missed {
            concerned.append(&mut self.remove(&namespace, &uid, false));
        }
        for facts in list.older(|facts| PodUid::from(facts.uid.as_str())) {
            concerned.append(&mut self.replace(facts, now));
        }
        concerned
    }

    /// Takes a pod from the answer to a call.
    ///
    /// A list that began after the call was sent decides whether the pod exists: the pod may have been deleted before the
    /// list was made, and then no event reports the deletion. Such an answer neither adds a pod nor restores a deleted
    /// one. An answer that is older than what is known does not replace what a list in progress shows: etcd may have been
    /// restored from a backup.
    pub fn answered(&mut self, asked: Asked, facts: PodFacts, now: Time) -> BTreeSet<LeaseId> {
        let is_current = self.is_current(asked);
        let known = self.known(&facts);
        let version = known.and_then(|known| known.facts.resource_version.as_deref());
        let is_gone = self.gone.contains_key(facts.uid.as_str());
        if is_gone || is_older(facts.resource_version.as_deref(), version) || !(known.is_some() || is_current) {
            return BTreeSet::new();
        }
        self.list.answered(PodUid::from(facts.uid.as_str()));
        self.replace(facts, now)
    }

    /// Whether no list of pods has begun or ended since this request, and none is in progress.
    pub fn is_current(&self, asked: Asked) -> bool {
        !self.list.is_in_progress() && asked == Asked(self.taken) && asked == self.lists.ask()
    }

    fn replace(&mut self, facts: PodFacts, now: Time) -> BTreeSet<LeaseId> {
        self.gone.remove(facts.uid.as_str());
        let before = self.known(&facts).cloned();
        // The watch repeats what an answer said. Electorates keep the facts that they have: another copy would double them.
        if before.as_ref().is_some_and(|before| *before.facts == facts) {
            return BTreeSet::new();
        }
        let sighting = Sighting::now(facts, now, before.as_deref());
        self.namespaces.entry(Arc::from(sighting.facts.namespace.as_str())).or_default().pod_seen(sighting)
    }

    pub fn deleted(&mut self, facts: &PodFacts) -> BTreeSet<LeaseId> {
        self.remove(&facts.namespace, &facts.uid, facts.proves_stopped_when_deleted())
    }

    /// Records that the pod does not exist any more. A later call can add a proof but not remove one.
    pub fn remove(&mut self, namespace: &str, uid: &str, stopped: bool) -> BTreeSet<LeaseId> {
        self.list.answered(PodUid::from(uid));
        let mut concerned = BTreeSet::new();
        let mut proven = stopped;
        if let Some(pods) = self.namespaces.get_mut(namespace) {
            let (seen, leases) = pods.pod_gone(uid);
            concerned = leases;
            proven |= seen.is_some_and(|pod| pod.facts.stopped);
            if pods.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        if let Some(known) = self.gone.get_mut(uid) {
            *known |= proven;
            return concerned;
        }
        let uid = PodUid::from(uid);
        self.gone.insert(uid.clone(), proven);
        self.gone_order.push_back((namespace.into(), uid));
        self.forget_oldest();
        concerned
    }

    /// Forgets deleted pods that are too many. Two at a time: their number falls again when leases name fewer of them.
    fn forget_oldest(&mut self) {
        for _ in 0..2 {
            if self.gone_order.len() <= REMEMBERED {
                return;
            }
            let Some((namespace, oldest)) = self.gone_order.pop_front() else { return };
            if self.namespaces.get(&namespace).is_some_and(|pods| pods.holds_a_lease(&oldest)) {
                self.gone_order.push_back((namespace, oldest));
            } else {
                self.gone.remove(&oldest);
            }
        }
    }

    pub fn find(&self, namespace: &str, uid: &str) -> PodKnowledge {
        if let Some(sighting) = self.namespace(namespace).and_then(|pods| pods.pod(uid)) {
            return PodKnowledge::Here(sighting.clone());
        }
        self.gone.get(uid).map_or(PodKnowledge::Unseen, |&stopped| PodKnowledge::Gone { stopped })
    }
}
