//! The pods, as the watch shows them.
//!
//! The last event of a pod decides whether its keys may be released, so events are read as they come: a store that
//! only knows what exists would have lost the word that matters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redislease_core::time::Time;
use tokio::sync::watch;

use crate::election::{PodFacts, Sighting};

/// How many pods that are gone are remembered: more than can end between two looks at a lease.
const REMEMBERED: usize = 10_000;

/// What is known about one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Never seen, and not missed either.
    Unseen,
    /// It exists.
    Here(Box<Sighting>),
    /// It is gone.
    Gone {
        /// Whether its last event proved that its processes have ended.
        stopped: bool,
    },
}

/// When the API server was asked: before, in or after which list.
#[derive(Clone, Copy, Debug)]
pub struct Asked(u64);

/// The pods of all watched namespaces.
#[derive(Debug, Default)]
pub struct Pods {
    state: Mutex<State>,
    /// Counts the changes by namespace, for those who wait for one.
    changes: Mutex<BTreeMap<String, watch::Sender<u64>>>,
}

#[derive(Debug, Default)]
struct State {
    /// By namespace, then UID.
    here: BTreeMap<String, BTreeMap<String, Sighting>>,
    gone: BTreeMap<String, bool>,
    gone_order: VecDeque<String>,
    listed: bool,
    /// How often a list has begun or ended.
    lists: u64,
    /// While a list runs: which pods it has named.
    relist: Option<BTreeSet<(String, String)>>,
}

