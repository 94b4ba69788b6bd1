//! The thread that writes the deadline file: its folder can be on a network file system that hangs, and the guard must get each renewal.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
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

/// The start of a writer. A folder that hangs delays the program once, and has one thread.
#[derive(Default)]
pub struct Starting(Option<Pin<Box<dyn Future<Output = io::Result<DeadlineWriter>>>>>);

impl Starting {
    /// The writer of the file that `create` makes. The first call waits for it for a short time; each later one returns the same
    /// writer if it is there by then, and otherwise none.
    ///
    /// # Errors
    /// The folder cannot be created, or not in time.
    pub async fn writer(
        &mut self,
        create: impl FnOnce() -> io::Result<DeadlineFile> + Send + 'static,
    ) -> io::Result<Option<DeadlineWriter>> {
        let within = if self.0.is_some() { Duration::ZERO } else { WITHIN };
        self.0.get_or_insert_with(|| Box::pin(DeadlineWriter::start(create)));
        match self.arrived(within).await? {
            None if !within.is_zero() => Err(io::ErrorKind::TimedOut.into()),
            writer => Ok(writer),
        }
    }

    /// The writer of the earlier calls, if it is there within this time.
    ///
    /// # Errors
    /// The folder could not be created.
    pub async fn arrived(&mut self, within: Duration) -> io::Result<Option<DeadlineWriter>> {
        let Some(starting) = &mut self.0 else { return Ok(None) };
        let Ok(started) = timeout(within, starting).await else { return Ok(None) };
        self.0 = None;
        started.map(Some)
    }
}

/// The thread and its file.
#[derive(Debug)]
pub struct DeadlineWriter {
    pub path: PathBuf,
    orders: Arc<Mutex<Orders>>,
    thread: Thread,
    /// The number of the content that was written last. It is closed when the file is removed.
    written: watch::Receiver<u64>,
    /// The token for which the first content was waited for.
    waited_for: Option<u64>,
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
    /// The folder cannot be created.
    async fn start(create: impl FnOnce() -> io::Result<DeadlineFile> + Send + 'static) -> io::Result<Self> {
        let (tell_path, path) = oneshot::channel();
        let (tell_written, written) = watch::channel(0);
        let orders: Arc<Mutex<Orders>> = Arc::default();
        let of_thread = orders.clone();
        let thread = thread::Builder::new().name("run-deadline".to_owned()).spawn(move || {
            match create() {
                Ok(file) => {
                    // If nobody waits any more, the folder is removed.
                    if tell_path.send(Ok(file.path())).is_ok() {
                        serve(&file, &of_thread, &tell_written);
                    }
                }
                Err(error) => _ = tell_path.send(Err(error)),
            }
        })?;
        let path = path.await.map_err(|_| io::Error::other("its thread has failed"))??;
        Ok(Self { path, orders, thread: thread.thread().clone(), written, waited_for: None })
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

    /// Waits until the last content is written, for a short time and once for each token.
    pub async fn is_written(&mut self, token: u64) {
        if self.waited_for.replace(token) == Some(token) {
            return;
        }
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
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn the_newest_content_is_written_and_the_end_removes_it() {
        let mut writer = DeadlineWriter::start(DeadlineFile::new).await.unwrap();
        let until = |ms: u64| Deadlines { stop_at: BootTime(ms), kill_at: BootTime(ms) };
        for ms in 1..=50 {
            writer.write(7, until(ms));
        }
        writer.is_written(7).await;
        let text = std::fs::read_to_string(&writer.path).unwrap();
        assert!(text.contains(r#""token":7,"stopBoottimeMs":50,"#), "{text}");
        let path = writer.path.clone();
        writer.end().await;
        assert!(!path.exists() && !path.parent().unwrap().exists());
    }

    /// The lock is held while each isolation is tried, and no thread ends before its file system answers.
    #[tokio::test]
    async fn a_folder_that_hangs_has_one_thread_and_delays_once() {
        let (answers, answer) = std::sync::mpsc::channel::<()>();
        let hangs = move || answer.recv().map_err(io::Error::other).and_then(|()| DeadlineFile::new());
        let another = || Err(io::Error::other("another thread"));
        let mut starting = Starting::default();
        assert_eq!(starting.writer(hangs).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let began = Instant::now();
        assert!(starting.writer(another).await.unwrap().is_none());
        assert!(began.elapsed() < WITHIN / 2, "{:?}", began.elapsed());
        answers.send(()).unwrap();
        let writer = loop {
            if let Some(writer) = starting.writer(another).await.unwrap() {
                break writer;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "still no file");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert!(writer.path.parent().unwrap().exists());
        writer.end().await;
    }

    /// A file system can hang later too: here, the file to write is a pipe.
    #[tokio::test]
    async fn a_write_that_hangs_delays_a_term_once() {
        let mut writer = DeadlineWriter::start(DeadlineFile::new).await.unwrap();
        let new = writer.path.with_file_name("new");
        assert!(std::process::Command::new("mkfifo").arg(&new).status().unwrap().success());
        writer.write(7, Deadlines { stop_at: BootTime(1), kill_at: BootTime(1) });
        for (token, waits) in [(7, true), (7, false), (8, true)] {
            let began = Instant::now();
            writer.is_written(token).await;
            assert_eq!(began.elapsed() >= WITHIN, waits, "{:?}", began.elapsed());
        }
        std::fs::read(&new).unwrap();
        writer.end().await;
    }
}
