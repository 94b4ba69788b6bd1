//! The back-off of the writes that remove marks of leases that do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::time::Time;

use crate::plan::guard::PAUSE;

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

/// The marks whose removal was refused, or undone on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused(BTreeMap<OrphanKey, Pause>);

#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    /// How often in a row.
    refusals: u32,
    /// When the next write is due. `None` while one is under way.
    due: Option<Time>,
}

impl Refused {
    /// When the next write is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.0.values().filter_map(|pause| pause.due).min()
    }

    pub fn add(&mut self, now: Time, key: OrphanKey) {
        let pause = self.0.entry(key).or_default();
        pause.refusals = pause.refusals.saturating_add(1);
        pause.due = Some(now + PAUSE.delay(pause.refusals));
    }

    pub fn forget(&mut self, key: &OrphanKey) {
        self.0.remove(key);
    }

    /// Whether the mark may be removed now. Then a write is under way.
    pub fn may_write(&mut self, now: Time, key: &OrphanKey) -> bool {
        let Some(pause) = self.0.get_mut(key) else { return true };
        let waits = pause.due.is_some_and(|due| now < due);
        if !waits {
            pause.due = None;
        }
        !waits
    }

    /// The marks whose pause is over.
    pub fn take_due(&mut self, now: Time) -> Vec<OrphanKey> {
        let due = self.0.iter_mut().filter(|(_, pause)| pause.due.is_some_and(|due| due <= now));
        due.map(|(key, pause)| {
            pause.due = None;
            key.clone()
        })
        .collect()
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
}
