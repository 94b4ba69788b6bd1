//! The command of `--on-lost`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::unistd::Pid;

use crate::{helper, link};

/// Starts a shell command in a process group of its own. Returns its process ID.
pub fn start(text: &str, variables: &[(&str, OsString)]) -> io::Result<Pid> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]).stdin(Stdio::null()).process_group(0);
    helper::keep_signals(&mut command);
    link::set_environment(&mut command, variables);
    Ok(Pid::from_raw(i32::try_from(command.spawn()?.id()).unwrap_or_default()))
}
