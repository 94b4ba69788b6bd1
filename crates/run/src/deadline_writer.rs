//! The thread that writes the deadline file: its folder can be on a network file system that hangs, and the guard must get each renewal.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::clock::{BootTime, Deadlines};
use crate::deadline_file::DeadlineFile;
use crate::say::say;

/// How long `run` waits for the folder, for the first content and for the removal.
const WITHIN: Duration = Duration::from_secs(2);

/// The thread and its file.
#[derive(Debug)]
pub struct DeadlineWriter {
    pub path: PathBuf,
    orders: Arc<Mutex<Orders>>,
    thread: Thread,
    /// The number of the content that was written last. It is closed when the file is removed.
    written: watch::Receiver<u64>,
}

/// What the thread has to do. A new content replaces one that was not written.
#[derive(Debug, Default)]
struct Orders {
    content: Option<(u64, Deadlines)>,
    /// The number of contents so far.
    count: u64,
    is_over: bool,
}

fn lock(orders: &Mutex<Orders>) -> MutexGuard<'_, Orders> {
    orders.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeadlineWriter {
    /// Starts the thread, which creates the folder.
    ///
    /// # Errors
    /// The folder cannot be created, or not in time.
    pub async fn start() -> io::Result<Self> {
        let (tell_path, path) = oneshot::channel();
        let (tell_written, written) = watch::channel(0);
        let orders: Arc<Mutex<Orders>> = Arc::default();
        let of_thread = orders.clone();
        let thread = thread::Builder::new().name("run-deadline".to_owned()).spawn(move || {
            match DeadlineFile::new() {
                Ok(file) => {
                    // If nobody waits any more, the folder is removed.
                    if tell_path.send(Ok(file.path())).is_ok() {
                        serve(&file, &of_thread, &tell_written);
                    }
                }
                Err(error) => _ = tell_path.send(Err(error)),
            }
        })?;
        let path = timeout(WITHIN, path).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let path = path.map_err(|_| io::Error::other("its thread has failed"))??;
        Ok(Self { path, orders, thread: thread.thread().clone(), written })
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut lock(&self.orders));
        self.thread.unpark();
    }

    /// Replaces the content of the file soon.
    pub fn write(&self, token: u64, deadlines: Deadlines) {
        self.order(|orders| {
            orders.content = Some((token, deadlines));
            orders.count += 1;
        });
    }

    /// Waits until the last content is written, for a short time.
    pub async fn is_written(&self) {
        let mut written = self.written.clone();
        let count = lock(&self.orders).count;
        // Without it, the command finds an older deadline, which is early.
        let _ = timeout(WITHIN, written.wait_for(|number| *number >= count)).await;
    }

    /// Removes the file and the folder, if that takes no longer than a short time.
    pub async fn end(mut self) {
        self.order(|orders| orders.is_over = true);
        let ended = async { while self.written.changed().await.is_ok() {} };
        let _ = timeout(WITHIN, ended).await;
    }
}

fn serve(file: &DeadlineFile, orders: &Mutex<Orders>, written: &watch::Sender<u64>) {
    let mut is_told = false;
    loop {
        let (content, count, is_over) = {
            let mut orders = lock(orders);
            (orders.content.take(), orders.count, orders.is_over)
        };
        if is_over {
            return;
        }
        let Some((token, deadlines)) = content else {
            thread::park();
            continue;
        };
        let result = file.write(token, deadlines, BootTime::now());
        if let Err(error) = &result
            && !is_told
        {
            say(&format!("cannot write {}: {error}", file.path().display()));
        }
        is_told = result.is_err();
        written.send_replace(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_content_is_written_and_the_end_removes_it() {
        let writer = DeadlineWriter::start().await.unwrap();
        let until = |ms: u64| Deadlines { stop_at: BootTime(ms), kill_at: BootTime(ms) };
        for ms in 1..=50 {
            writer.write(7, until(ms));
        }
        writer.is_written().await;
        let text = std::fs::read_to_string(&writer.path).unwrap();
        assert!(text.contains(r#""token":7,"stopBoottimeMs":50,"#), "{text}");
        let path = writer.path.clone();
        writer.end().await;
        assert!(!path.exists() && !path.parent().unwrap().exists());
    }
}
