//! What one operator knows about its cluster: the newest state from watches, lists and answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease::api::RedisLease;
use redislease::api::validated::Readiness;
use redislease::election::{Electorate, PodFacts, Sighting};
use redislease::plan::{PodKnowledge, SliceFacts};
use redislease_core::time::Time;

use crate::api::objects::{self, SliceKey};
use crate::api::server::State;

/// The newest observed version of one pod.
#[derive(Clone, Debug)]
pub struct Pod {
    version: u64,
    pub place: Option<usize>,
    pub facts: Arc<PodFacts>,
    pub sighting: Arc<Sighting>,
}

/// The lease under one name.
#[derive(Clone, Debug, Default)]
struct Lease {
    /// The version at which it was seen so, or seen to be gone.
    version: u64,
    lease: Option<Arc<RedisLease>>,
}

/// The slice under one name.
#[derive(Clone, Debug, Default)]
struct Slice {
    /// The version at which it was seen so, or seen to be gone.
    version: u64,
    facts: Option<Arc<SliceFacts>>,
}

/// What a change concerns: the leases of these places, and the leases of which these pods are holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub places: Vec<usize>,
    pub pods: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    leases: Vec<Lease>,
    pods: BTreeMap<u32, Pod>,
    /// Pods that do not exist any more, and whether they are proven to have stopped.
    gone: BTreeMap<u32, bool>,
    /// The newest version that was seen of each, or that it is gone.
    slices: BTreeMap<SliceKey, Slice>,
    electorates: BTreeMap<usize, (Readiness, Arc<Electorate>)>,
    pub leases_listed: bool,
    pub pods_listed: bool,
    pub slices_listed: bool,
    /// Whether a stale list replaces newer state: only a planted bug sets this.
    pub trusts_stale_lists: bool,
}

impl Index {
    pub fn new(places: usize) -> Self {
        Self { leases: vec![Lease::default(); places], ..Self::default() }
    }

    pub fn lease(&self, place: usize) -> Option<&Arc<RedisLease>> {
        self.leases[place].lease.as_ref()
    }

    /// The leases that exist: place and number of the UID.
    pub fn leases(&self) -> impl Iterator<Item = (usize, u32)> {
        let found = |(place, lease): (usize, &Lease)| lease.lease.as_ref().map(|lease| (place, objects::uid_of(lease)));
        self.leases.iter().enumerate().filter_map(found)
    }

    /// Whether a list shows an older state than what is known.
    pub fn is_stale(&self, listed: &State) -> bool {
        let newer = |place: usize| self.leases[place].version > listed.version;
        (0..self.leases.len()).any(newer) || self.pods.values().any(|pod| pod.version > listed.version)
    }

    /// A list of leases is complete: it replaces what was known, also by an older state.
    pub fn list_leases(&mut self, listed: &State) -> Touched {
        self.leases_listed = true;
        let mut touched = Touched::default();
        for (place, lease) in listed.leases.iter().enumerate() {
            let version = lease.as_deref().map_or(listed.version, objects::version_of);
            if self.leases[place].lease != *lease {
                touched.places.push(place);
            }
            self.leases[place] = Lease { version, lease: lease.clone() };
        }
        touched
    }

    /// A lease as a watch, or the answer to a write or a read of ours, shows it.
    pub fn learn_lease(&mut self, place: usize, version: u64, lease: Option<Arc<RedisLease>>) -> Touched {
        if version <= self.leases[place].version {
            return Touched::default();
        }
        self.leases[place] = Lease { version, lease };
        Touched { places: vec![place], pods: Vec::new() }
    }

    /// A list of slices is complete: it replaces what was known, also by an older state.
    pub fn list_slices(&mut self, listed: &State) -> Touched {
        self.slices_listed = true;
        let mut touched = Touched::default();
        let known: Vec<SliceKey> = self.slices.keys().copied().collect();
        for of in known.into_iter().filter(|of| !listed.slices.contains_key(of)) {
            touched.add(self.take_slice(of, listed.version, None));
        }
        for (&of, facts) in &listed.slices {
            touched.add(self.take_slice(of, objects::version(facts.version.as_deref()), Some(facts.clone())));
        }
        touched
    }

    /// A slice as a watch, or the answer to a call, shows it.
    pub fn learn_slice(&mut self, of: SliceKey, version: u64, facts: Option<Arc<SliceFacts>>) -> Touched {
        let older = self.slices.get(&of).is_some_and(|known| version <= known.version);
        if older { Touched::default() } else { self.take_slice(of, version, facts) }
    }

    fn take_slice(&mut self, of: SliceKey, version: u64, facts: Option<Arc<SliceFacts>>) -> Touched {
        let of_lease = |slice: &Arc<SliceFacts>| objects::number(&slice.lease) as usize;
        let now = facts.as_ref().map(of_lease);
        let before = self.slices.insert(of, Slice { version, facts }).and_then(|slice| slice.facts);
        Touched { places: before.as_ref().map(of_lease).into_iter().chain(now).collect(), pods: Vec::new() }
    }

    /// The slice with this UID does not exist any more, by the answer to a call.
    pub fn slice_is_gone(&mut self, of: SliceKey, uid: Option<&String>) -> Touched {
        let known = self.slices.get(&of).filter(|slice| slice.facts.as_ref().map(|facts| &facts.uid) == uid);
        known.map(|slice| slice.version).map_or_else(Touched::default, |version| self.take_slice(of, version, None))
    }

