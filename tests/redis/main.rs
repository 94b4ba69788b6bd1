//! The lock on real redis-servers: scripts, admission, and what breaks.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod admission;
mod batches;
mod fake;
mod faults;
mod keeper;
mod reference;
mod refusals;
mod scripts;
mod support;
mod votes;
