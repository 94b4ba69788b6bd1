//! For checkers and tests only: planted bugs, the reference node, requests, and a canonical form of machines, so that a checker can compare
//! their states. The feature `check` compiles this module, and no release enables it.

mod late;
mod mixer;
mod mutant;
pub mod ops;
pub(crate) mod rebase;
pub mod reference;

pub(crate) use late::Late;
pub use mixer::{Mix, Mixer};
pub use mutant::{Layer, Mutant};
pub use rebase::Renumbering;

use crate::admission::Admission;
use crate::judge::Judge;
use crate::lock::Lock;
use crate::wire::Wire;

macro_rules! plantable {
    ($($machine:ty),+) => {$(
        impl $machine {
            /// Plants a bug in the machine, or removes it.
            pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
                self.rules.broken = mutant;
                self
            }
        }
    )+};
}

plantable!(Admission, Judge, Lock);

impl<K, R, C> Wire<K, R, C> {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}
