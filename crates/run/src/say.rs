//! What the user is told.

use std::io::Write as _;

/// Prints a line for the user.
pub(crate) fn say(text: &str) {
    // Nobody may read it any more, or the disk may be full. That is no reason to stop the command or to lose its exit code.
    let _ = writeln!(std::io::stderr(), "redislease run: {text}");
}
