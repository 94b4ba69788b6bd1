//! Starts this program again as one of its helper processes.
//!
//! A second execution replaces code between `fork` and `exec`, which would need `unsafe`.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The file of this program, also after another version has replaced it on disk.
const THIS_PROGRAM: &str = "/proc/self/exe";

pub const GUARD: &str = "run-guard";
pub const INIT: &str = "run-init";
pub const EXEC: &str = "run-exec";

/// A command that starts this program as the helper process `role`. `words` come before the user's command.
pub fn command(role: &str, words: &[String], user: &[OsString]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0("redislease").arg(role).args(words).arg("--").args(user);
    command
}

/// Sets the name of this process for `ps` and `top`. Otherwise it would be that of the link in `/proc`.
pub fn set_name(name: &CStr) -> io::Result<()> {
    Ok(nix::sys::prctl::set_name(name)?)
}

/// The words and the user's command of a command line that [`command`] has made; `None` if another program has made it.
pub fn split(line: &[OsString]) -> Option<(&[OsString], &[OsString])> {
    let at = line.iter().position(|word| word == OsStr::new("--"))?;
    Some((&line[..at], &line[at + 1..]))
}
