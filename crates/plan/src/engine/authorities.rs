//! What this process may decide about the leases of each quorum.

use std::collections::BTreeMap;

use crate::plan::Authority;

/// By the name of the quorum.
#[derive(Debug, Default)]
pub(super) struct Authorities(BTreeMap<String, Known>);

#[derive(Debug, Default)]
struct Known {
    authority: Authority,
    gains: u32,
}

impl Authorities {
    pub fn set(&mut self, quorum: &str, authority: Authority) {
        let known = self.0.entry(quorum.to_owned()).or_default();
        let decides = |authority| matches!(authority, Authority::Lead | Authority::End);
        if decides(authority) && !decides(known.authority) {
            known.gains = known.gains.wrapping_add(1);
        }
        known.authority = authority;
    }

    /// How often this process has gained the right to decide about the leases of the quorum.
    pub fn gains(&self, quorum: &str) -> u32 {
        self.0.get(quorum).map_or(0, |known| known.gains)
    }

    /// Whether this process leads on each quorum.
    pub fn lead_everywhere(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|known| known.authority == Authority::Lead)
    }
}
