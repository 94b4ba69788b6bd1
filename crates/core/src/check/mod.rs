//! What only checkers need: planted bugs, the reference node, and machines renumbered so that equal states compare
//! equal. It is compiled with the feature `check`, which no release enables.

mod mutant;
pub mod reference;

pub use crate::lease::Renumbering;
pub use crate::seed::seed_with;
pub use mutant::Mutant;

use crate::admission::Admission;
use crate::lease::Lease;

impl Lease {
    /// The same machine with a planted bug, or with none.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}

impl Admission {
    /// The same machine with a planted bug, or with none.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.rules.broken = mutant;
        self
    }
}
