//! What the operator decides, as data and pure functions: no clock, no sockets, no randomness of its own. The operator
//! (the package `redislease`) carries the decisions out, and the simulator calls the same functions.
//!
//! | module | responsibility |
//! |---|---|
//! | [`api`] | the custom resources as types, their admission rules, and their specs after validation |
//! | [`election`] | which pods are eligible, and whether a term continues |
//! | [`status`] | composes status, conditions and events |
//! | [`plan`] | one reconciler per lease, which decides everything about that lease; the leader; the calls to the API server |
//! | [`index`] | compact facts from the watches, and which leases an event concerns |
//! | [`annotations`] | what annotations request, and what is wrong with them |
//! | [`engine`] | which lease has a turn: owns the index and the reconcilers |
//!
//! A module uses only modules that come before it in this order. The crate is a part of the operator: its interface can
//! change at any time.

#[macro_use]
mod words;

pub mod annotations;
pub mod api;
pub mod election;
pub mod engine;
pub mod index;
pub mod plan;
#[cfg(test)]
mod samples;
pub mod status;
