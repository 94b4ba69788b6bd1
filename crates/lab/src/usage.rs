//! The resource usage of a process, from `/proc`.

use std::{fs, time::Duration};

use crate::{Error, Result};

/// Memory, CPU time and open files of one process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub memory: u64,
    /// The most resident memory, in bytes.
    pub peak: u64,
    /// CPU time in user and kernel mode since the process started.
    pub cpu: Duration,
    /// Open file descriptors.
    pub files: usize,
}

/// The kernel reports CPU time in ticks of this length on every architecture that Rust supports on Linux.
const TICK: Duration = Duration::from_millis(10);

impl Usage {
    /// Reads the usage of a running process.
    ///
    /// # Errors
    /// [`Error::Io`] when the process does not run.
    pub fn of(pid: u32) -> Result<Self> {
        let failed = || Error::io(format!("read the usage of process {pid}"));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed())?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(failed())?;
        let files = fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed())?.count();
        let (memory, peak) = (bytes(&status, "VmRSS:"), bytes(&status, "VmHWM:"));
        Ok(Self { memory, peak, cpu: cpu(&stat), files })
    }
}

/// The memory that a process has written to, in kB. Its code does not count, which is large without optimization. `Private_Dirty`
/// would count it while the kernel has not yet written a new binary to the disk.
///
/// # Errors
/// [`Error::Io`] when the process does not run, or the kernel does not report its memory.
pub fn private_memory(pid: u32) -> Result<u64> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let missing = || std::io::Error::other("there is no line `Anonymous:`");
    let read = smaps.and_then(|smaps| kilobytes(&smaps, "Anonymous:").ok_or_else(missing));
    read.map_err(Error::io(format!("read the memory of process {pid}")))
}

/// Resets the peak memory of a process to its current memory.
///
/// # Errors
/// [`Error::Io`] when the process does not run, or belongs to another user.
pub(crate) fn reset_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(Error::io(format!("reset the peak of process {pid}")))
}

/// The value of a line such as `VmRSS:  1234 kB`.
fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The same, in bytes. A process that has ended and is not reaped uses none.
fn bytes(status: &str, field: &str) -> u64 {
    kilobytes(status, field).unwrap_or_default() * 1024
}

/// Fields 14 and 15 of `/proc/PID/stat`. The name of the program may contain spaces; it ends at the last parenthesis.
fn cpu(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u32 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    TICK * ticks
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_fields_are_read_from_what_the_kernel_writes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((bytes(status, "VmRSS:"), bytes(status, "VmHWM:")), (1 << 20, 2 << 20));
        let stat = "77 (a (b) c) S 1 77 77 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 1 2 3";
        assert_eq!(cpu(stat), Duration::from_secs(2));
    }

    #[test]
    fn this_process_uses_memory_files_and_cpu_time() -> Result<()> {
        let pid = std::process::id();
        let before = Usage::of(pid)?;
        assert!(before.memory > 0 && before.peak >= before.memory && before.files > 2, "{before:?}");
        let deadline = Instant::now() + Duration::from_secs(20);
        while Usage::of(pid)?.cpu < before.cpu + TICK {
            assert!(Instant::now() < deadline, "a busy process uses CPU time");
        }
        reset_peak(pid)
    }
}