impl Pods {
    /// Follows the changes in a namespace.
    pub fn watch(&self, namespace: &str) -> watch::Receiver<u64> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.retain(|_, changes| changes.receiver_count() > 0);
        changes.entry(namespace.to_owned()).or_default().subscribe()
    }

    /// Whether all pods have been listed once.
    pub fn listed(&self) -> bool {
        self.lock().listed
    }

    /// The pods of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> Vec<Sighting> {
        self.lock().here.get(namespace).map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }

    /// Every pod.
    pub fn all(&self) -> Vec<PodFacts> {
        self.lock().here.values().flat_map(BTreeMap::values).map(|pod| PodFacts::clone(&pod.facts)).collect()
    }

    /// What is known about the pod with this UID.
    pub fn find(&self, namespace: &str, uid: &str) -> Known {
        let state = self.lock();
        if let Some(sighting) = state.here.get(namespace).and_then(|pods| pods.get(uid)) {
            return Known::Here(Box::new(sighting.clone()));
        }
        state.gone.get(uid).map_or(Known::Unseen, |&stopped| Known::Gone { stopped })
    }

    /// A list begins.
    pub fn list_begins(&self) {
        let mut state = self.lock();
        state.lists += 1;
        state.relist = Some(BTreeSet::new());
    }

    /// The list is complete: what it did not name has gone without a last word.
    pub fn list_ends(&self) {
        let mut state = self.lock();
        state.lists += 1;
        if let Some(named) = state.relist.take() {
            let missed: Vec<(String, String)> = state
                .here
                .iter()
                .flat_map(|(namespace, pods)| pods.keys().map(|uid| (namespace.clone(), uid.clone())))
                .filter(|pod| !named.contains(pod))
                .collect();
            for (namespace, uid) in missed {
                state.bury(&namespace, &uid, false);
            }
        }
        state.listed = true;
        drop(state);
        self.changed(None);
    }

    /// To be called before the API server is asked for a pod: where the lists stood then.
    pub fn ask(&self) -> Asked {
        Asked(self.lock().lists)
    }

    /// A pod was seen, by an event or a list.
    pub fn seen(&self, facts: PodFacts, now: Time) {
        let mut state = self.lock();
        if let Some(named) = &mut state.relist {
            named.insert((facts.namespace.clone(), facts.uid.clone()));
        }
        self.learn(state, facts, now);
    }

    /// A pod was seen in the answer to what was [asked](Self::ask).
    ///
    /// What a list has overtaken may have ended before the list was made, and then no event will ever say so: such an
    /// answer adds no pod, and no answer stands for the list.
    pub fn answered(&self, asked: Asked, facts: PodFacts, now: Time) {
        let state = self.lock();
        let known = state.here.get(&facts.namespace).is_some_and(|pods| pods.contains_key(&facts.uid));
        let overtaken = state.relist.is_some() || state.lists != asked.0;
        if known || !overtaken {
            self.learn(state, facts, now);
        }
    }

    fn learn(&self, mut state: MutexGuard<'_, State>, facts: PodFacts, now: Time) {
        // An answer that was on its way while the watch went on is older than what the watch said.
        if state.gone.contains_key(&facts.uid) {
            return;
        }
        let pods = state.here.entry(facts.namespace.clone()).or_default();
        let before = pods.get(&facts.uid);
        if before.is_some_and(|before| is_older(&facts, &before.facts)) {
            return;
        }
        let sighting = Sighting::now(facts, now, before);
        // Whoever decides does not care for a new resource version; whoever writes is told by a conflict.
        let same = before.is_some_and(|before| {
            PodFacts { resource_version: sighting.facts.resource_version.clone(), ..PodFacts::clone(&before.facts) }
                == *sighting.facts
        });
        let namespace = sighting.facts.namespace.clone();
        pods.insert(sighting.facts.uid.clone(), sighting);
        drop(state);
        if !same {
            self.changed(Some(&namespace));
        }
    }

    /// The last event of a pod.
    pub fn deleted(&self, facts: &PodFacts) {
        self.gone(&facts.namespace, &facts.uid, facts.proves_stopped_when_deleted());
    }

    /// The API server does not know the pod any more.
    pub fn missed(&self, namespace: &str, uid: &str) {
        self.gone(namespace, uid, false);
    }

    /// The pod is gone, and its processes have ended.
    pub fn proven(&self, namespace: &str, uid: &str) {
        self.gone(namespace, uid, true);
    }

    fn gone(&self, namespace: &str, uid: &str, stopped: bool) {
        self.lock().bury(namespace, uid, stopped);
        self.changed(Some(namespace));
    }

    fn changed(&self, namespace: Option<&str>) {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let concerned = |other: &str| namespace.is_none_or(|namespace| namespace == other);
        for (_, changes) in changes.iter().filter(|(other, _)| concerned(other)) {
            changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `facts` are of an older version than `known`.
fn is_older(facts: &PodFacts, known: &PodFacts) -> bool {
    let version = |facts: &PodFacts| facts.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok());
    matches!((version(facts), version(known)), (Some(now), Some(before)) if now < before)
}

impl State {
    /// A later word can only prove more: that a pod was missed takes no proof back.
    fn bury(&mut self, namespace: &str, uid: &str, stopped: bool) {
        let seen = self.here.get_mut(namespace).and_then(|pods| pods.remove(uid));
        let stopped = stopped || seen.is_some_and(|pod| pod.facts.stopped);
        if let Some(known) = self.gone.get_mut(uid) {
            *known |= stopped;
            return;
        }
        self.gone.insert(uid.to_owned(), stopped);
        self.gone_order.push_back(uid.to_owned());
        if self.gone_order.len() > REMEMBERED
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, stopped: bool) -> PodFacts {
        PodFacts { uid: uid.into(), finished: stopped, stopped, ..PodFacts::running(uid) }
    }

    #[test]
    fn the_last_event_is_the_proof_or_not() {
        let pods = Pods::default();
        pods.seen(pod("a", false), Time(0));
        pods.deleted(&pod("a", true));
        pods.seen(pod("b", false), Time(0));
        pods.deleted(&pod("b", false));
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: true });
        assert_eq!(pods.find("n", "b"), Known::Gone { stopped: false });
        assert_eq!(pods.find("n", "c"), Known::Unseen);
    }

    #[test]
    fn a_pod_that_a_new_list_does_not_name_is_gone_without_proof() {
        let pods = Pods::default();
        pods.seen(pod("a", false), Time(0));
        pods.seen(pod("b", false), Time(0));
        assert!(!pods.listed());
        pods.list_begins();
        pods.seen(pod("b", false), Time(1));
        pods.list_ends();
        assert!(pods.listed());
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: false });
        assert!(matches!(pods.find("n", "b"), Known::Here(_)));
    }

    #[test]
    fn a_pod_seen_stopped_and_then_missed_has_stopped() {
        let pods = Pods::default();
        pods.seen(pod("a", true), Time(0));
        pods.missed("n", "a");
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: true });
        pods.missed("n", "a");
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: true });
    }

    #[test]
    fn an_answer_does_not_stand_for_the_list() {
        let pods = Pods::default();
        pods.seen(pod("a", false), Time(0));
        let asked = pods.ask();
        pods.list_begins();
        pods.answered(asked, pod("a", false), Time(1));
        pods.list_ends();
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: false }, "it was deleted before the list was made");
    }

    #[test]
    fn an_answer_that_a_list_has_overtaken_adds_no_pod() {
        let pods = Pods::default();
        let before = pods.ask();
        pods.list_begins();
        let during = pods.ask();
        pods.answered(during, pod("a", false), Time(0));
        assert_eq!(pods.find("n", "a"), Known::Unseen, "the list will name it, or it is gone");
        pods.list_ends();
        for asked in [before, during] {
            pods.answered(asked, pod("a", false), Time(1));
            assert_eq!(pods.find("n", "a"), Known::Unseen);
        }
        pods.answered(pods.ask(), pod("a", false), Time(1));
        assert!(matches!(pods.find("n", "a"), Known::Here(_)), "asked after the list");
    }

    #[test]
    fn a_late_answer_brings_no_pod_back_and_takes_no_news_back() {
        let of_version =
            |version: &str, ready: bool| PodFacts { resource_version: Some(version.into()), ready, ..pod("a", false) };
        let pods = Pods::default();
        pods.seen(of_version("11", false), Time(0));
        pods.seen(of_version("10", true), Time(1));
        let Known::Here(sighting) = pods.find("n", "a") else { panic!("a is here") };
        assert!(!sighting.facts.ready, "the older answer came later");
        pods.deleted(&pod("a", true));
        pods.seen(of_version("12", true), Time(2));
        assert_eq!(pods.find("n", "a"), Known::Gone { stopped: true });
    }

    #[test]
    fn a_new_resource_version_alone_wakes_nobody() {
        let pods = Pods::default();
        pods.seen(pod("a", false), Time(0));
        let watch = pods.watch("n");
        let elsewhere = pods.watch("m");
        pods.seen(PodFacts { resource_version: Some("7".into()), ..pod("a", false) }, Time(1));
        assert!(!watch.has_changed().unwrap());
        let Known::Here(sighting) = pods.find("n", "a") else { panic!("a is here") };
        assert_eq!(sighting.facts.resource_version.as_deref(), Some("7"));
        pods.seen(PodFacts { ready: false, ..pod("a", false) }, Time(2));
        assert!(watch.has_changed().unwrap());
        assert!(!elsewhere.has_changed().unwrap());
    }
}
