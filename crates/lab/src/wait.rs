//! Polling with a deadline, and the log lines that are shown when it expires.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Time between two checks, at first. Measurements of less than a quarter of a second have this resolution.
const POLL: Duration = Duration::from_millis(5);
/// The same in the end.
const SLOWEST: Duration = Duration::from_millis(50);
const TAIL: usize = 25;

/// Calls `probe` every few milliseconds until it returns a value. The pauses grow with the wait, to 2 % of it, and are at least as long
/// as the probe takes: a probe that runs a program would keep a processor busy.
///
/// # Errors
/// The last error of `probe`, when it returned no value in time.
pub fn poll<T>(within: Duration, mut probe: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if began.elapsed() >= within => return Err(last),
            Err(_) => thread::sleep(pause(began, asked)),
        }
    }
}

/// The time since 1970, on the clock of this machine.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The pause after a probe of a wait that began then.
pub(crate) fn pause(began: Instant, asked: Instant) -> Duration {
    asked.elapsed().max((began.elapsed() / 50).clamp(POLL, SLOWEST))
}

/// The last lines of a log file.
pub(crate) fn tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
