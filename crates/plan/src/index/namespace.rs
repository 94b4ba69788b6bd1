//! The pods of one namespace, grouped by the selectors of its leases, so that a pod event names only the leases it
//! concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::{Expression, Selector, SelectorExt as _};

use super::ids::{LeaseId, remove_from};
use super::selectors::{GroupId, Selectors};
use crate::api::names;
use crate::election::{Electorate, Eligibility, PodFacts, Sighting};

/// The UID of a pod.
pub(super) type PodUid = Arc<str>;

/// The key of a group: leases with the same selector and the same rules share an electorate.
type Criteria = (Vec<Expression>, Eligibility);

#[derive(Debug, Default)]
pub(super) struct Namespace {
    pods: BTreeMap<PodUid, Pod>,
    groups: BTreeMap<GroupId, Group>,
    by_criteria: BTreeMap<Arc<Criteria>, GroupId>,
    next_group: u32,
    selectors: Selectors,
    /// The pods that carry the label or the token of a lease, by the lease's name.
    carriers: BTreeMap<String, BTreeSet<PodUid>>,
    /// The leases that a pod holds.
    holders: BTreeMap<PodUid, BTreeSet<LeaseId>>,
    /// The lease of each name. A deleted lease stays until it is finalized or another lease takes the name.
    pub names: BTreeMap<String, LeaseId>,
}

#[derive(Debug)]
struct Pod {
    sighting: Arc<Sighting>,
    groups: Vec<GroupId>,
}

#[derive(Debug)]
struct Group {
    criteria: Arc<Criteria>,
    selector: Selector,
    members: BTreeSet<PodUid>,
    leases: BTreeSet<LeaseId>,
    /// `None` after a change of a member, until the next use.
    electorate: Option<Arc<Electorate>>,
}

impl Namespace {
    pub fn pod(&self, uid: &str) -> Option<&Arc<Sighting>> {
        self.pods.get(uid).map(|pod| &pod.sighting)
    }

