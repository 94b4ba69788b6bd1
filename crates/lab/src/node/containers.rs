//! The processes of containers, as the kernel shows them.

use std::{
    fs, io,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{Error, Result};

/// A process of a running container.
#[derive(Debug)]
pub struct Container {
    pid: Pid,
    handle: OwnedFd,
}

/// When a process has ended, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// The monotonic clock.
    pub at: Instant,
    /// The clock of timestamps in the API.
    pub time: SystemTime,
}

impl Container {
    /// A process in a container of a pod, whose command line begins with these words (`/redislease run`); `None` if none runs.
    ///
    /// # Errors
    /// [`Error::Io`] when the list of processes cannot be read.
    pub fn find(pod_uid: &str, words: &str) -> Result<Option<Self>> {
        let failed = || Error::io("read /proc");
        for entry in fs::read_dir("/proc").map_err(failed())? {
            let name = entry.map_err(failed())?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            // The handle comes first: the process that is checked is then the process that it names.
            let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            if is_of(pid, pod_uid, words).unwrap_or_default() {
                return Ok(Some(Self { pid, handle }));
            }
        }
        Ok(None)
    }

    /// The process ID.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Kills the process (SIGKILL).
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses, also when it has already ended.
    pub fn kill(&self) -> Result<()> {
        pidfd_send_signal(&self.handle, Signal::KILL)
            .map_err(|errno| Error::io(format!("kill the process {}", self.pid()))(errno.into()))
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        let mut handle = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut handle, Some(&now)) == Ok(0)
    }

    /// Waits in a thread of its own until the process has ended.
    pub fn exit(self) -> thread::JoinHandle<io::Result<Exit>> {
        thread::spawn(move || {
            let mut handle = [PollFd::new(&self.handle, PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: LONGEST.as_secs().cast_signed(), tv_nsec: 0 };
            match poll(&mut handle, Some(&limit)) {
                Ok(0) => Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => Ok(Exit { at: Instant::now(), time: SystemTime::now() }),
                Err(errno) => Err(errno.into()),
            }
        })
    }
}

/// Limit for the wait for an exit. The caller has a shorter one for what follows from it.
const LONGEST: Duration = Duration::from_mins(3);

/// The cgroup of a container has the UID of its pod in its path.
fn is_of(pid: Pid, pod_uid: &str, words: &str) -> io::Result<bool> {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let command = fs::read(format!("{folder}/cmdline"))?;
    let runs = command.starts_with(format!("{words} ").replace(' ', "\0").as_bytes());
    Ok(runs && fs::read_to_string(format!("{folder}/cgroup"))?.contains(&format!("pod{pod_uid}")))
}
