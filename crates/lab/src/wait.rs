//! Polling with a deadline, and the log lines that are shown when it expires.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Time between two checks. Measurements have this resolution.
const POLL: Duration = Duration::from_millis(5);
const TAIL: usize = 25;

/// Calls `probe` every few milliseconds until it returns a value.
///
/// # Errors
/// The last error of `probe`, when it returned no value in time.
pub fn poll<T>(within: Duration, mut probe: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let deadline = Instant::now() + within;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => return Err(last),
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// The last lines of a log file.
pub(crate) fn tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