    pub fn pods(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.values().map(|pod| &*pod.sighting.facts)
    }

    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.groups.is_empty() && self.names.is_empty() && self.holders.is_empty()
    }

    /// Records a pod that was observed now. Returns the leases that the change concerns.
    pub fn pod_seen(&mut self, sighting: Sighting) -> BTreeSet<LeaseId> {
        let sighting = Arc::new(sighting);
        let facts = &sighting.facts;
        let uid = PodUid::from(facts.uid.as_str());
        let before = self.pods.remove(&uid);
        let groups = self.groups_of(facts);
        let (old, old_groups) = before.map_or((None, Vec::new()), |pod| (Some(pod.sighting), pod.groups));
        let changed = old.as_ref().is_none_or(|old| differs(&old.facts, facts));
        let mut concerned = BTreeSet::new();
        for id in old_groups.iter().chain(groups.iter().filter(|id| !old_groups.contains(id))) {
            let Some(group) = self.groups.get_mut(id) else { continue };
            // A new resource version is recorded too, because a write must name it.
            group.electorate = None;
            let (was, is) = (old_groups.contains(id), groups.contains(id));
            if is {
                group.members.insert(uid.clone());
            } else {
                group.members.remove(&uid);
            }
            if changed || was != is {
                concerned.extend(&group.leases);
            }
        }
        let (before, now) = (old.as_ref().map(|old| roles(&old.facts)).unwrap_or_default(), roles(facts));
        for lease in before.keys().chain(now.keys().filter(|lease| !before.contains_key(*lease))) {
            if changed || before.get(lease) != now.get(lease) {
                concerned.extend(self.names.get(*lease));
            }
            if !now.contains_key(lease) {
                remove_from(&mut self.carriers, *lease, &uid);
            } else if !before.contains_key(lease) {
                self.carriers.entry((*lease).to_owned()).or_default().insert(uid.clone());
            }
        }
        if changed {
            concerned.extend(self.holders.get(&uid).into_iter().flatten());
        }
        self.pods.insert(uid, Pod { sighting, groups });
        concerned
    }

    /// Removes a pod. Returns it and the leases that this concerns.
    pub fn pod_gone(&mut self, uid: &str) -> (Option<Arc<Sighting>>, BTreeSet<LeaseId>) {
        let mut concerned: BTreeSet<LeaseId> = self.holders.get(uid).into_iter().flatten().copied().collect();
        let Some(Pod { sighting, groups }) = self.pods.remove(uid) else { return (None, concerned) };
        for id in groups {
            if let Some(group) = self.groups.get_mut(&id) {
                group.members.remove(uid);
                group.electorate = None;
                concerned.extend(&group.leases);
            }
        }
        for lease in roles(&sighting.facts).into_keys() {
            concerned.extend(self.names.get(lease));
            remove_from(&mut self.carriers, lease, uid);
        }
        (Some(sighting), concerned)
    }

    /// Adds the lease to the group of the pods that the selector matches.
    pub fn join(&mut self, lease: LeaseId, selector: &Selector, eligibility: Eligibility) -> GroupId {
        let mut expressions: Vec<Expression> = selector.clone().into_iter().collect();
        expressions.sort();
        let criteria = Arc::new((expressions, eligibility));
        let id = if let Some(id) = self.by_criteria.get(&criteria) {
            *id
        } else {
            let id = GroupId(self.next_group);
            self.next_group = self.next_group.wrapping_add(1);
            self.selectors.insert(id, selector);
            let members = self.pods.iter_mut().filter(|(_, pod)| selector.matches(&pod.sighting.facts.labels));
            let members = members.map(|(uid, pod)| {
                pod.groups.push(id);
                uid.clone()
            });
            let group = Group {
                criteria: criteria.clone(),
                selector: selector.clone(),
                members: members.collect(),
                leases: BTreeSet::new(),
                electorate: None,
            };
            self.groups.insert(id, group);
            self.by_criteria.insert(criteria, id);
            id
        };
        if let Some(group) = self.groups.get_mut(&id) {
            group.leases.insert(lease);
        }
        id
    }

    /// Removes the lease from its group. A group without leases is dropped.
    pub fn leave(&mut self, lease: LeaseId, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.leases.remove(&lease);
        if !group.leases.is_empty() {
            return;
        }
        let Some(group) = self.groups.remove(&id) else { return };
        self.by_criteria.remove(&group.criteria);
        self.selectors.remove(id);
        for uid in &group.members {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.groups.retain(|other| *other != id);
            }
        }
    }

    /// The candidates of a group, computed once after each change.
    pub fn electorate(&mut self, id: GroupId) -> Option<Arc<Electorate>> {
        let group = self.groups.get_mut(&id)?;
        if group.electorate.is_none() {
            let pods = group.members.iter().filter_map(|uid| self.pods.get(uid)).map(|pod| pod.sighting.facts.clone());
            group.electorate = Some(Arc::new(Electorate::of(pods, &group.criteria.1)));
        }
        group.electorate.clone()
    }

    pub fn has_match(&self, selector: &Selector) -> bool {
        self.pods.values().any(|pod| selector.matches(&pod.sighting.facts.labels))
    }

    pub fn has_no_members(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_none_or(|group| group.members.is_empty())
    }

    /// The pods that carry the label or the token of a lease and are not in the group.
    pub fn strays(&self, lease: &str, group: Option<GroupId>) -> Vec<Arc<PodFacts>> {
        let carriers = self.carriers.get(lease).into_iter().flatten().filter_map(|uid| self.pods.get(uid));
        let outside = carriers.filter(|pod| group.is_none_or(|group| !pod.groups.contains(&group)));
        outside.map(|pod| pod.sighting.facts.clone()).collect()
    }

    /// The pod with this UID, if it carries the label or the token of the lease.
    pub fn stray(&self, lease: &str, uid: &str) -> Option<Arc<PodFacts>> {
        self.carriers.get(lease)?.get(uid)?;
        self.pods.get(uid).map(|pod| pod.sighting.facts.clone())
    }

    /// The names of leases that pods carry and that are not in [`Namespace::names`].
    pub fn orphans(&self) -> impl Iterator<Item = &str> {
        self.carriers.keys().map(String::as_str).filter(|lease| !self.names.contains_key(*lease))
    }

    /// Records that another pod holds the lease.
    pub fn move_holder(&mut self, lease: LeaseId, before: Option<&str>, now: Option<&str>) {
        if let Some(uid) = before {
            remove_from(&mut self.holders, uid, &lease);
        }
        if let Some(uid) = now {
            self.holders.entry(PodUid::from(uid)).or_default().insert(lease);
        }
    }

    pub fn holds_a_lease(&self, uid: &str) -> bool {
        self.holders.contains_key(uid)
    }

    fn groups_of(&self, pod: &PodFacts) -> Vec<GroupId> {
        let matches = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.selector.matches(&pod.labels));
        self.selectors.candidates(&pod.labels).filter(matches).collect()
    }
}

/// The role and the token that a pod carries, by the name of the lease.
fn roles(pod: &PodFacts) -> BTreeMap<&str, [Option<&str>; 2]> {
    let mut roles: BTreeMap<&str, [Option<&str>; 2]> = BTreeMap::new();
    for (key, role) in &pod.labels {
        if let Some(lease) = names::lease_of_role_label(key) {
            roles.entry(lease).or_default()[0] = Some(role);
        }
    }
    for (key, token) in pod.annotations.iter() {
        if let Some(lease) = names::lease_of_token_annotation(key) {
            roles.entry(lease).or_default()[1] = Some(token);
        }
    }
    roles
}

/// Whether two versions of a pod differ in something that concerns all leases. The resource version and the roles for
/// single leases do not count.
fn differs(before: &PodFacts, now: &PodFacts) -> bool {
    let of_all = |pod: &PodFacts| {
        let mut pod = PodFacts { resource_version: None, ..pod.clone() };
        pod.labels.retain(|key, _| names::lease_of_role_label(key).is_none());
        let kept = pod.annotations.iter().filter(|(key, _)| names::lease_of_token_annotation(key).is_none());
        pod.annotations = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        pod
    };
    of_all(before) != of_all(now)
}
