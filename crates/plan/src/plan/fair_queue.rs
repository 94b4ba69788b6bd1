//! A queue of distinct items that serves tenants round-robin: a tenant with many items delays another tenant by one item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Round-robin between tenants. Within a tenant, items of a smaller level go first, and FIFO within a level. An item that is
/// already queued at a level is not queued there again.
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    by_tenant: BTreeMap<Arc<str>, BTreeMap<usize, VecDeque<T>>>,
    /// The tenants that have items, the next one first.
    turns: VecDeque<Arc<str>>,
    queued: BTreeSet<(usize, T)>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { by_tenant: BTreeMap::new(), turns: VecDeque::new(), queued: BTreeSet::new() }
    }
}

impl<T: Clone + Ord> FairQueue<T> {
    /// Queues an item at level 0. Returns whether it was not queued before.
    pub fn push(&mut self, tenant: &Arc<str>, item: T) -> bool {
        self.push_at(tenant, 0, item)
    }

    /// Queues an item at this level. Returns whether it was not queued before.
    pub fn push_at(&mut self, tenant: &Arc<str>, level: usize, item: T) -> bool {
        if !self.queued.insert((level, item.clone())) {
            return false;
        }
        let levels = self.by_tenant.entry(tenant.clone()).or_default();
        if levels.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        levels.entry(level).or_default().push_back(item);
        true
    }

    /// The next item.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, item)| item)
    }

    /// The next item of a tenant that may have one, and its level.
    pub fn pop_of(&mut self, may: impl Fn(&Arc<str>) -> bool) -> Option<(usize, T)> {
        let place = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(place)?;
        let levels = self.by_tenant.get_mut(&tenant)?;
        let mut first = levels.first_entry()?;
        let level = *first.key();
        let item = first.get_mut().pop_front()?;
        if first.get().is_empty() {
            first.remove();
        }
        if levels.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        let entry = (level, item);
        self.queued.remove(&entry);
        Some(entry)
    }

    /// How many items are queued.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether an item of a tenant is queued that may have it.
    pub fn has_of(&self, may: impl Fn(&Arc<str>) -> bool) -> bool {
        self.turns.iter().any(may)
    }

    /// Whether no item is queued.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_once_and_tenants_in_turn() {
        let (large, small): (Arc<str>, Arc<str>) = ("large".into(), "small".into());
        let mut queue = FairQueue::default();
        for item in 0..1000 {
            assert!(queue.push(&large, item));
        }
        assert!(!queue.push(&large, 7), "queued already");
        assert!(queue.push(&small, 5000));
        assert!(queue.push(&small, 5001));
        let order: Vec<i32> = (0..5).filter_map(|_| queue.pop()).collect();
        assert_eq!(order, [0, 5000, 1, 5001, 2]);
        assert!(queue.push(&large, 0), "an item that was popped can be queued again");
        assert_eq!((queue.len(), queue.is_empty()), (998, false));
        assert_eq!(std::iter::from_fn(|| queue.pop()).last(), Some(0));
        assert!(queue.is_empty() && queue.by_tenant.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn within_a_tenant_smaller_levels_go_first() {
        let (large, small): (Arc<str>, Arc<str>) = ("large".into(), "small".into());
        let mut queue = FairQueue::default();
        for (level, item) in [(1, 10), (1, 11), (0, 20), (2, 30), (0, 21)] {
            queue.push_at(&large, level, item);
        }
        queue.push_at(&small, 2, 40);
        assert!(queue.push_at(&large, 2, 10), "queued at another level only");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_of(|_| true)).collect();
        assert_eq!(order, [(0, 20), (2, 40), (0, 21), (1, 10), (1, 11), (2, 30), (2, 10)]);
    }
}
