//! Kubernetes events that wait to be sent. Repeated ones are merged.
//!
//! `kube::runtime::events::Recorder` is not used: it sets the time of sending as the time of the event, and the events
//! here wait before they are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use redislease_core::time::Time;
use redislease_plan::plan::Bucket;
use redislease_plan::plan::calls::EventKey;
use redislease_plan::status::{Notice, NoticeReason};

use super::pod_events::PodEvents;

/// How many events wait at most; further ones are dropped and counted.
const CAPACITY: usize = 1000;
/// The rate of the events of one object: ten at once, and one more in 30 s. Further ones are merged by reason.
type Rate = Bucket<10, 30_000_000>;
/// For how many objects the sent events are counted.
const OBJECTS: usize = 4096;

/// Longest note that the API server takes, in bytes.
const NOTE: usize = 1024;
/// Longest name that the API server takes, in bytes.
const NAME: usize = 253;

#[derive(Debug)]
struct Pending {
    notice: Notice,
    object: ObjectReference,
    happened: jiff::Timestamp,
    last: jiff::Timestamp,
    count: i32,
    /// The last part of the event's name; `None`: the time.
    text: Option<String>,
}

/// When to send an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// A new entry, to be sent at this time. If too many were pending, one of the namespace with the most was dropped for it.
    New { key: EventKey, due: Time, dropped: Option<EventKey> },
    /// It was merged with a pending event.
    Merged,
    /// It was dropped: too many events are pending.
    Dropped,
}

/// The pending events, and how many each object has sent.
#[derive(Debug, Default)]
pub(super) struct Events {
    pending: BTreeMap<EventKey, Pending>,
    /// By object: what its sent events have left of its rate.
    sent: BTreeMap<Arc<str>, Rate>,
    /// How many of the pending events each namespace has.
    by_namespace: BTreeMap<Arc<str>, usize>,
    /// Those of leases on pods.
    pub pods: PodEvents,
    /// Those about the annotations of pods. They have a limit of their own: many mistakes must not hide what happens to leases.
    pub mistakes: PodEvents,
}

impl Events {
    /// Adds an event of an object.
    pub fn add(&mut self, now: Time, happened: jiff::Timestamp, notice: Notice, object: ObjectReference) -> Accepted {
        let uid: Arc<str> = object.uid.as_deref().unwrap_or_default().into();
        self.put(now, happened, uid.clone(), (uid, notice.reason), Pending::new(happened, notice, object, None))
    }

    /// Adds an event of an object whose name is made from its text: the API server refuses a second one.
    pub fn add_once(
        &mut self,
        now: Time,
        happened: jiff::Timestamp,
        notice: Notice,
        object: ObjectReference,
    ) -> Accepted {
        let uid: Arc<str> = object.uid.as_deref().unwrap_or_default().into();
        let (text, key) = once(&uid, notice.reason, &notice.note);
        self.put(now, happened, uid, key, Pending::new(happened, notice, object, Some(text)))
    }

    /// Withdraws a pending event of [`Events::add_once`]. Its object may send another one instead. Returns its key.
    pub fn withdraw_once(&mut self, uid: &str, reason: NoticeReason, note: &str) -> Option<EventKey> {
        let (_, key) = once(uid, reason, note);
        self.remove(&key)?;
        if let Some(rate) = self.sent.get_mut(uid) {
            rate.give_back();
        }
        Some(key)
    }

    fn put(&mut self, now: Time, happened: jiff::Timestamp, uid: Arc<str>, key: EventKey, new: Pending) -> Accepted {
        if let Some(pending) = self.pending.get_mut(&key) {
            (pending.notice, pending.last) = (new.notice, happened);
            pending.count = pending.count.saturating_add(1);
            return Accepted::Merged;
        }
        let namespace = namespace_of(&new);
        let mut dropped = None;
        if self.pending.len() >= CAPACITY {
            dropped = self.drop_one_for(&namespace);
            if dropped.is_none() {
                return Accepted::Dropped;
            }
        }
        if self.sent.len() >= OBJECTS {
            self.sent.retain(|_, rate| !rate.is_full(now));
        }
        let mut rate = self.sent.get(&uid).copied().unwrap_or_default();
        let due = rate.available_at(1).max(now);
        rate.take(now);
        if self.sent.len() < OBJECTS || self.sent.contains_key(&uid) {
            self.sent.insert(uid, rate);
        }
        self.pending.insert(key.clone(), new);
        *self.by_namespace.entry(namespace).or_default() += 1;
        Accepted::New { key, due, dropped }
    }

    /// Takes the pending event with this key, to send it now. `None` if it was dropped meanwhile.
    pub fn take(&mut self, key: &EventKey, instance: &str) -> Option<Event> {
        self.remove(key).map(|pending| pending.event(instance))
    }

