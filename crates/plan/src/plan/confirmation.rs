//! The direct read of the status that must precede a start.
//!
//! The status in the index may be old: another process may have ended the term and fenced what this process wants to start. So the
//! object is seen first. Then the lease is read directly, and its status must name the term. The start names the version of the object
//! that was seen before the read: if another process has written to it since, the start conflicts.

use redislease_core::lease::TermId;
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::output::Effects;
use super::recorded::Recorded;
use crate::api::RedisLease;
use crate::election::Object;

/// The time from one read for the same version to the next.
const AGAIN: Millis = Millis(1000);

/// The last direct read of the status for a start.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirmation {
    /// The object that was seen before the last read, and when the read was requested.
    asked: Option<(Seen, Time)>,
    /// Whether this read has no answer yet.
    is_pending: bool,
    /// The term that its answer names.
    named: Option<Attempt>,
}

/// An object in one version: its UID and its resource version.
type Seen = (String, String);

fn seen(object: Object<'_>) -> Option<Seen> {
    Some((object.uid.to_owned(), object.resource_version.clone()?))
}

impl Confirmation {
    /// Takes the answer to a read of the lease; `None` if there was none.
    pub fn lease_read(&mut self, lease: Option<&RedisLease>) {
        if std::mem::take(&mut self.is_pending) {
            let recorded = lease.and_then(Recorded::of).filter(|recorded| recorded.active);
            self.named = recorded.map(|recorded| recorded.attempt);
        }
    }

    /// Whether the status was read after the object had been seen in this version, and named the term.
    fn confirms(&self, object: Object<'_>, attempt: Attempt) -> bool {
        self.named == Some(attempt) && self.is_about(object)
    }

    fn is_about(&self, object: Object<'_>) -> bool {
        seen(object).is_some_and(|seen| self.asked.as_ref().is_some_and(|(asked, _)| *asked == seen))
    }

    /// Whether the object may be started for the term that this process holds. If this is unknown, the lease is read.
    pub fn is_confirmed(&mut self, now: Time, object: Object<'_>, held: Option<&TermId>, out: &mut Effects) -> bool {
        let Some(term) = held else { return false };
        if self.confirms(object, term.attempt) {
            return true;
        }
        // The answer to a read that was requested earlier may be older than the object.
        if out.is_reading_lease() {
            return false;
        }
        let again_at = self.asked.as_ref().map_or(now, |(_, at)| *at + AGAIN);
        if self.is_about(object) && now < again_at {
            out.wake_at(again_at);
            return false;
        }
        let asked = seen(object).map(|seen| (seen, now));
        *self = Self { asked, is_pending: true, named: None };
        out.read_lease();
        false
    }
}
