//! The node's status, written by its task.

use redislease_core::admission::Standing;
use redislease_core::marker::Marker;
use redislease_core::seed::Unseedable;
use redislease_core::time::Millis;

use super::brief::brief;
use super::node::NodeTask;
use super::status::{Misconfiguration, NodeState};
use crate::clock;

/// Precedes the answer of the server to the current password or certificate.
const EARLIER: &str = "is connected with an earlier password or certificate, or without a login, because of the answer to the current one: ";

impl NodeTask {
    pub(super) fn show_clock(&self) {
        let Some(offset) = self.context.shared.judge().offset(self.context.node) else { return };
        let ours = i128::from(clock::unix_micros() / 1000) - i128::from(clock::now().0);
        let offset = i64::try_from(offset - ours).unwrap_or(i64::MAX);
        self.context.update(|status| status.clock_offset_ms = Some(offset));
        self.context.observer.clock_offset(self.context.node, offset);
    }

    pub(super) fn show(&mut self, standing: &Standing) {
        // A reader that sees the node as voting can send it requests.
        self.set_reach();
        let about = self.context.about(&self.address);
        let key = self.context.shared.keyspace.marker();
        let (state, message) = match (standing, &self.refusal) {
            // The other states end after one call; the end of a connection is written with its reason.
            (Standing::Offline | Standing::Observing | Standing::Seeding(None), _) => return,
            (Standing::Mismatch(marker), _) => (
                NodeState::Misconfigured(Misconfiguration::ConfigMismatch),
                about + &mismatch(marker, &self.context.membership.name(), key),
            ),
            (_, Some(refusal)) => (NodeState::Misconfigured(Misconfiguration::Refusing), about + &refusal.text),
            (Standing::Admitted, None) => {
                let outdated = self.outdated.as_ref().map(|failure| about + EARLIER + &failure.text);
                (NodeState::Up, outdated.unwrap_or_default())
            }
            (Standing::Doubted, None) => (
                NodeState::Quarantined { until: clock::now() + self.context.shared.longest_lease },
                about
                    + "its clock or the clock of this process jumped, and too few nodes answer to tell which: \
                       it does not vote until more nodes answer or the longest lease has passed",
            ),
            (Standing::Quarantined { until }, None) => (
                NodeState::Quarantined { until: *until },
                about
                    + "it may have lost data (first start, restart, flush, or a `maxmemory-policy` that drops keys): \
                       it votes when the longest lease has passed",
            ),
            (Standing::Seeding(Some(reason)), None) => {
                (NodeState::Quarantined { until: clock::now() }, about + &unseedable(*reason, key))
            }
        };
        self.context.update(|status| {
            // The end of a wait in the past is not changed.
            let waited = |state| matches!(state, NodeState::Quarantined { .. });
            let over = waited(status.state) && waited(state) && matches!(standing, Standing::Seeding(_));
            if !over {
                status.state = state;
            }
            status.reason = None;
            status.message = message;
        });
    }
}

/// `key` is that of the marker.
fn unseedable(reason: Unseedable, key: &str) -> String {
    match reason {
        // Whole seconds, so that a status does not change with every clock reading.
        Unseedable::ClocksDisagree { by } => {
            Unseedable::ClocksDisagree { by: Millis(by.0.div_ceil(1000) * 1000) }.to_string()
        }
        Unseedable::OtherConfiguration => format!("{reason} (the key `{key}`)"),
        other => other.to_string(),
    }
}

fn mismatch(marker: &Marker, ours: &str, key: &str) -> String {
    let theirs = marker.to_string();
    let theirs = brief(theirs.split_once(':').map_or(theirs.as_str(), |(_run_id, name)| name).to_owned());
    format!(
        "its marker names the configuration {theirs}, ours is {ours} (node names, majority, maxLeaseDuration, keyPrefix): \
         restore the old spec, or choose a new keyPrefix, or stop every operator that uses this quorum for its \
         longest lease and then delete the marker on every node (the key `{key}`)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_marker_is_cut() {
        let marker: Marker = format!("3f:1:{}", "x".repeat(100_000)).parse().unwrap();
        let message = mismatch(&marker, "1:f00d", "redislease:{q}:marker");
        assert!(message.len() < 1000 && message.contains("the configuration 1:xxx"), "{message}");
    }
}