    /// Drops a pending event of the namespace that has the most, unless this one would have as many then.
    fn drop_one_for(&mut self, namespace: &str) -> Option<EventKey> {
        let (most, count) = self.by_namespace.iter().max_by_key(|(_, count)| **count)?;
        if *count <= self.by_namespace.get(namespace).map_or(1, |own| own + 1) {
            return None;
        }
        let (key, _) = self.pending.iter().find(|(_, pending)| namespace_of(pending) == *most)?;
        let key = key.clone();
        self.remove(&key);
        Some(key)
    }

    fn remove(&mut self, key: &EventKey) -> Option<Pending> {
        let pending = self.pending.remove(key)?;
        let namespace = namespace_of(&pending);
        if let Some(count) = self.by_namespace.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                self.by_namespace.remove(&namespace);
            }
        }
        Some(pending)
    }
}

/// The last part of the name of an event that is made from its text, and its key.
fn once(uid: &str, reason: NoticeReason, note: &str) -> (String, EventKey) {
    let text = format!("{:016x}", digest(&[uid, reason.as_str(), note]));
    let key = (format!("{uid}/{text}").into(), reason);
    (text, key)
}

fn namespace_of(pending: &Pending) -> Arc<str> {
    pending.object.namespace.as_deref().unwrap_or_default().into()
}

impl Pending {
    const fn new(happened: jiff::Timestamp, notice: Notice, object: ObjectReference, text: Option<String>) -> Self {
        Self { notice, object, happened, last: happened, count: 1, text }
    }

    fn event(self, instance: &str) -> Event {
        let Self { notice, object, happened, last, count, text } = self;
        let suffix = text.unwrap_or_else(|| format!("{:x}", happened.as_nanosecond()));
        let name = event_name(object.name.as_deref().unwrap_or("redislease"), &suffix);
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".into());
        let mut note = notice.note;
        note.truncate(note.floor_char_boundary(NOTE));
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            action: Some(notice.reason.as_str().into()),
            reason: Some(notice.reason.as_str().into()),
            note: Some(note),
            type_: Some(notice.reason.importance().as_str().into()),
            event_time: Some(MicroTime(happened)),
            series: (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(last) }),
            regarding: Some(object),
            reporting_controller: Some("redislease.io/operator".into()),
            reporting_instance: Some(instance.to_owned()),
            ..Event::default()
        }
    }
}

/// The name of an event of an object: the object's name, shortened to fit, and the time or another suffix.
fn event_name(object: &str, suffix: &str) -> String {
    let fits = object.floor_char_boundary(NAME - 1 - suffix.len());
    // No part of a name may end with a hyphen or be empty.
    format!("{}.{suffix}", object[..fits].trim_end_matches(['-', '.']))
}

