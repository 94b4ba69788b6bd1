//! The exit codes of `run`, besides those of the command.

/// The command line is wrong: `EX_USAGE` of sysexits.h.
pub const USAGE: u8 = 64;
/// No majority of the Redis servers votes: `EX_UNAVAILABLE`.
pub const NO_MAJORITY: u8 = 69;
/// The lock was not acquired in time: `EX_TEMPFAIL`. `--conflict-exit-code` replaces it.
pub const NOT_ACQUIRED: u8 = 75;
/// The lock was lost, and the command was stopped: `EX_PROTOCOL`.
pub const LOST: u8 = 76;
/// This program failed, as with env(1).
pub const FAILED: u8 = 125;
/// The command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;

/// The code for a process that was ended by a signal, as shells report it.
pub const fn of_signal(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}
