//! Whether a lease stays with its holder when one replica of the operator fails.
//!
//! The leader's lock on a quorum lasts [`LEADER_LEASE`]. Two failures take the longest:
//!
//! - *The leader dies.* Its lock ends at most one lock later, and the next leader adopts all terms within [`ADOPTION`]. Until then
//!   nobody renews: the keys must last that long after the last renewal before the failure.
//! - *The leader is cut off from Redis.* The status still names it, and without a quorum the named replica ends terms at their
//!   deadlines, one stop budget before the end of the keys. The next leader has its lock one lock later at most, and the status names
//!   it within [`NAMED`]: the first deadline must come after that.

use redislease_core::time::{Drift, Millis};

use crate::api::ValidLease;

/// How long the lock of the leader on a quorum lasts.
pub const LEADER_LEASE: Millis = Millis(5000);
/// How long before the end of its lock a leader stops deciding.
pub const LEADER_STOP_BUDGET: Millis = Millis(500);
/// How long a new leader needs at most until it has adopted all terms.
const ADOPTION: Millis = Millis(2000);
/// How long it takes at most until the status names a new leader, and the leader before it has seen that.
const NAMED: Millis = Millis(500);

/// Why the holder can change when one replica of the operator fails: a sentence about the durations. `None` if it stays.
pub fn risk(lease: &ValidLease) -> Option<String> {
    let drift = Drift::STANDARD;
    let unrenewed = drift.least(lease.lease_duration.into()).saturating_sub(lease.renew_interval.into());
    let dead = LEADER_LEASE + ADOPTION;
    let cut_off = LEADER_LEASE + NAMED + Millis::from(lease.stop_budget());
    let needed = dead.max(cut_off);
    (unrenewed < needed).then(|| {
        format!(
            "The holder can change when one replica of the operator fails: leaseDuration minus 1 % and renewInterval is {}, \
             and must be at least {}.",
            seconds(unrenewed),
            seconds(needed)
        )
    })
}

fn seconds(span: Millis) -> String {
    let tenths = (span.0 + 50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples;

    fn of(lease: &str, renew: &str, grace: &str) -> Option<String> {
        let durations = json!({"leaseDuration": lease, "renewInterval": renew, "gracePeriod": grace});
        let object = samples::lease("jobs", "billing", &durations);
        risk(&ValidLease::try_from(&object).expect("admission accepts it"))
    }

    #[test]
    fn the_durations_at_the_corners() {
        for (lease, renew, grace, stays) in [
            ("30s", "5s", "10s", true),
            ("15s", "2s", "5s", true),
            ("15s", "3s", "5s", true),
            // The deadline of a leader that is cut off comes before the next one is named.
            ("15s", "1s", "10s", false),
            ("15s", "1s", "8500ms", false),
            ("15s", "1s", "8s", false),
            ("15s", "2s", "6s", true),
            // The keys end before the next leader has adopted the term.
            ("10s", "2900ms", "100ms", false),
            ("9s", "2s", "1s", false),
            ("10s", "2s", "2s", false),
            ("10s", "2s", "1s", true),
        ] {
            let risk = of(lease, renew, grace);
            assert_eq!(risk.is_none(), stays, "{lease} {renew} {grace}: {risk:?}");
        }
        let risk = of("15s", "1s", "10s").unwrap();
        assert!(risk.contains("is 13.8 s, and must be at least 16.5 s"), "{risk}");
    }
}
