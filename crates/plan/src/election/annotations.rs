//! The annotations of a pod that belong to RedisLease.

use crate::api::names;

/// Keys and values, sorted by key. Most pods have one or two, for which a map would allocate eleven places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Box<[(String, String)]>);

impl Annotations {
    /// The value of this key.
    pub fn get(&self, key: &str) -> Option<&String> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Changes the value of a key; `None` removes it.
    pub fn set(&mut self, key: &str, value: Option<&str>) {
        let others = std::mem::take(&mut self.0).into_vec().into_iter().filter(|(known, _)| known != key);
        *self = others.chain(value.map(|value| (key.to_owned(), value.to_owned()))).collect();
    }

    /// The priority, 0 without the annotation. `None` if its value is not an integer.
    pub fn priority(&self) -> Option<i64> {
        self.get(names::PRIORITY_ANNOTATION).map_or(Some(0), |text| text.trim().parse().ok())
    }

    /// Whether the pod is excluded from every election.
    pub fn excludes(&self) -> bool {
        self.get(names::EXCLUDE_ANNOTATION).is_some_and(|value| value == "true")
    }

    /// All annotations.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(String, String)> for Annotations {
    /// Each key must appear once.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        let mut all: Box<[_]> = all.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_found_by_their_key() {
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let all: Annotations = [("c", "3"), ("a", "1"), ("b", "2")].map(pair).into_iter().collect();
        assert_eq!(
            ["a", "b", "c", "d"].map(|key| all.get(key).map(String::as_str)),
            [Some("1"), Some("2"), Some("3"), None]
        );
        assert!(all.iter().map(|(key, _)| key).eq(["a", "b", "c"]));
        let mut changed = all.clone();
        changed.set("b", None);
        changed.set("d", Some("4"));
        changed.set("a", Some("5"));
        assert!(changed.iter().map(|(_, value)| value).eq(["5", "3", "4"]));
    }
}
