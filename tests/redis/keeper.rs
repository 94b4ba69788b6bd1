//! Leases on real servers: taken, kept through faults, lost in time, ended, adopted.
//!
//! Leases are short and faults are real, so spans that must not be *shorter* than promised are asserted to the
//! millisecond on the clock that counts (`CLOCK_BOOTTIME`), and those that must not be longer with room for a busy
//! machine.

mod acquire;
mod adoption;
mod amnesia;
mod candidate;
mod contention;
mod ending;
mod faults;
mod latency;
mod lifetime;
mod loss;
mod peers;
mod peers_of_many;
mod refused;
mod shards;
