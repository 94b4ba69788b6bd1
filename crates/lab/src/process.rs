//! A server process that a test can start, kill, pause, resume, suspend, wake and start again.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{
    Error, Machine, Result, http,
    wait::{pause, tail},
    watchdog,
};

/// Time between two checks of a condition.
const POLL: Duration = Duration::from_millis(10);
/// The time for a reaction to SIGSTOP or SIGCONT. Both are immediate, except on a busy machine.
const SIGNALLED_WITHIN: Duration = Duration::from_secs(10);

/// A server process. It is killed when this value is dropped, and also when the process that started it is killed.
///
/// All methods take `&self`, so that the tests of one binary can share a static control plane.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
    machine: Option<Machine>,
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
            machine: None,
            child: Mutex::new(None),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Adds a variable to the inherited environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs the process on a simulated machine of its own, which can be suspended. The program must be linked dynamically.
    #[must_use]
    pub fn on_machine(mut self, machine: Machine) -> Self {
        for (name, value) in machine.env() {
            self.env.push((name.into(), value.to_owned()));
        }
        self.machine = Some(machine);
        self
    }

    /// Starts the process and does not wait until it serves. Does nothing when it already runs.
    ///
    /// # Errors
    /// [`Error::Io`] when no process can be created. A program that cannot be executed is reported as [`Error::Exited`]
    /// by a later call.
    pub fn start(&self) -> Result<()> {
        let mut child = self.child();
        if let Some(running) = child.as_mut()
            && self.status(running)?.is_none()
        {
            return Ok(());
        }
        // The child writes its process ID to the watchdog's pipe before it becomes the server. The pipe stays open until
        // then, so the watchdog has the ID of every server, even if this process is killed at any moment.
        *child = Some(
            Command::new("/bin/sh")
                .args(["-c", r#"echo "pid $$"; exec "$@" >>"$0" 2>&1"#])
                .arg(&self.log)
                .arg(&self.program)
                .args(&self.args)
                .envs(self.env.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::null())
                .stdout(watchdog::pipe()?)
                .stderr(Stdio::null())
                // A group of its own: Ctrl-C must not reach it, because this process stops its servers in order.
                .process_group(0)
                .spawn()
                .map_err(Error::io(format!("start {}", self.name)))?,
        );
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits until it is gone. Does nothing when it does not run.
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

    /// Sends SIGTERM and waits until the process has exited.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::NotReady`] when it still runs after `within`; it is not killed then.
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
                return Err(self.not_ready(within, "still running after SIGTERM".to_owned()));
            }
            thread::sleep(POLL);
        }
    }

    /// Pauses the process (SIGSTOP): its connections stay open and nothing answers, as on a hung machine.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] when the system refuses.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes a paused process (SIGCONT). It then reads what its sockets received meanwhile.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] when the system refuses.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Suspends the machine of the process until [`wake`](Self::wake): the process does not run, and after it
    /// `CLOCK_MONOTONIC` is late by the duration of the suspend. Returns when the process has stopped.
    ///
    /// # Errors
    /// [`Error::NotSuspendable`] without [`on_machine`](Self::on_machine), [`Error::NotRunning`], or [`Error::Io`] when the
    /// system refuses.
    pub fn suspend(&self) -> Result<()> {
        let machine = self.machine()?;
        self.signal(Signal::STOP)?;
        self.wait_until(SIGNALLED_WITHIN, || self.has_stopped())?;
        machine.suspended();
        Ok(())
    }

    /// Ends a suspend. Returns when the process has read the late clock.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend), and [`Error::NotReady`] when the process does not use the library of its machine.
    pub fn wake(&self) -> Result<()> {
        let machine = self.machine()?;
        machine.woken()?;
        let before = machine.reads()?;
        self.signal(Signal::CONT)?;
        self.wait_until(SIGNALLED_WITHIN, || match machine.reads() {
            Ok(reads) if reads > before => Ok(()),
            Ok(_) => Err("it does not read the clock of its machine: link it dynamically".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let mut guard = self.child();
        let child = guard.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    /// The file that its output is appended to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Polls `ready` until it succeeds.
    ///
    /// # Errors
    /// [`Error::Exited`] when the process exits first, [`Error::NotReady`] with the last error of `ready` after `within`.
    pub fn wait_until(
        &self,
        within: Duration,
        mut ready: impl FnMut() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            self.check_alive()?;
            let last = match ready() {
                Ok(()) => return self.check_alive(),
                Err(last) => last,
            };
            if began.elapsed() >= within {
                return Err(self.not_ready(within, last));
            }
            thread::sleep(pause(began, asked));
        }
    }

    /// Waits until this file exists: the process makes it when it is ready.
    pub(crate) fn wait_for_file(&self, file: &Path, within: Duration) -> Result<()> {
        let missing = || format!("there is no {}", file.display());
        self.wait_until(within, || file.exists().then_some(()).ok_or_else(missing))
    }

    fn check_alive(&self) -> Result<()> {
        let mut guard = self.child();
        let running = guard.as_mut().ok_or_else(|| self.not_running())?;
        match self.status(running)? {
            None => Ok(()),
            Some(status) => {
                *guard = None;
                Err(Error::Exited { process: self.name.clone(), status, log: tail(&self.log) })
            }
        }
    }

    fn machine(&self) -> Result<&Machine> {
        self.machine.as_ref().ok_or_else(|| Error::NotSuspendable { process: self.name.clone() })
    }

    /// Whether all threads have stopped after SIGSTOP. The kernel reports this once.
    fn has_stopped(&self) -> std::result::Result<(), String> {
        let guard = self.child();
        let pid = self.process_id(&guard)?;
        match waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("still running after SIGSTOP".to_owned()),
            Err(errno) => Err(errno.to_string()),
        }
    }

    /// The child is not reaped while the guard is held, so the process id cannot belong to another process.
    fn process_id(&self, guard: &MutexGuard<'_, Option<Child>>) -> Result<Pid> {
        guard
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| self.not_running())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let guard = self.child();
        let pid = self.process_id(&guard)?;
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
        Error::NotReady { process: self.name.clone(), waited, last, log: tail(&self.log) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If this fails, the watchdog kills the process later.
        let _ = self.kill();
    }
}

/// Starts a server that answers this path when it is ready.
pub(crate) fn start_http<S>(
    prepare: impl Fn() -> Result<S>,
    parts: impl Fn(&S) -> (&Process, SocketAddr),
    path: &str,
    within: Duration,
) -> Result<S> {
    on_free_port(|| {
        let server = prepare()?;
        let (process, address) = parts(&server);
        process.start()?;
        process.wait_until(within, || match http::get(address, path) {
            Ok((200, _)) => Ok(()),
            Ok((code, page)) => Err(format!("{code}: {page}")),
            Err(error) => Err(error.to_string()),
        })?;
        Ok(server)
    })
}

/// Starts a server on a port that was free. If another process has taken it before the server could bind it, it is started again, on
/// another one.
pub(crate) fn on_free_port<S>(start: impl Fn() -> Result<S>) -> Result<S> {
    let mut tries = 5;
    loop {
        match start() {
            Err(error) if error.is_address_in_use() && tries > 1 => tries -= 1,
            other => return other,
        }
    }
}
