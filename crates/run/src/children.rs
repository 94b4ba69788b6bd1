//! Child processes: waits for them, and finds those that are left.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

/// What [`next`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A child has ended or stopped.
    Changed(WaitStatus),
    /// There are children, and nothing has happened to them.
    Running,
    /// This process has no child. For a process that adopts the orphans among its descendants, the kernel thereby proves that
    /// nothing is left.
    NoChild,
}

/// The next child that has ended or stopped. One that has ended stays a zombie, and keeps its process ID and its process group, until
/// [`reap`].
pub fn next() -> Next {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, flags) {
            Ok(WaitStatus::StillAlive) => return Next::Running,
            Ok(status) => return Next::Changed(status),
            Err(Errno::EINTR) => {}
            Err(_) => return Next::NoChild,
        }
    }
}

/// Removes what [`next`] has returned.
pub fn reap(status: WaitStatus) {
    if let Some(pid) = status.pid() {
        // Nobody else waits for it.
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED));
    }
}

/// How a child has ended: its exit code, or the number of a signal. `None` if it has not ended.
pub fn end(status: WaitStatus) -> Option<Result<u8, u8>> {
    match status {
        WaitStatus::Exited(_, code) => Some(Ok(u8::try_from(code).unwrap_or(u8::MAX))),
        WaitStatus::Signaled(_, signal, _) => Some(Err(u8::try_from(signal as i32).unwrap_or_default())),
        _ => None,
    }
}

/// The children of this process, from `/proc`.
pub fn list() -> Vec<Pid> {
    let this = getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(this)).map(Pid::from_raw).collect()
}

fn parent_of(pid: i32) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which can contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

/// Sends SIGKILL to all children but those in `spared`.
pub fn kill_all(spared: &[Pid]) {
    for child in list().into_iter().filter(|child| !spared.contains(child)) {
        // It may have ended. Without the right to kill it, it is still there at the next look.
        let _ = kill(child, Signal::SIGKILL);
    }
}

/// Lets this process become the parent of the orphans among its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_in_the_list_until_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(list().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!list().contains(&pid));
    }
}
