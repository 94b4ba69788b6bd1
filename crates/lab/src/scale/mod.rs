//! Measures the cost and recovery time of many leases on a real control plane: `make scale N=1000`.
//!
//! A run starts a control plane, three Redis servers, the leases with their pods, and one operator process. Then the
//! phases follow one another:
//!
//! | phase | what happens | what is measured |
//! |---|---|---|
//! | `start` | the operator starts on an empty quorum | from the end of the first wait until all leases are active |
//! | `hold` | nothing | CPU, writes to the API server |
//! | `restart` | the operator stops (SIGTERM) and starts again | from its start until each lease was extended; leases lost |
//! | `failover` | holders are deleted gracefully, one after another | from the proof that the holder stopped to the next holder in status |
//! | `outage` | two of three Redis servers are stopped (SIGSTOP) for longer than a lease, then continued | from then until all are active again; writes; leases left behind |
//! | `bare` | the operator is stopped; a simple client makes as many writes as the operator did after the outage | how long that takes |
//!
//! Times are from one watcher of the API server, and from the Redis servers' own clocks. Memory, CPU time and files are
//! the kernel's values for the operator process.

mod bare;
mod board;
mod client;
mod keys;
mod objects;
mod options;
mod phases;
mod report;
mod writes;

pub use self::options::{Options, Phase};
pub use self::report::{Goal, Report, Row};
use crate::Result;

/// Runs the phases, and calls `done` while everything still runs. Progress goes to standard error.
///
/// # Errors
/// The reason why the leases could not be created. [`Report::failed`] has the reason why a phase could not be measured,
/// and [`Report::goals`] the figures that miss their goals.
pub fn run(options: &Options, done: impl FnOnce(&Report)) -> Result<Report> {
    let mut run = phases::Run::prepare(options)?;
    let report = run.all();
    done(&report);
    Ok(report)
}
