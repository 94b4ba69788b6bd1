//! The model checker: every order in which messages, time, crashes and decisions can meet, on the core's own machines.
//!
//! `MODEL=quick` searches the small worlds, in seconds; `MODEL=all` searches every world, in minutes. Without the variable
//! a middle set is searched. `MODEL_ONLY=text` searches only the worlds whose name contains the text.
#![allow(clippy::unwrap_used, reason = "a checker that cannot go on must stop")]
#![allow(clippy::struct_excessive_bools, reason = "a setup is a set of switches")]
#![allow(clippy::type_complexity, reason = "the type of a memo says what is remembered of what")]

mod actions;
mod admission;
mod interned;
mod jobs;
mod machine;
mod node;
mod properties;
mod runs;
mod search;
mod server;
mod step;
mod world;
mod worlds;
