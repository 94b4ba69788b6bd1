//! The limit of events on pods. In a storm they are left out: the event of the lease says the same, and many pods with the same
//! mistake in an annotation come from one pod template.
//!
//! Half of the limit is for every namespace. The other half is for namespaces that had few events on pods lately, so that a
//! storm in one namespace leaves room for the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::time::Time;
use redislease_plan::plan::Bucket;

/// So many of the events are for namespaces that have not used up their share.
const RESERVED: u64 = 50;

/// The events on pods that were added lately.
#[derive(Debug, Default)]
pub(super) struct PodEvents {
    /// 100 at once, and five in a second.
    all: Bucket<100, 200_000>,
    /// By namespace: 10 at once, and one in two seconds. An entry is removed when its events do not count any more, so there are at
    /// most as many as events were added meanwhile.
    shares: BTreeMap<Arc<str>, Bucket<10, 2_000_000>>,
}

impl PodEvents {
    /// Whether an event on a pod of this namespace may be added now. Counts it.
    pub fn takes(&mut self, now: Time, namespace: &Arc<str>) -> bool {
        self.shares.retain(|_, share| !share.is_full(now));
        let mut share = self.shares.get(namespace).copied().unwrap_or_default();
        let has_share = share.has(now, 1);
        if !self.all.has(now, if has_share { 1 } else { RESERVED + 1 }) {
            return false;
        }
        if has_share {
            share.take(now);
            self.shares.insert(namespace.clone(), share);
        }
        self.all.take(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(events: &mut PodEvents, now: u64, namespace: &str) -> usize {
        let namespace: Arc<str> = namespace.into();
        (0..1000).filter(|_| events.takes(Time(now), &namespace)).count()
    }

    #[test]
    fn in_a_storm_a_namespace_leaves_room_for_others() {
        let mut events = PodEvents::default();
        assert_eq!(taken(&mut events, 5000, "noisy"), 50);
        assert_eq!(taken(&mut events, 5000, "a"), 10);
        // The noisy one goes on, and the next ones still get their share.
        for second in 6..20 {
            taken(&mut events, second * 1000, "noisy");
        }
        let others: Vec<usize> = ["b", "c", "d"].map(|name| taken(&mut events, 20_000, name)).into();
        assert_eq!(others, [10, 10, 10]);
    }

    #[test]
    fn all_together_add_a_hundred_and_then_five_in_a_second() {
        let mut events = PodEvents::default();
        let mut all =
            |now: u64| -> usize { (0..100).map(|number| taken(&mut events, now, &format!("n-{number}"))).sum() };
        assert_eq!([all(5000), all(6000), all(6100), all(600_000)], [100, 5, 0, 100]);
        assert!(events.shares.len() <= 100);
    }

    #[test]
    fn one_namespace_gets_what_nobody_else_needs() {
        let mut events = PodEvents::default();
        assert_eq!([5000, 6000, 600_000].map(|now| taken(&mut events, now, "only")), [50, 5, 50]);
        assert_eq!(events.shares.len(), 1);
        taken(&mut events, 1_200_000, "other");
        assert_eq!(events.shares.len(), 1, "old entries are removed");
    }
}
