//! Tests that cannot run on this machine.

use std::io::Write as _;

/// Says what a test leaves out and why. The test harness shows `println!` only for tests that fail; the summary of `make test` shows
/// these lines.
pub fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {}", reason.trim());
}
