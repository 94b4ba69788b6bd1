//! Finds the selectors that can match a pod by the pod's labels, without trying all of them.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector};

/// Numbers the groups of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(pub u32);

/// The index entry of a selector: one label that every matching pod has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Anchor {
    /// A label with this key and one of these values.
    Values(String, Vec<String>),
    /// A label with this key.
    Key(String),
    /// No label is required.
    Anything,
}

/// The selectors of one namespace, indexed by the labels they require.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    by_value: BTreeMap<String, BTreeMap<String, Vec<GroupId>>>,
    by_key: BTreeMap<String, Vec<GroupId>>,
    rest: Vec<GroupId>,
    anchors: BTreeMap<GroupId, Anchor>,
}

impl Selectors {
    pub fn insert(&mut self, id: GroupId, selector: &Selector) {
        let anchor = self.anchor(selector);
        match &anchor {
            Anchor::Values(key, values) => {
                let by_value = self.by_value.entry(key.clone()).or_default();
                for value in values {
                    by_value.entry(value.clone()).or_default().push(id);
                }
            }
            Anchor::Key(key) => self.by_key.entry(key.clone()).or_default().push(id),
            Anchor::Anything => self.rest.push(id),
        }
        self.anchors.insert(id, anchor);
    }

    pub fn remove(&mut self, id: GroupId) {
        match self.anchors.remove(&id) {
            Some(Anchor::Values(key, values)) => {
                if let Some(by_value) = self.by_value.get_mut(&key) {
                    for value in values {
                        remove_from(by_value, &value, id);
                    }
                    if by_value.is_empty() {
                        self.by_value.remove(&key);
                    }
                }
            }
            Some(Anchor::Key(key)) => remove_from(&mut self.by_key, &key, id),
            Some(Anchor::Anything) => self.rest.retain(|other| *other != id),
            None => {}
        }
    }

    /// The selectors that may match a pod with these labels. Each appears at most once.
    pub fn candidates<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> impl Iterator<Item = GroupId> + 'a {
        let by_label = labels.iter().flat_map(|(key, value)| {
            let with_value = self.by_value.get(key).and_then(|by_value| by_value.get(value));
            with_value.into_iter().chain(self.by_key.get(key)).flatten()
        });
        by_label.chain(&self.rest).copied()
    }

    /// The rarest of the labels that the selector requires.
    fn anchor(&self, selector: &Selector) -> Anchor {
        let cost = |anchor: &Anchor| match anchor {
            Anchor::Values(key, values) => {
                let by_value = self.by_value.get(key);
                let filed = |value| by_value.and_then(|by_value| by_value.get(value)).map_or(0, Vec::len);
                values.iter().map(filed).max().unwrap_or(0)
            }
            Anchor::Key(key) => self.by_key.get(key).map_or(0, Vec::len),
            Anchor::Anything => usize::MAX,
        };
        let anchors = selector.clone().into_iter().filter_map(|expression| match expression {
            Expression::Equal(key, value) => Some(Anchor::Values(key, vec![value])),
            Expression::In(key, values) => Some(Anchor::Values(key, values.into_iter().collect())),
            Expression::Exists(key) => Some(Anchor::Key(key)),
            Expression::NotIn(..) | Expression::NotEqual(..) | Expression::DoesNotExist(_) => None,
        });
        anchors.min_by_key(cost).unwrap_or(Anchor::Anything)
    }
}

fn remove_from(groups: &mut BTreeMap<String, Vec<GroupId>>, key: &str, id: GroupId) {
    if let Some(ids) = groups.get_mut(key) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            groups.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(selectors: &Selectors, labels: &[(&str, &str)]) -> Vec<u32> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut found: Vec<u32> = selectors.candidates(&labels).map(|id| id.0).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn only_selectors_that_may_match_a_pod_are_tried() {
        let mut selectors = Selectors::default();
        let equal = |key: &str, value: &str| Expression::Equal(key.into(), value.into());
        selectors.insert(GroupId(0), &equal("app", "a").into());
        // `app=a` is already used by another selector, `shard=7` is rarer.
        selectors.insert(GroupId(1), &[equal("app", "a"), equal("shard", "7")].into_iter().collect());
        selectors.insert(GroupId(2), &Expression::In("app".into(), ["b".into(), "c".into()].into()).into());
        selectors.insert(GroupId(3), &Expression::Exists("shard".into()).into());
        selectors.insert(GroupId(4), &Expression::DoesNotExist("canary".into()).into());
        assert_eq!(found(&selectors, &[("app", "a")]), [0, 4]);
        assert_eq!(found(&selectors, &[("app", "a"), ("shard", "7")]), [0, 1, 3, 4]);
        assert_eq!(found(&selectors, &[("app", "c")]), [2, 4]);
        assert_eq!(found(&selectors, &[]), [4]);
        for id in 0..5 {
            selectors.remove(GroupId(id));
        }
        assert!(selectors.by_value.is_empty() && selectors.by_key.is_empty() && selectors.rest.is_empty());
    }
}
