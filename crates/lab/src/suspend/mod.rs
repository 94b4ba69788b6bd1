//! A suspend of the machine on which a process runs, for this process alone.
//!
//! While Linux is suspended, `CLOCK_MONOTONIC` stops, and with it the timers of tokio and `std::time::Instant`;
//! `CLOCK_BOOTTIME` and `CLOCK_REALTIME` continue. SIGSTOP stops a process and no clock. Therefore a process with a
//! [`Machine`] runs with a small library (`clock.c`, compiled with `cc`) in which `CLOCK_MONOTONIC` is late by the total
//! duration of all suspends. The connections of the process behave as after SIGSTOP: its peers can still send to it.
//!
//! [`Process`](crate::Process) suspends one server. A test that suspends other processes gives them [`Machine::env`], stops them, and
//! tells the machine with [`Machine::suspended`] and [`Machine::woken`].

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, Result, command};

/// Offset and size of the fields in the file of a machine; see `struct machine` in `clock.c`.
const LAG: u64 = 0;
const READS: u64 = 8;
const FIELD: usize = 8;

/// The compiled library. It makes machines.
#[derive(Debug)]
pub struct SuspendLibrary {
    library: PathBuf,
    folder: PathBuf,
}

/// The machine of one process, or of several that are suspended together. Its clocks outlive a restart of the process.
#[derive(Debug)]
pub struct Machine {
    library: PathBuf,
    path: PathBuf,
    file: File,
    clock: Mutex<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    /// The total duration of all suspends that have ended.
    lag: Duration,
    suspended_at: Option<Instant>,
}

impl SuspendLibrary {
    /// Compiles the library into `folder`, which must exist as long as its machines.
    ///
    /// # Errors
    /// [`Error::Command`] with the message of the compiler, [`Error::Io`] when there is no `cc`.
    pub fn compile(folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        fs::write(&source, include_str!("clock.c")).map_err(Error::io(format!("write {}", source.display())))?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).args([&library, &source]).arg("-ldl");
        command::run(&mut compile, || format!("cc -shared -o {}", library.display()), "")?;
        Ok(Self { library, folder: folder.to_owned() })
    }

    /// Makes a machine that was never suspended. `name` is unique in the folder.
    ///
    /// # Errors
    /// [`Error::Io`] when its file cannot be written.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        let path = self.folder.join(format!("{name}.machine"));
        let failed = || Error::io(format!("write {}", path.display()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).map_err(failed())?;
        file.write_all_at(&[0; 2 * FIELD], LAG).map_err(failed())?;
        Ok(Machine { library: self.library.clone(), path, file, clock: Mutex::default() })
    }
}

impl Machine {
    /// The variables for a process on this machine. The program must be linked dynamically.
    pub fn env(&self) -> [(&str, &OsStr); 2] {
        [("LD_PRELOAD", self.library.as_os_str()), ("REDISLEASE_LAB_MACHINE", self.path.as_os_str())]
    }

    /// The suspend begins: all processes of the machine have stopped.
    pub fn suspended(&self) {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).suspended_at = Some(Instant::now());
    }

    /// Stops `CLOCK_MONOTONIC` for the time since [`suspended`](Self::suspended). The processes must still be stopped.
    ///
    /// The suspend is measured while the processes are stopped, so it is never longer than the stop: the late clock does not go
    /// backward.
    ///
    /// # Errors
    /// [`Error::Io`] when the file of the machine cannot be written.
    pub fn woken(&self) -> Result<()> {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let suspend = clock.suspended_at.take().map_or(Duration::ZERO, |at| at.elapsed());
        clock.lag += suspend;
        let lag = i64::try_from(clock.lag.as_nanos()).unwrap_or(i64::MAX);
        self.file.write_all_at(&lag.to_ne_bytes(), LAG).map_err(Error::io(format!("write {}", self.path.display())))
    }

    /// How often processes on this machine have read the late clock. Zero: no process uses the library.
    ///
    /// # Errors
    /// [`Error::Io`] when the file of the machine cannot be read.
    pub fn reads(&self) -> Result<u64> {
        let mut reads = [0; FIELD];
        self.file.read_exact_at(&mut reads, READS).map_err(Error::io(format!("read {}", self.path.display())))?;
        Ok(u64::from_ne_bytes(reads))
    }
}
