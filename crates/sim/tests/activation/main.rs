//! The model of order and fence: every order in which the writes of the operator to workloads and gated pods can meet accidents, at
//! small size. The reconciler that ships decides; the API server, the watches, the lock and the clock are small.
//!
//! - Calls are executed in any order. With an accident, one is not answered, and is executed at any later time or never.
//! - With an accident, another process of the operator takes over, or decides at the same time.
//! - A process can learn late that its term has ended. It can act on an earlier status. With an accident, it is in doubt for a while.
//! - A process turns until it waits for an answer: that is one step. Steps are computed once.
//!
//! How slow calls are is bounded: until a call is executed that is answered, only so many others are. The clock moves only with an
//! accident, to the next deadline. `MODEL` and `MODEL_ONLY` select as in the model of the core.
#![allow(clippy::unwrap_used, reason = "a checker that cannot go on must stop")]

#[macro_use]
#[path = "../common/listed.rs"]
mod listed;

mod actions;
mod hash;
#[path = "../../../core/tests/model/jobs.rs"]
mod jobs;
mod keeper;
mod objects;
mod planted;
mod process;
mod rules;
mod runs;
mod search;
#[path = "../common/objects.rs"]
mod shared;
mod step;
mod tables;
mod world;