    /// The slices of a lease.
    pub fn slices(&self, place: usize) -> Vec<Arc<SliceFacts>> {
        let lease = objects::lease_name(place);
        self.all_slices().filter(|slice| slice.lease == lease).cloned().collect()
    }

    pub fn all_slices(&self) -> impl Iterator<Item = &Arc<SliceFacts>> {
        self.slices.values().filter_map(|slice| slice.facts.as_ref())
    }

    /// A pod that was seen.
    pub fn pod(&self, pod: u32) -> Option<&PodFacts> {
        self.pods.get(&pod).map(|pod| &*pod.facts)
    }

    /// A list of pods is complete. What it does not name is gone, unless it is newer than the list.
    pub fn list_pods(&mut self, listed: &State, now: Time) -> Touched {
        let first = !std::mem::replace(&mut self.pods_listed, true);
        let mut touched = Touched::default();
        if first {
            touched.places.extend(0..self.leases.len());
        }
        let missing = |(pod, known): (&u32, &Pod)| {
            let older = known.version <= listed.version || self.trusts_stale_lists;
            (!listed.pods.contains_key(pod) && older).then_some(*pod)
        };
        let missing: Vec<u32> = self.pods.iter().filter_map(missing).collect();
        for pod in missing {
            touched.add(self.bury(pod, false));
        }
        for (&pod, facts) in &listed.pods {
            if self.trusts_stale_lists {
                self.gone.remove(&pod);
                self.pods.remove(&pod);
                self.electorates.clear();
            }
            touched.add(self.learn_pod(pod, facts, now));
        }
        touched
    }

    /// Records an observed pod. A pod that is gone stays gone.
    pub fn learn_pod(&mut self, pod: u32, facts: &Arc<PodFacts>, now: Time) -> Touched {
        let version = objects::version(facts.resource_version.as_deref());
        let before = self.pods.get(&pod);
        if self.gone.contains_key(&pod) || before.is_some_and(|before| version <= before.version) {
            return Touched::default();
        }
        let place = objects::place_of(facts);
        let sighting = Sighting::now(PodFacts::clone(facts), now, before.map(|before| &*before.sighting));
        let touched = match before {
            Some(before) => Touched::by_pod(pod, &before.facts, facts),
            None => Touched::by_pod(pod, facts, facts),
        };
        let before = before.and_then(|before| before.place);
        self.moved(before, place);
        self.pods.insert(pod, Pod { version, place, facts: facts.clone(), sighting: Arc::new(sighting) });
        touched
    }

    /// Records that a pod does not exist any more. A later call can only add a proof.
    pub fn bury(&mut self, pod: u32, stopped: bool) -> Touched {
        let seen = self.pods.remove(&pod);
        let stopped = stopped || seen.as_ref().is_some_and(|seen| seen.facts.stopped);
        let known = self.gone.entry(pod).or_insert(stopped);
        *known |= stopped;
        let mut touched = Touched { places: Vec::new(), pods: vec![pod] };
        if let Some(seen) = seen {
            self.moved(seen.place, None);
            touched.add(Touched::by_pod(pod, &seen.facts, &seen.facts));
        }
        touched
    }

    /// What is known about a pod.
    pub fn find(&self, pod: u32) -> PodKnowledge {
        match (self.pods.get(&pod), self.gone.get(&pod)) {
            (Some(pod), _) => PodKnowledge::Here(pod.sighting.clone()),
            (None, Some(&stopped)) => PodKnowledge::Gone { stopped },
            (None, None) => PodKnowledge::Unseen,
        }
    }

    /// The candidates of a lease, with their eligibility. The value stays the same until a candidate changes.
    pub fn electorate(&mut self, place: usize, readiness: Readiness) -> Arc<Electorate> {
        if let Some((_, electorate)) = self.electorates.get(&place).filter(|(judged, _)| *judged == readiness) {
            return electorate.clone();
        }
        let candidates = self.pods.values().filter(|pod| pod.place == Some(place)).map(|pod| pod.facts.clone());
        let electorate = Arc::new(Electorate::of(candidates, readiness));
        self.electorates.insert(place, (readiness, electorate.clone()));
        electorate
    }

    /// Forgets the candidates that a change of this pod concerns.
    fn moved(&mut self, before: Option<usize>, after: Option<usize>) {
        for place in [before, after].into_iter().flatten() {
            self.electorates.remove(&place);
        }
    }

    /// Pods that carry the lease's label or token and are no candidates of it; a lease that is gone has none.
    pub fn strays(&self, place: usize, exists: bool) -> Vec<Arc<PodFacts>> {
        let stray =
            |pod: &&Pod| (pod.place != Some(place) || !exists) && objects::role_of(&pod.facts, place) != (None, None);
        self.pods.values().filter(stray).map(|pod| pod.facts.clone()).collect()
    }
}

impl Touched {
    /// A change of the resource version alone concerns no lease; a change of roles concerns the leases of these roles.
    fn by_pod(pod: u32, before: &PodFacts, after: &PodFacts) -> Self {
        let same = PodFacts { resource_version: after.resource_version.clone(), ..before.clone() };
        if same == *after && before.resource_version != after.resource_version {
            return Self::default();
        }
        let mut places: Vec<usize> = [before, after].into_iter().filter_map(objects::place_of).collect();
        let roles = before.labels.keys().chain(after.labels.keys());
        places.extend(
            roles
                .filter_map(|label| redislease::api::names::lease_of_role_label(label))
                .map(|name| objects::number(name) as usize),
        );
        Self { places, pods: vec![pod] }
    }

    pub fn add(&mut self, other: Self) {
        self.places.extend(other.places);
        self.pods.extend(other.pods);
    }
}
