//! What checkers do with a driver: plant bugs.

use super::Driver;
use crate::check::Mutant;
use crate::lease::{Effect, Lease};

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
            let passed = self.late.pass(self.lease.rules(), effect);
            if passed.is_some() {
                return passed;
            }
        }
        self.late.next(self.is_closing())
    }
}
