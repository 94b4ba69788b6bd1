//! Waiting for something to come true, and what to say when it does not.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Short enough to measure by.
const POLL: Duration = Duration::from_millis(5);
const TAIL: usize = 25;

/// Asks every few milliseconds until there is a value.
///
/// # Errors
/// The last complaint, when there is none in time.
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

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
