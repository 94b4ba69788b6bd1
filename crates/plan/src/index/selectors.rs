//! Finds the selectors that can match a pod by the pod's labels, without trying all of them.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector};

/// Numbers the groups of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(pub u32);

/// The index entry of a selector: every matching pod has a label with this key and one of these values; `None` is any value.
type Anchor = (String, Vec<Option<String>>);

/// The selectors of one namespace, indexed by the labels they require.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    by_label: BTreeMap<String, BTreeMap<Option<String>, Vec<GroupId>>>,
    /// Those that require no label.
    rest: Vec<GroupId>,
    /// The entry of each selector that requires a label.
    anchors: BTreeMap<GroupId, Anchor>,
}

impl Selectors {
    pub fn insert(&mut self, id: GroupId, selector: &Selector) {
        let Some((key, values)) = self.anchor(selector) else { return self.rest.push(id) };
        let by_value = self.by_label.entry(key.clone()).or_default();
        for value in &values {
            by_value.entry(value.clone()).or_default().push(id);
        }
        self.anchors.insert(id, (key, values));
    }

    pub fn remove(&mut self, id: GroupId) {
        let Some((key, values)) = self.anchors.remove(&id) else { return self.rest.retain(|other| *other != id) };
        let Some(by_value) = self.by_label.get_mut(&key) else { return };
        for value in values {
            let Some(groups) = by_value.get_mut(&value) else { continue };
            groups.retain(|other| *other != id);
            if groups.is_empty() {
                by_value.remove(&value);
            }
        }
        if by_value.is_empty() {
            self.by_label.remove(&key);
        }
    }

    /// The selectors that may match a pod with these labels. Each appears at most once.
    pub fn candidates<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> impl Iterator<Item = GroupId> + 'a {
        let by_label = labels.iter().filter_map(|(key, value)| Some((self.by_label.get(key)?, value)));
        let anchored = by_label.flat_map(|(by_value, value)| [by_value.get(&Some(value.clone())), by_value.get(&None)]);
        anchored.flatten().flatten().chain(&self.rest).copied()
    }

    /// The rarest of the labels that the selector requires.
    fn anchor(&self, selector: &Selector) -> Option<Anchor> {
        let cost = |(key, values): &Anchor| {
            let by_value = self.by_label.get(key);
            let filed = |value| by_value.and_then(|by_value| by_value.get(value)).map_or(0, Vec::len);
            values.iter().map(filed).max()
        };
        let anchors = selector.clone().into_iter().filter_map(|expression| match expression {
            Expression::Equal(key, value) => Some((key, vec![Some(value)])),
            Expression::In(key, values) => Some((key, values.into_iter().map(Some).collect())),
            Expression::Exists(key) => Some((key, vec![None])),
            Expression::NotIn(..) | Expression::NotEqual(..) | Expression::DoesNotExist(_) => None,
        });
        anchors.min_by_key(cost)
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
        assert!(selectors.by_label.is_empty() && selectors.anchors.is_empty() && selectors.rest.is_empty());
    }
}
