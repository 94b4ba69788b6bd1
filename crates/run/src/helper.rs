//! Starts this program again as one of its helper processes.
//!
//! A second execution replaces code between `fork` and `exec`, which would need `unsafe`.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::unistd::{getegid, getgid};
use rustix::process::setpriority_process;

/// The file of this program, also after another version has replaced it on disk.
const THIS_PROGRAM: &str = "/proc/self/exe";

pub const GUARD: &str = "run-guard";
pub const INIT: &str = "run-init";
pub const EXEC: &str = "run-exec";

/// A command that starts this program as the helper process `role`, with the user's command.
pub fn command(role: &str, user: &[OsString]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0("redislease").arg(role).arg("--").args(user);
    keep_signals(&mut command);
    command
}

/// Lets the new process inherit the signals of this one. The function `posix_spawn` of glibc makes it ignore the signals 32 and 33; with
/// a group, which is that of this process, the standard library does not use that function.
pub fn keep_signals(command: &mut Command) {
    if getgid() == getegid() {
        command.gid(getgid().as_raw());
    }
}

/// Sets the name of this process for `ps` and `top`. Otherwise it would be that of the link in `/proc`.
pub fn set_name(name: &CStr) -> io::Result<()> {
    Ok(nix::sys::prctl::set_name(name)?)
}

/// Lets this process run before others on a busy machine, if this user may ask for that: the kernel ends it at the deadline only when it
/// runs, and the command after it. The command gets back the priority that `run` has.
pub fn hurry() {
    // Without the right to do it, everything works on a machine that is less busy.
    let _ = setpriority_process(None, -20);
}

/// The user's command of a command line that [`command`] has made; `None` if another program has made it.
pub fn split(line: &[OsString]) -> Option<&[OsString]> {
    line.split_first().filter(|(first, _)| *first == "--").map(|(_, user)| user)
}
