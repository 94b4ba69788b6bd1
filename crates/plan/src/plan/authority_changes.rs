//! What a lease learns about the authority of its process from one turn to the next.

use redislease_core::time::{Millis, Time};

use super::output::Effects;
use super::{Authority, Facts};

/// When a lease looks again after its process could still decide. The clock can end the authority before the election does: if the
/// lock is renewed after all, no event says that this process leads again. Within this time the election has seen the change too,
/// and what it changes is an event.
const LOOK_AGAIN: Millis = Millis(1000);

#[derive(Clone, Debug, Default)]
pub(super) struct AuthorityChanges {
    /// [`Facts::authority_gains`] as of the last turn.
    gains: u32,
    /// Since when this process has only renewed.
    only_renews_since: Option<Time>,
}

impl AuthorityChanges {
    /// Takes the facts of a turn. Returns whether this process may not decide, or could not at some time since the last turn.
    pub fn observe(&mut self, now: Time, facts: &Facts, out: &mut Effects) -> bool {
        let is_gained_again = std::mem::replace(&mut self.gains, facts.authority_gains) != facts.authority_gains;
        if facts.authority != Authority::Renew {
            self.only_renews_since = None;
            return is_gained_again;
        }
        let at = *self.only_renews_since.get_or_insert(now) + LOOK_AGAIN;
        if now < at {
            out.wake_at(at);
        }
        true
    }
}
