//! A queue of distinct items that serves tenants round-robin: a tenant with many items delays another tenant by one item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// FIFO within a tenant, round-robin between tenants. An item that is already queued is not queued again.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue<T> {
    by_tenant: BTreeMap<Arc<str>, VecDeque<T>>,
    /// The tenants that have items, the next one first.
    turns: VecDeque<Arc<str>>,
    queued: BTreeSet<T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { by_tenant: BTreeMap::new(), turns: VecDeque::new(), queued: BTreeSet::new() }
    }
}

impl<T: Clone + Ord> FairQueue<T> {
    /// Queues an item. Returns whether it was not queued before.
    pub fn push(&mut self, tenant: &Arc<str>, item: T) -> bool {
        if !self.queued.insert(item.clone()) {
            return false;
        }
        let items = self.by_tenant.entry(tenant.clone()).or_default();
        if items.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        items.push_back(item);
        true
    }

    /// The next item.
    pub fn pop(&mut self) -> Option<T> {
        let tenant = self.turns.pop_front()?;
        let items = self.by_tenant.get_mut(&tenant)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        self.queued.remove(&item);
        Some(item)
    }

    /// How many items are queued.
    #[cfg(feature = "operator")]
    pub fn len(&self) -> usize {
        self.queued.len()
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
}
