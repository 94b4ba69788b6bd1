//! `redislease-run` on real Redis servers and with real processes.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod adversity;
mod basics;
mod cases;
mod container;
mod crontabs;
mod ends;
mod filters;
mod idle;
mod lane;
mod left;
mod losses;
mod options;
mod process_log;
mod signals;
mod support;
mod suspend;
mod terminal;
mod worker;
