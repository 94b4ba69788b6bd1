//! Starts this program again as one of its helper processes.
//!
//! A second execution replaces code between `fork` and `exec`, which would need `unsafe`.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::unistd::{getegid, getgid};
use rustix::process::setpriority_process;
use rustix::thread::CapabilitySet;

use crate::exit;
use crate::say::say;

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

/// Why this program cannot start a helper process.
pub fn problem(error: &io::Error) -> String {
    if Path::new(THIS_PROGRAM).exists() { error.to_string() } else { format!("{error}: {THIS_PROGRAM} must be there") }
}

/// Lets the new process inherit the signals of this one. The function `posix_spawn` of glibc makes it ignore the signals 32 and 33; with
/// a group, which is that of this process, the standard library does not use that function. A seccomp filter can forbid to set a group:
/// under one, the signals are ignored.
pub fn keep_signals(command: &mut Command) {
    if getgid() == getegid() && !is_filtered(&own_status()) {
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
    if may_hurry(&own_status()) {
        // Without it, everything works on a machine that is less busy.
        let _ = setpriority_process(None, -20);
    }
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// The value of a field in a file `status` of `/proc`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Whether a process with this file `status` of `/proc` has CAP_SYS_NICE and may use it.
fn may_hurry(status: &str) -> bool {
    let mask = field(status, "CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    mask & CapabilitySet::SYS_NICE.bits() != 0 && !is_filtered(status)
}

/// Whether a process has a seccomp filter, such as `SystemCallFilter=~@privileged` of systemd. It can end a process that tries a call.
fn is_filtered(status: &str) -> bool {
    field(status, "Seccomp:").is_some_and(|mode| mode != "0")
}

/// Runs a helper process with the user's command in `line`. `failed` begins the line that says that it failed.
pub fn main(line: &[OsString], run: fn(&[OsString]) -> io::Result<()>, failed: &str) -> ExitCode {
    let Some(user) = split(line) else { return ExitCode::from(exit::FAILED) };
    match run(user) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{failed}, and the command ends with it: {error}"));
            ExitCode::from(exit::FAILED)
        }
    }
}

/// The user's command of a command line that [`command`] has made; `None` if another program has made it.
pub fn split(line: &[OsString]) -> Option<&[OsString]> {
    line.split_first().filter(|(first, _)| *first == "--").map(|(_, user)| user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_hurries_with_the_right_to_do_it_and_without_a_filter() {
        let status =
            |mask: &str, mode: &str| format!("Name:\tx\nCapEff:\t{mask}\nSeccomp:\t{mode}\nSeccomp_filters:\t1\n");
        assert!(may_hurry(&status("000001ffffffffff", "0")));
        assert!(may_hurry("CapEff:\t0000000000800000\n"), "a kernel without filters");
        assert!(!may_hurry(&status("000001ffffffffff", "2")));
        assert!(!may_hurry(&status("00000000a80425fb", "0")));
        assert!(!may_hurry(""));
    }
}
