//! Leases on real servers: acquired, kept during faults, lost in time, ended, adopted.
//!
//! Leases are short and faults are real. Minimum durations are asserted to the millisecond on the clock for validity
//! (`CLOCK_BOOTTIME`), maximum durations with tolerance for a busy machine.

mod acquire;
mod amnesia;
mod candidate;
mod contention;
mod ending;
mod faults;
mod history;
mod latency;
mod loss;
mod returns;
mod shards;
