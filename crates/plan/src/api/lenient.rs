//! Reads a status of which a part is unreadable: as if that part were absent.
//!
//! With a CustomResourceDefinition of another version, the API server drops fields that this version requires, and a newer version
//! writes values that this one does not know. The operator writes a status anew, so it does not ignore the object.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Part<T> {
    Readable(T),
    Unreadable(IgnoredAny),
}

impl<T> Part<T> {
    fn readable(self) -> Option<T> {
        match self {
            Self::Readable(value) => Some(value),
            Self::Unreadable(_) => None,
        }
    }
}

/// Reads a value. One that cannot be read is the default.
pub(super) fn value<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Part::deserialize(deserializer).map(|part| part.readable().unwrap_or_default())
}

/// Reads a list without the entries that cannot be read.
pub(super) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let entries: Vec<Part<T>> = value(deserializer)?;
    Ok(entries.into_iter().filter_map(Part::readable).collect())
}
