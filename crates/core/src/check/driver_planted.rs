//! Code that only planted bugs of the driver run.

use alloc::collections::VecDeque;

use crate::check::Mutant;
use crate::driver::{Command, Driver, Input};
use crate::lease::{Effect, Lease};

/// Seals and releases that wait for the vote that follows them: at the latest until the next input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Late {
    ends: VecDeque<Effect>,
    /// Whether they go out now.
    due: bool,
}

impl Late {
    pub fn expect(&mut self, input: &Input) {
        self.due = !self.ends.is_empty() && !matches!(input, Input::Command(Command::Want(_), _));
    }
}

impl Driver {
    /// Plants a bug in the driver and its lease, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.lease = self.lease.with_mutant(mutant);
        self
    }

    /// The machine of the lease, for an input that no driver gives.
    pub const fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    pub(super) fn poll_lease(&mut self) -> Option<Effect> {
        while let Some(effect) = self.lease.poll_effect() {
            match &effect {
                Effect::Send { op, .. } if breaks!(self.lease.rules, EndAfterVote) => {
                    if op.is_end() {
                        self.late.ends.push_back(effect);
                        continue;
                    }
                    self.late.due = true;
                }
                _ => {}
            }
            return Some(effect);
        }
        if self.late.due || self.is_closing() { self.late.ends.pop_front() } else { None }
    }
}