/// The FNV-1a digest of some texts: the same in every version of the operator.
fn digest(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(note: &str, reason: NoticeReason) -> Notice {
        Notice { reason, note: note.into(), on_pods: Vec::new() }
    }

    fn on(uid: &str) -> ObjectReference {
        ObjectReference { uid: Some(uid.into()), name: Some("billing".into()), ..ObjectReference::default() }
    }

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_795_262_400 + second).unwrap()
    }

    #[test]
    fn pending_events_are_merged_and_keep_their_times() {
        let mut events = Events::default();
        let acquired = |note: &str| notice(note, NoticeReason::Acquired);
        let first = events.add(Time(0), at(0), acquired("one"), on("a"));
        let Accepted::New { key, due, .. } = first else { panic!("{first:?}") };
        assert_eq!(due, Time(0));
        assert_eq!(events.add(Time(1), at(1), acquired("two"), on("a")), Accepted::Merged);
        assert!(matches!(events.add(Time(1), at(1), acquired("other"), on("b")), Accepted::New { .. }));
        let event = events.take(&key, "operator-0").unwrap();
        assert_eq!((event.note.as_deref(), event.event_time), (Some("two"), Some(MicroTime(at(0)))));
        assert_eq!(event.series, Some(EventSeries { count: 2, last_observed_time: MicroTime(at(1)) }));
        assert_eq!(events.take(&key, "operator-0"), None);
        events.add(Time(2), at(2), acquired("three"), on("a"));
        assert_eq!(events.take(&key, "operator-0").unwrap().series, None);
    }

    #[test]
    fn an_event_that_is_sent_once_has_a_name_from_its_text() {
        let mut events = Events::default();
        let mut name = |second: i64, note: &str, uid: &str| {
            let notice = notice(note, NoticeReason::UnknownAnnotation);
            let Accepted::New { key, .. } = events.add_once(Time(0), at(second), notice, on(uid)) else {
                panic!("new")
            };
            let event = events.take(&key, "operator-0").unwrap();
            assert_eq!(event.event_time, Some(MicroTime(at(second))));
            event.metadata.name.unwrap()
        };
        let first = name(0, "one", "a");
        assert_eq!(first, "billing.8315c26d55bffe3d", "another version of the operator makes the same name");
        assert_eq!(name(7, "one", "a"), first);
        assert_ne!(name(0, "two", "a"), first);
        assert_ne!(name(0, "one", "b"), first);
        // Events with different texts are not merged.
        for note in ["one", "two"] {
            let added = events.add_once(Time(0), at(0), notice(note, NoticeReason::UnknownAnnotation), on("a"));
            assert!(matches!(added, Accepted::New { .. }), "{added:?}");
        }
        let again = events.add_once(Time(0), at(0), notice("one", NoticeReason::UnknownAnnotation), on("a"));
        assert_eq!(again, Accepted::Merged);
    }

    #[test]
    fn an_object_with_many_events_sends_ten_and_then_one_in_30_s() {
        let mut events = Events::default();
        let mut dues = Vec::new();
        for _ in 0..13 {
            match events.add(Time(1000), at(0), notice("x", NoticeReason::Acquired), on("a")) {
                Accepted::New { key, due, .. } => {
                    dues.push(due.0);
                    events.take(&key, "i");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(dues[..10], [1000; 10]);
        assert_eq!(dues[10..], [31_000, 61_000, 91_000]);
        let later = events.add(Time(1_000_000), at(0), notice("x", NoticeReason::Acquired), on("a"));
        assert!(matches!(later, Accepted::New { due: Time(1_000_000), .. }), "{later:?}");
    }

    #[test]
    fn an_event_that_is_withdrawn_is_not_sent_and_leaves_its_place_to_another_one() {
        let mut events = Events::default();
        let mut due = Vec::new();
        let mut add = |events: &mut Events, note: &str| match events.add_once(
            Time(1000),
            at(0),
            notice(note, NoticeReason::InvalidAnnotation),
            on("a"),
        ) {
            Accepted::New { key, due: at, .. } => {
                due.push(at.0);
                key
            }
            other => panic!("{other:?}"),
        };
        for number in 0..10 {
            let key = add(&mut events, &number.to_string());
            events.take(&key, "i");
        }
        let waits = add(&mut events, "waits");
        let withdraw = |events: &mut Events, note| events.withdraw_once("a", NoticeReason::InvalidAnnotation, note);
        assert_eq!(withdraw(&mut events, "0"), None, "it was sent");
        assert_eq!(withdraw(&mut events, "waits"), Some(waits.clone()));
        assert_eq!((events.take(&waits, "i"), withdraw(&mut events, "waits")), (None, None));
        add(&mut events, "another");
        assert_eq!(due[10..], [31_000, 31_000]);
    }

    #[test]
    fn events_over_the_limit_are_dropped() {
        let mut events = Events::default();
        let mut add =
            |number: usize| events.add(Time(0), at(0), notice("x", NoticeReason::Acquired), on(&number.to_string()));
        assert!((0..CAPACITY).all(|number| matches!(add(number), Accepted::New { dropped: None, .. })));
        assert_eq!(add(CAPACITY), Accepted::Dropped);
        assert_eq!(add(7), Accepted::Merged);
    }

    #[test]
    fn a_namespace_with_many_events_makes_room_for_others() {
        let mut events = Events::default();
        let mut add = |number: usize, namespace: &str| {
            let object = ObjectReference { namespace: Some(namespace.into()), ..on(&format!("{namespace}-{number}")) };
            events.add(Time(0), at(0), notice("x", NoticeReason::Acquired), object)
        };
        assert!((0..CAPACITY).all(|number| matches!(add(number, "noisy"), Accepted::New { dropped: None, .. })));
        for number in 0..CAPACITY / 2 {
            let added = add(number, "quiet");
            assert!(
                matches!(&added, Accepted::New { dropped: Some((of, _)), .. } if of.starts_with("noisy-")),
                "{added:?}"
            );
        }
        // Now both have as many.
        assert_eq!([add(CAPACITY, "quiet"), add(CAPACITY, "noisy")], [Accepted::Dropped, Accepted::Dropped]);
        let counts: Vec<usize> = events.by_namespace.values().copied().collect();
        assert_eq!((counts, events.pending.len()), (vec![CAPACITY / 2; 2], CAPACITY));
        let keys: Vec<EventKey> = events.pending.keys().cloned().collect();
        assert!(keys.iter().all(|key| events.take(key, "i").is_some()) && events.by_namespace.is_empty());
    }

    #[test]
    fn the_name_of_an_event_fits() {
        let (suffix, time) = ("18ea0da41e9d8000", ".18ea0da41e9d8000");
        let event_name = |object: &str| event_name(object, suffix);
        assert_eq!(event_name("billing-0"), format!("billing-0{time}"));
        let long = event_name(&"a".repeat(253));
        assert_eq!(long, format!("{}{time}", "a".repeat(253 - time.len())));
        let cut = "a".repeat(253 - time.len() - 2);
        assert_eq!(event_name(&format!("{cut}.-bcd")), format!("{cut}{time}"));
    }
}
