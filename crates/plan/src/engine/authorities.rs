//! What this process may decide about the leases of each quorum.

use std::collections::BTreeMap;

use crate::plan::Authority;

/// By the name of the quorum.
#[derive(Debug, Default)]
pub(super) struct Authorities(BTreeMap<String, Authority>);

impl Authorities {
    pub fn set(&mut self, quorum: &str, authority: Authority) {
        self.0.insert(quorum.to_owned(), authority);
    }

    /// Whether this process leads on each quorum.
    pub fn lead_everywhere(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|authority| *authority == Authority::Lead)
    }
}
