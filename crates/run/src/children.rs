//! Child processes: waits for them, and finds those that are left.

use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, WaitId, WaitIdOptions, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal, wait, waitid,
};

/// What [`next`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This child has ended and is removed, or it was stopped.
    Changed(Pid, Change),
    /// There are children, and nothing has happened to them.
    Running,
    /// This process has no child. For a process that adopts the orphans among its descendants, the kernel thereby proves that
    /// nothing is left.
    NoChild,
}

/// What has happened to a child. A signal is a number: real-time signals have no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has ended with an exit code.
    Exited(u8),
    /// A signal has ended it.
    Killed(u8),
    /// A signal has stopped it.
    Stopped(i32),
}

/// The next child that has ended or stopped. One that has ended is removed.
pub fn next() -> Next {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => {
                if let Some(change) = change(status) {
                    return Next::Changed(Pid::from_raw(pid.as_raw_nonzero().get()), change);
                }
            }
            Err(Errno::CHILD) => return Next::NoChild,
            Err(Errno::INTR) => {}
            // Only this proves something, and no other error is possible.
            Ok(None) | Err(_) => return Next::Running,
        }
    }
}

fn change(status: WaitStatus) -> Option<Change> {
    let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    let exited = status.exit_status().map(|code| Change::Exited(small(code)));
    let killed = || status.terminating_signal().map(|signal| Change::Killed(small(signal)));
    exited.or_else(killed).or_else(|| status.stopping_signal().map(Change::Stopped))
}

/// Whether the child has ended. It stays a zombie, and keeps its process ID and its process group.
pub fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = rustix::process::Pid::from_raw(child.as_raw());
    pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
}

/// Whether the process IDs of `/proc` are those of this process. Another PID namespace may have mounted it, as `unshare --pid` leaves
/// it; its numbers belong to other processes here.
pub fn proc_is_ours() -> bool {
    let own = std::fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.to_str().is_some_and(|text| text.parse() == Ok(getpid().as_raw())))
}

/// The children of this process, from `/proc`; one can be there twice. `None` if it cannot be read, for example without a free file
/// descriptor, or shows another PID namespace.
pub fn list() -> Option<Vec<Pid>> {
    if !proc_is_ours() {
        return None;
    }
    let this = getpid();
    // This also names children of other users, which the option `hidepid` of `/proc` hides below.
    let mut children = match list_fast(this) {
        None if Path::new("/proc/thread-self/children").exists() => return None,
        fast => fast.unwrap_or_default(),
    };
    for entry in std::fs::read_dir("/proc").ok()? {
        let pid = entry.ok()?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && parent_of(pid).ok()? == Some(this)
        {
            children.push(Pid::from_raw(pid));
        }
    }
    Some(children)
}

/// The parent of a process; `None` if the process has ended or is hidden.
fn parent_of(pid: i32) -> io::Result<Option<Pid>> {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::SRCH | Errno::PERM | Errno::ACCESS) => Ok(None),
                _ => Err(error),
            };
        }
    };
    // The second field is the name in parentheses, which can contain anything.
    let parent = stat.rsplit_once(')').and_then(|(_, after)| after.split_whitespace().nth(1)?.parse().ok());
    parent.map(|parent| Some(Pid::from_raw(parent))).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The children of a process, from its own entry in `/proc`. It takes much less time than [`list`], and can miss one while another one
/// ends. `None` if this kernel has no such file, or the process has ended or is hidden.
fn list_fast(of: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{of}/task")).ok()?.flatten() {
        let text = match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => text,
            // The thread has ended: its children are those of another thread now.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) || !thread.path().exists() => continue,
            Err(_) => return None,
        };
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw));
    }
    Some(children)
}

/// Sends SIGKILL to the descendants of this process but those in `spared` and what is below them. It can miss one: call it again until
/// none is left.
///
/// A child that does not end, such as one in uninterruptible IO, keeps its own children: they do not become those of this process.
pub fn kill_all(spared: &[Pid]) {
    if !proc_is_ours() {
        return;
    }
    let this = getpid();
    let children = list_fast(this).or_else(list).unwrap_or_default();
    let mut found: Vec<(Pid, Pid)> = children.into_iter().map(|child| (this, child)).collect();
    found.retain(|(_, child)| !spared.contains(child));
    while let Some((parent, pid)) = found.pop() {
        // Before its end, with which this process gets them. Without the right to kill it, it is still there at the next look.
        let below = list_fast(pid).unwrap_or_default();
        let is_its_number = if parent == this {
            // Only this process can remove it.
            kill(pid, Signal::SIGKILL) != Err(nix::errno::Errno::ESRCH)
        } else {
            kill_below(parent, pid)
        };
        if is_its_number {
            found.extend(below.into_iter().map(|child| (pid, child)));
        }
    }
}

/// Sends SIGKILL to a process if this is still its parent: its number can belong to another process by now. Returns whether it is.
fn kill_below(parent: Pid, pid: Pid) -> bool {
    let process =
        rustix::process::Pid::from_raw(pid.as_raw()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    process.is_some_and(|process| {
        parent_of(pid.as_raw()).is_ok_and(|found| found == Some(parent))
            && pidfd_send_signal(process, rustix::process::Signal::KILL) != Err(Errno::SRCH)
    })
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
        // Threads of other tests come and go.
        let threads = std::thread::spawn(|| (0..500).for_each(|_| std::thread::spawn(|| ()).join().unwrap()));
        while !threads.is_finished() {
            assert!(list().unwrap().contains(&pid));
        }
        threads.join().unwrap();
        assert!(list_fast(getpid()).is_none_or(|children| children.contains(&pid)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!list().unwrap().contains(&pid));
        assert_eq!(parent_of(pid.as_raw()).unwrap(), None);
    }
}
