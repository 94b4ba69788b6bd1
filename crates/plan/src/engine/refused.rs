//! The back-off of the writes that remove marks of leases that do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::time::{Millis, Time};

use crate::plan::Timers;
use crate::plan::guard::PAUSE;

/// After so many removals, the next one waits.
const CORRECTIONS: u32 = 3;
/// A mark that is written later than this after its removal is a new one.
const FORGOTTEN: Millis = Millis(600_000);

/// The mark of one lease on one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrphanKey {
    /// The namespace of both.
    pub namespace: Arc<str>,
    /// The name of the lease.
    pub lease: Arc<str>,
    /// The UID of the pod or workload.
    pub object: Arc<str>,
}

/// The marks whose removal was refused, undone on its way, or stored lately: somebody may write them again and again.
#[derive(Debug, Default)]
pub(super) struct Refused {
    marks: BTreeMap<OrphanKey, Pause>,
    /// When the next write of each is due. None while one is under way, or if none is needed.
    due: Timers<OrphanKey>,
    /// How many marks there may be before those that nobody has written again are dropped.
    many: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// How often in a row the removal was refused.
    refusals: u32,
    /// How often it was stored, each time less than [`FORGOTTEN`] after the last.
    stored: u32,
    stored_at: Time,
    not_before: Time,
}

impl Refused {
    /// When the next write is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first()
    }

    pub fn add(&mut self, now: Time, key: OrphanKey) {
        let pause = self.marks.entry(key.clone()).or_default();
        pause.refusals = pause.refusals.saturating_add(1);
        pause.not_before = now + PAUSE.delay(pause.refusals);
        self.due.set(key, Some(pause.not_before));
    }

    /// The mark was removed. If others write it again and again, its removal waits longer each time.
    pub fn stored(&mut self, now: Time, key: OrphanKey) {
        let is_recent = |pause: &Pause| now < pause.stored_at + FORGOTTEN;
        if self.marks.len() > self.many {
            let due = &self.due;
            self.marks.retain(|key, pause| due.get(key).is_some() || pause.refusals > 0 || is_recent(pause));
            self.many = 2 * self.marks.len();
        }
        self.due.set(key.clone(), None);
        let pause = self.marks.entry(key).or_default();
        let stored = if is_recent(pause) { pause.stored.saturating_add(1) } else { 1 };
        let wait = stored.checked_sub(CORRECTIONS).map_or(Millis::ZERO, |fights| PAUSE.delay(fights + 1));
        *pause = Pause { refusals: 0, stored, stored_at: now, not_before: now + wait };
    }

    pub fn forget(&mut self, key: &OrphanKey) {
        self.marks.remove(key);
        self.due.set(key.clone(), None);
    }

    /// The mark does not need to be removed any more.
    pub fn unneeded(&mut self, key: &OrphanKey) {
        match self.marks.get_mut(key) {
            Some(pause) if pause.stored > 0 => {
                pause.refusals = 0;
                self.due.set(key.clone(), None);
            }
            _ => self.forget(key),
        }
    }

    /// Whether the mark may be removed now. Then a write is under way.
    pub fn may_write(&mut self, now: Time, key: &OrphanKey) -> bool {
        let Some(not_before) = self.marks.get(key).map(|pause| pause.not_before) else { return true };
        let waits = now < not_before;
        self.due.set(key.clone(), waits.then_some(not_before));
        !waits
    }

    /// The marks whose pause is over.
    pub fn take_due(&mut self, now: Time) -> Vec<OrphanKey> {
        std::iter::from_fn(|| self.due.expired(now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_removed_only_after_its_pause_whatever_causes_the_write() {
        let key = OrphanKey { namespace: "n".into(), lease: "gone".into(), object: "uid-p".into() };
        let mut refused = Refused::default();
        assert!(refused.may_write(Time(0), &key));
        refused.add(Time(0), key.clone());
        assert!(!refused.may_write(Time(999), &key));
        assert_eq!(refused.next_deadline(), Some(Time(1000)));
        assert!(refused.may_write(Time(1000), &key));
        assert_eq!((refused.next_deadline(), refused.take_due(Time(2000))), (None, vec![]), "a write is under way");
    }

    #[test]
    fn marks_that_nobody_writes_again_are_forgotten() {
        let mut refused = Refused::default();
        for number in 0..10_000 {
            let object = format!("uid-{number}").as_str().into();
            let key = OrphanKey { namespace: "n".into(), lease: "gone".into(), object };
            refused.stored(Time(number * 10_000), key);
        }
        assert!(refused.marks.len() < 200, "{}", refused.marks.len());
    }
}
