//! Stops all servers when the process that started them ends in any way.
//!
//! Destructors do not run when a process is killed, and never for statics; the kernel's parent-death signal is sent when
//! the spawning *thread* ends, and every test is a thread. Therefore each process that starts servers also starts one
//! small shell, the watchdog. It reads a pipe whose write end the kernel closes when that process ends, and then kills
//! the servers and removes the folders that were written to the pipe.

use std::{
    io::Write,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::{Error, Result};

/// The pipe of the watchdog, if it was started.
static WATCHDOG: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// The write end of the pipe, for a child that writes the line `pid NUMBER` to it.
pub(crate) fn pipe() -> Result<OwnedFd> {
    let mut pipe = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    if pipe.is_none() {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", include_str!("watchdog.sh"), "redislease-lab-watchdog"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: Ctrl-C, or a signal to the group of this process, must not reach it.
            .process_group(0)
            .spawn()
            .map_err(Error::io("start the watchdog /bin/sh"))?;
        *pipe = shell.stdin.take();
    }
    let gone = || Error::Io { doing: "reach the watchdog".to_owned(), source: std::io::ErrorKind::BrokenPipe.into() };
    pipe.as_ref().ok_or_else(gone)?.as_fd().try_clone_to_owned().map_err(Error::io("share the watchdog's pipe"))
}

fn write_line(line: &str) -> Result<()> {
    std::fs::File::from(pipe()?).write_all(line.as_bytes()).map_err(Error::io("write to the watchdog's pipe"))
}

/// Removes a cgroup, with all cgroups below it, after the servers have been killed.
pub(crate) fn remove_cgroup(folder: &Path) -> Result<()> {
    write_line(&format!("cgroup {}\n", folder.display()))
}

/// Keeps everything running until this process is ended, for example with Ctrl-C. Then everything that it has started stops.
pub fn keep_running() -> ! {
    loop {
        std::thread::park();
    }
}

/// A temporary folder that is removed when it is dropped, or when the process that made it is killed.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("redislease-{kind}-"))
            .tempdir()
            .map_err(Error::io("make a temporary folder"))?;
        write_line(&format!("dir {}\n", folder.path().display()))?;
        Ok(Self(folder.keep()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // If this fails, the watchdog removes the folder later.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
