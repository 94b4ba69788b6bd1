//! The lock protocol on real Redis servers: scripts, admission and faults.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod admission;
mod batches;
mod command;
mod fake;
mod faults;
mod keeper;
mod reference;
mod refusals;
mod scripts;
mod shared_server;
mod support;
mod tls;
mod votes;
