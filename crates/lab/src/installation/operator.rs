//! An operator process.

use std::{
    fs,
    net::SocketAddr,
    ops::Deref,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::options::InstallationOptions;
use crate::{Error, Machine, Metrics, Process, Result, http};

/// The time for a start. An operator serves /metrics before it connects to other servers; on a busy machine this may take
/// seconds.
const START_WITHIN: Duration = Duration::from_secs(20);
/// The time for a stop. An operator exits within a few seconds of SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Milliseconds in 8 digits.
fn digits(lost: Duration) -> String {
    format!("{:08}", lost.as_millis())
}

/// An operator process, which can be stopped and started again. It is killed when it is dropped. A
/// [`suspend`](Process::suspend) needs [`InstallationOptions::suspendable`].
#[derive(Debug)]
pub struct Operator {
    process: Process,
    listens: Mutex<Option<SocketAddr>>,
    /// Says how much time the clock of the process has lost.
    lost_time: PathBuf,
}

impl Operator {
    pub(super) fn start(
        options: &InstallationOptions,
        instance: &str,
        kubeconfig: &Path,
        log: PathBuf,
        args: &[&str],
        machine: Option<Machine>,
    ) -> Result<Self> {
        let lost_time = log.with_extension("lost-time");
        fs::write(&lost_time, digits(Duration::ZERO)).map_err(Error::io(format!("write {}", lost_time.display())))?;
        let watched = &options.watch_namespaces;
        let watched = (!watched.is_empty()).then(|| format!("--watch-namespaces={}", watched.join(",")));
        let process = Process::new(format!("operator {instance}"), &options.binary, log)
            .args(["operator", "--listen=127.0.0.1:0", "--log-format=json"])
            .args([format!("--cluster-name={}", options.cluster), format!("--instance={instance}")])
            .args(watched)
            .args(options.allow_scheduling_gate.then_some("--allow-scheduling-gate"))
            .args(options.allow_scale.then_some("--allow-scale"))
            .args(options.allow_suspend.then_some("--allow-suspend"))
            .args((!options.annotations).then_some("--annotations=false"))
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            // Only a build with debug assertions reads it.
            .env("REDISLEASE_TEST_LOST_TIME", &lost_time)
            // As in the image.
            .env("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0");
        let process = match machine {
            Some(machine) => process.on_machine(machine),
            None => process,
        };
        let operator = Self { process, listens: Mutex::default(), lost_time };
        operator.start_again()?;
        Ok(operator)
    }

    /// Starts the operator again after it has stopped, and waits until it serves /metrics. It appends to the same log.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn start_again(&self) -> Result<()> {
        let before = fs::metadata(self.process.log()).map_or(0, |log| log.len());
        self.process.start()?;
        let mut listens = None;
        self.process.wait_until(START_WITHIN, || {
            listens = address_in(&self.log_since(before));
            if listens.is_some() { Ok(()) } else { Err("its log does not say where it listens".to_owned()) }
        })?;
        *self.listens.lock().unwrap_or_else(PoisonError::into_inner) = listens;
        Ok(())
    }

    /// Sends SIGTERM and waits until the operator has exited.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it still runs after ten seconds.
    pub fn stop(&self) -> Result<ExitStatus> {
        self.process.terminate(STOP_WITHIN)
    }

    /// Takes time away from the clock of the operator, as a pause of its virtual machine does. `total` is what it has lost since its
    /// start. Only a build with debug assertions can lose time.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lose_time(&self, total: Duration) -> Result<()> {
        // The operator must never read a file that is only partly written.
        let file = fs::OpenOptions::new().write(true).open(&self.lost_time);
        let written = file.and_then(|file| file.write_all_at(digits(total).as_bytes(), 0));
        written.map_err(Error::io(format!("write {}", self.lost_time.display())))
    }

    /// Kills the operator (SIGKILL) and starts it again.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.start_again()
    }

    /// The address at which it serves.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.listens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lines that it has logged, over all its starts.
    pub fn log(&self) -> Vec<Value> {
        lines_in(&self.log_since(0)).collect()
    }

    /// Reads /metrics.
    ///
    /// # Errors
    /// [`Error::Answer`].
    pub fn metrics(&self) -> Result<Metrics> {
        match self.get("/metrics")? {
            (200, page) => Ok(Metrics::read_now(page)),
            (code, page) => Err(Error::Answer { url: "/metrics".to_owned(), message: format!("{code}: {page}") }),
        }
    }

    /// Polls /metrics until `wanted` accepts the sum of the series with this name and these labels (see
    /// [`Metrics::value`]). Counters need polling: the operator counts a write after the API server's answer, and others
    /// can read the written object before that.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the last value.
    pub fn wait_for_metric(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        within: Duration,
        mut wanted: impl FnMut(Option<f64>) -> bool,
    ) -> Result<()> {
        self.wait_for_metrics(within, |page| match page.value(name, labels) {
            figure if wanted(figure) => Ok(()),
            figure => Err(format!("{name} {labels:?} is {figure:?}")),
        })
    }

    /// Polls /metrics until `wanted` accepts the page.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the last error of `wanted`.
    pub fn wait_for_metrics(
        &self,
        within: Duration,
        mut wanted: impl FnMut(&Metrics) -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.process.wait_until(within, || wanted(&self.metrics()?))
    }

    /// Polls the log until `wanted` accepts one of its lines.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the last lines of the log.
    pub fn wait_for_log(&self, what: &str, within: Duration, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        self.process.wait_until(within, || {
            let found = self.log().iter().any(&wanted);
            if found { Ok(()) } else { Err(format!("no line of the log says: {what}")) }
        })
    }

    /// Waits until /readyz answers with 200.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the answer of /readyz.
    pub fn wait_ready(&self) -> Result<()> {
        self.process.wait_until(START_WITHIN, || match self.get("/readyz") {
            Ok((200, _)) => Ok(()),
            Ok((_, page)) => Err(page),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Status code and body of one of its pages.
    ///
    /// # Errors
    /// [`Error::Answer`] when it does not answer.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let failed = |message: String| Error::Answer { url: path.to_owned(), message };
        let address = self.address().ok_or_else(|| failed("the operator does not run".to_owned()))?;
        http::get(address, path).map_err(|error| failed(error.to_string()))
    }

    fn log_since(&self, offset: u64) -> String {
        let log = fs::read(self.process.log()).unwrap_or_default();
        let from = usize::try_from(offset).map_or(log.len(), |offset| offset.min(log.len()));
        String::from_utf8_lossy(&log[from..]).into_owned()
    }
}

impl Deref for Operator {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

fn lines_in(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn address_in(log: &str) -> Option<SocketAddr> {
    lines_in(log).find_map(|line| line["listen"].as_str()?.parse().ok())
}
