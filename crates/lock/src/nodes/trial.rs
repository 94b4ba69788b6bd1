//! Tests the current password and certificate on a connection of its own, while the open one stays: a mistake is seen when it is made,
//! and not when no server can be reached after the next restart.

use redislease_core::time::{Millis, Time};

use super::Reason;
use super::access::Accepted;
use super::failure::Failure;
use super::link::{Link, Trial};
use super::node::NodeTask;
use crate::clock;

/// The pause before the next test while the server does not accept the current values, and after a test without a result.
const AGAIN: Millis = Millis(5000);

impl NodeTask {
    /// A connection was opened, and the server accepts the current values or not. A test is due already if they changed meanwhile.
    pub(super) fn connected_with(&mut self, now: Time, refused: Option<Failure>) {
        self.outdated = refused;
        if self.outdated.is_some() {
            self.trial.due.get_or_insert(now + AGAIN);
        }
    }

    /// A connection that is being opened may still use the values before the change: the test follows when it is open.
    pub(super) fn access_changed(&mut self) {
        self.trial = Trial { running: None, due: Some(clock::now()) };
        if matches!(self.link, Link::Open(_)) {
            self.try_if_due(clock::now());
        }
    }

    pub(super) fn try_if_due(&mut self, now: Time) {
        if self.trial.due.is_none_or(|due| now < due) {
            return;
        }
        // Without random numbers, the node's other calls fail too.
        self.trial.due = Some(now + AGAIN);
        if let Ok(opening) = self.opening() {
            self.trial = Trial { running: Some(Box::pin(opening.try_current())), due: None };
        }
    }

    pub(super) fn tried(&mut self, result: Result<Accepted, Failure>) {
        let again = Some(clock::now() + AGAIN);
        self.trial = Trial { running: None, due: again.filter(|_| result.is_err()) };
        let outdated = match result {
            Ok(accepted) => {
                self.accepted = Some(accepted);
                None
            }
            Err(failure) if matches!(failure.reason, Reason::Auth | Reason::Tls) => Some(failure),
            // It says nothing about the current values.
            Err(_) => return,
        };
        if self.outdated != outdated {
            self.outdated = outdated;
            self.show(&self.wire.admission().standing().clone());
        }
    }
}
