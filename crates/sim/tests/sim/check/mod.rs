//! What must hold, what was seen, and what happened.

pub mod beliefs;
pub mod calls;
pub mod checker;
pub mod coverage;
pub mod lasting;
pub mod recovery;
pub mod running;
pub mod state;
pub mod trace;
