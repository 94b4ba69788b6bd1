//! One server process: started, killed, stopped in its tracks, continued and started again.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result, watchdog};

/// How often a state is polled for.
const POLL: Duration = Duration::from_millis(10);

/// A server process that ends with its owner: when it is dropped, and also when the owner is killed.
///
/// Everything takes `&self`, so that a static control plane can be shared by the tests of one binary.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Describes a process without starting it. Its output is appended to `log`.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            log: log.into(),
            child: Mutex::new(None),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds a variable to the environment it inherits.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts it; nothing happens when it already runs. Does not wait until it serves.
    ///
    /// # Errors
    /// [`Error::Io`] when no process can be made. A program that cannot be run shows as [`Error::Exited`] later.
    pub fn start(&self) -> Result<()> {
        let mut child = self.child();
        if let Some(running) = child.as_mut()
            && self.status(running)?.is_none()
        {
            return Ok(());
        }
        // The child announces itself before it becomes the server: there is no moment at which the owner may die and
        // the watchdog does not know of the server, because the pipe stays open until the announcement is made.
        *child = Some(
            Command::new("/bin/sh")
                .args(["-c", r#"echo "pid $$"; exec "$@" >>"$0" 2>&1"#])
                .arg(&self.log)
                .arg(&self.program)
                .args(&self.args)
                .envs(self.env.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::null())
                .stdout(watchdog::announce()?)
                .stderr(Stdio::null())
                // Ctrl-C is for the owner, which ends its servers in the order it wants.
                .process_group(0)
                .spawn()
                .map_err(Error::io(format!("start {}", self.name)))?,
        );
        Ok(())
    }

    /// Kills it as a power cut would (SIGKILL) and waits until it is gone. Nothing happens when it is not running.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.child().take() else {
            return Ok(());
        };
        child.kill().map_err(Error::io(format!("kill {}", self.name)))?;
        child.wait().map_err(Error::io(format!("wait for {}", self.name)))?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::NotReady`] when it still runs after `within`; it then goes on running.
    pub fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + within;
        loop {
            let mut guard = self.child();
            let running = guard.as_mut().ok_or_else(|| self.not_running())?;
            if let Some(status) = self.status(running)? {
                *guard = None;
                return Ok(status);
            }
            drop(guard);
            if Instant::now() >= deadline {
                return Err(self.not_ready(within, "it was asked to end".to_owned()));
            }
            thread::sleep(POLL);
        }
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open and nothing answers, as on a hung machine.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] when the system refuses.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a paused process go on (SIGCONT), with all that its sockets collected meanwhile.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] when the system refuses.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Number of the process while it runs.
    pub fn pid(&self) -> Option<u32> {
        let mut guard = self.child();
        let child = guard.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Polls `ready` until it says yes.
    ///
    /// # Errors
    /// [`Error::Exited`] when the process ends first, [`Error::NotReady`] with the last complaint of `ready` after
    /// `within`.
    pub fn wait_until(
        &self,
        within: Duration,
        mut ready: impl FnMut() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            self.check_alive()?;
            let last = match ready() {
                Ok(()) => return self.check_alive(),
                Err(last) => last,
            };
            if Instant::now() >= deadline {
                return Err(self.not_ready(within, last));
            }
            thread::sleep(POLL);
        }
    }

    fn check_alive(&self) -> Result<()> {
        let mut guard = self.child();
        let running = guard.as_mut().ok_or_else(|| self.not_running())?;
        match self.status(running)? {
            None => Ok(()),
            Some(status) => {
                *guard = None;
                Err(Error::Exited { process: self.name.clone(), status, log: self.log_tail() })
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let guard = self.child();
        // The child is not reaped before `guard` is let go, so its number cannot belong to another process.
        let pid = guard
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| self.not_running())?;
        kill_process(pid, signal).map_err(|errno| Error::io(format!("send {signal:?} to {}", self.name))(errno.into()))
    }

    fn status(&self, child: &mut Child) -> Result<Option<ExitStatus>> {
        child.try_wait().map_err(Error::io(format!("ask for the state of {}", self.name)))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn not_running(&self) -> Error {
        Error::NotRunning { process: self.name.clone() }
    }

    fn not_ready(&self, waited: Duration, last: String) -> Error {
        Error::NotReady { process: self.name.clone(), waited, last, log: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !watchdog::keeps_running() {
            // What cannot be killed here is killed by the watchdog.
            let _ = self.kill();
        }
    }
}
