//! For checkers only: planted bugs, the reference node, and a canonical form of machines, so that a checker can compare
//! their states. The feature `check` compiles this module, and no release enables it.

mod mutant;
pub mod reference;
#[cfg(test)]
pub(crate) mod reference_tests;

pub use crate::lease::Renumbering;
pub use crate::seed::seed_with;
pub use mutant::{Layer, Mutant};

use crate::admission::Admission;
use crate::judge::Judge;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::wire::Wire;

impl Lease {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}

impl Judge {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}

impl Admission {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}

impl<K, R, C> Wire<K, R, C> {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}

impl Lock {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}
