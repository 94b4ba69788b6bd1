//! What must hold, what was seen, and what happened.

pub mod beliefs;
pub mod bounds;
pub mod calls;
pub mod checker;
pub mod clocks;
pub mod coverage;
pub mod lasting;
pub mod losses;
pub mod nodes;
pub mod pending;
pub mod recovery;
pub mod refusals;
pub mod running;
pub mod state;
pub mod stops;
pub mod trace;
pub mod writes;
