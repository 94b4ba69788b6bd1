//! The model checker on the core's own machines.
#![allow(clippy::unwrap_used, reason = "a checker that cannot go on must stop")]
#![allow(clippy::struct_excessive_bools, reason = "a world is a set of switches")]
#![allow(clippy::type_complexity, reason = "the memo's type says what is remembered of what")]

mod admission;
mod interned;
mod lease;
mod machine;
mod runs;
mod site;
mod step;
mod world;
