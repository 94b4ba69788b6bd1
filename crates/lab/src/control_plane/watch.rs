//! A watch of one kind of object: a `kubectl get --watch` process and the events that it has printed.

use std::{
    fs,
    io::BufReader,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::kubectl::Kubectl;
use crate::{Error, Result, watchdog};

/// A running watch. It stops when it is dropped, or when the process that started it is killed.
#[derive(Debug)]
pub struct Watch {
    what: String,
    child: Child,
    complaints: PathBuf,
    events: Receiver<WatchEvent>,
    seen: Vec<WatchEvent>,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// When it was received.
    pub at: Instant,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// The object after the change.
    pub object: Value,
}

impl Watch {
    pub(super) fn start(kubectl: &Kubectl, folder: &Path, kind: &str, namespace: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let what = format!("watch of {kind} in {namespace}");
        let complaints = folder.join(format!("watch-{}.log", NUMBER.fetch_add(1, Ordering::Relaxed)));
        // The shell writes its process id to the watchdog before it becomes kubectl.
        let mut child = Command::new("/bin/sh")
            .args(["-c", r#"echo "pid $$" >&2; exec "$@" 2>"$0""#])
            .arg(&complaints)
            .arg(&kubectl.program)
            .arg(kubectl.cache_dir())
            .args(["get", kind, "--namespace", namespace, "--watch", "--output-watch-events", "--output=json"])
            .env("KUBECONFIG", kubectl.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(watchdog::pipe()?)
            .process_group(0)
            .spawn()
            .map_err(Error::io(format!("start the {what}")))?;
        let (seen, events) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let stream = serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>();
                for mut event in stream.map_while(std::result::Result::ok) {
                    let kind = event["type"].as_str().unwrap_or_default().to_owned();
                    if seen.send(WatchEvent { at: Instant::now(), kind, object: event["object"].take() }).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { what, child, complaints, events, seen: Vec::new() })
    }

    /// All events so far, in order.
    pub fn so_far(&mut self) -> &[WatchEvent] {
        self.seen.extend(self.events.try_iter());
        &self.seen
    }

    /// Waits for the first event that `wanted` accepts, among those that neither this function nor
    /// [`so_far`](Self::so_far) has returned before.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with the last event; also when kubectl has exited.
    pub fn wait(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&WatchEvent) -> bool,
    ) -> Result<WatchEvent> {
        let deadline = Instant::now() + within;
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => {
                    self.seen.push(event.clone());
                    if wanted(&event) {
                        return Ok(event);
                    }
                }
                Err(error) => return Err(self.not_in_time(what, within, error)),
            }
        }
    }

    fn not_in_time(&self, what: &str, waited: Duration, error: RecvTimeoutError) -> Error {
        let last = match (error, self.seen.last()) {
            (RecvTimeoutError::Disconnected, _) => "kubectl has exited".to_owned(),
            (_, Some(event)) => format!("{} {}", event.kind, event.object),
            (_, None) => "nothing".to_owned(),
        };
        let context = fs::read_to_string(&self.complaints).unwrap_or_default();
        Error::NotInTime { what: format!("{}: {what}", self.what), waited, last, context }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // kubectl may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
