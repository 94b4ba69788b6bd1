//! What the user is told.
//!
//! Standard error can be a pipe that nobody reads, and a write to it waits. So `run` has a thread that writes, and drops the lines for
//! which there is no place. A helper process has one thread, and drops a line that would have to wait.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::signals;

/// How many lines wait at most.
const MOST: usize = 64;
/// How long the end of the program waits for the last lines.
const LAST_WITHIN: Duration = Duration::from_secs(1);

static WRITER: OnceLock<Writer> = OnceLock::new();

enum Line {
    Text(String),
    /// Everything before it is written.
    Flush(Sender<()>),
}

/// The thread that writes.
struct Writer {
    lines: SyncSender<Line>,
    /// How many lines were dropped since the last one that had a place.
    dropped: AtomicUsize,
}

impl Writer {
    fn new() -> (Self, Receiver<Line>) {
        let (lines, receiver) = sync_channel(MOST);
        (Self { lines, dropped: AtomicUsize::new(0) }, receiver)
    }

    /// Passes a line on, behind one about those that were dropped. Returns whether there was a place for it.
    fn pass_on(&self, line: &str) -> bool {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let missing = match dropped {
            0 => String::new(),
            _ => of_run(&format!("lines that are missing here, because standard error was not read: {dropped}")),
        };
        let is_passed_on = self.lines.try_send(Line::Text(missing + line)).is_ok();
        if !is_passed_on {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
        is_passed_on
    }
}

/// Starts the thread that writes.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn start() -> io::Result<()> {
    let (writer, lines) = Writer::new();
    std::thread::Builder::new().name("run-say".to_owned()).spawn(move || write_all(lines))?;
    // The first thread stays.
    let _ = WRITER.set(writer);
    Ok(())
}

/// Prints a line for the user, later if standard error is not read. It never waits.
pub(crate) fn say(text: &str) {
    match WRITER.get() {
        Some(writer) => _ = writer.pass_on(&of_run(text)),
        None if is_ready() => write(&of_run(text)),
        None => {}
    }
}

/// Waits for a second at most until all lines are written.
pub(crate) fn finish() {
    let Some(writer) = WRITER.get() else { return };
    let (done, written) = channel();
    if writer.lines.try_send(Line::Flush(done)).is_ok() {
        let _ = written.recv_timeout(LAST_WITHIN);
    }
}

fn of_run(text: &str) -> String {
    format!("redislease run: {text}\n")
}

fn write_all(lines: Receiver<Line>) {
    signals::block_background_writes();
    for line in lines {
        match line {
            Line::Text(text) => write(&text),
            // The program may not wait any more.
            Line::Flush(done) => _ = done.send(()),
        }
    }
}

/// Nobody may read it any more, or the disk may be full. That is no reason to stop the command or to lose its exit code.
fn write(line: &str) {
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether a short line can be written without waiting.
fn is_ready() -> bool {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_a_place_are_counted_where_they_are_missing() {
        let (writer, lines) = Writer::new();
        assert!((0..MOST).all(|_| writer.pass_on("early\n")));
        assert!(!writer.pass_on("dropped\n") && !writer.pass_on("dropped\n"));
        let text = || match lines.try_recv() {
            Ok(Line::Text(text)) => text,
            _ => panic!("no line"),
        };
        assert_eq!(text(), "early\n");
        assert!(writer.pass_on("late\n"));
        assert!((1..MOST).all(|_| text() == "early\n"));
        let last = text();
        assert!(last.contains("not read: 2\n") && last.ends_with("\nlate\n"), "{last}");
    }
}
