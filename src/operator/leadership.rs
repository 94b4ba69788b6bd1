//! What this process may decide. Replicas do not elect a leader yet: each one leads.

use crate::plan::Authority;

/// Asked once for each turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leadership;

impl Leadership {
    /// What this process may decide about the leases of a quorum.
    #[allow(clippy::unused_self, reason = "the answer will depend on the quorum's leader")]
    pub const fn authority(self, quorum: &str) -> Authority {
        let _ = quorum;
        Authority::Lead
    }
}
