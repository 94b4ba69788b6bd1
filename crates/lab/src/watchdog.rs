//! Nothing started here outlives its owner, however the owner ends.
//!
//! Destructors do not run when a process is killed, and never for statics; the kernel's parent-death signal fires when
//! the spawning *thread* ends, and every test is a thread. So one small shell per owner reads a pipe whose write end
//! the kernel closes when the owner is gone, and then kills the servers and removes the folders it was told of.

use std::{
    io::Write,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, Result};

static WATCHDOG: Mutex<Option<Watchdog>> = Mutex::new(None);
static KEEP: AtomicBool = AtomicBool::new(false);

struct Watchdog {
    pid: u32,
    pipe: OwnedFd,
}

fn watchdog() -> Result<MutexGuard<'static, Option<Watchdog>>> {
    let mut guard = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", include_str!("watchdog.sh"), "redislease-lab-watchdog"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of Ctrl-C and of whoever kills the owner's process group.
            .process_group(0)
            .spawn()
            .map_err(Error::io("start the watchdog /bin/sh"))?;
        *guard = shell.stdin.take().map(|stdin| Watchdog { pid: shell.id(), pipe: stdin.into() });
    }
    Ok(guard)
}

/// The write end of the pipe, for a child that announces itself with a line `pid NUMBER`.
pub(crate) fn announce() -> Result<OwnedFd> {
    let guard = watchdog()?;
    let watchdog = guard.as_ref().ok_or_else(gone)?;
    watchdog.pipe.as_fd().try_clone_to_owned().map_err(Error::io("share the watchdog's pipe"))
}

fn tell(line: &str) -> Result<u32> {
    let guard = watchdog()?;
    let watchdog = guard.as_ref().ok_or_else(gone)?;
    let pipe = watchdog.pipe.as_fd().try_clone_to_owned().map_err(Error::io("share the watchdog's pipe"))?;
    std::fs::File::from(pipe).write_all(line.as_bytes()).map_err(Error::io("write to the watchdog's pipe"))?;
    Ok(watchdog.pid)
}

fn gone() -> Error {
    Error::Io { doing: "reach the watchdog".to_owned(), source: std::io::ErrorKind::BrokenPipe.into() }
}

/// Leaves everything started by this process running after it ends: destructors no longer stop anything.
/// Returns the process that stops it all and removes its folders when it gets SIGTERM (`kill PID`).
///
/// # Errors
/// [`Error::Io`] when the watchdog cannot be reached.
pub fn keep_running() -> Result<u32> {
    let pid = tell("keep\n")?;
    KEEP.store(true, Ordering::SeqCst);
    Ok(pid)
}

pub(crate) fn keeps_running() -> bool {
    KEEP.load(Ordering::SeqCst)
}

/// A temporary folder that goes with its owner.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("redislease-{kind}-"))
            .tempdir()
            .map_err(Error::io("make a temporary folder"))?;
        tell(&format!("dir {}\n", folder.path().display()))?;
        Ok(Self(folder.keep()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !keeps_running() {
            // What cannot be removed now is removed by the watchdog.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
