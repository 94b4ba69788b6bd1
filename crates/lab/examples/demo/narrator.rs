//! Prints the demo on the terminal: seconds since the start, then the event.

use std::{
    cell::Cell,
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use redislease_lab::LeaseState;

/// How often a waiting step updates the clock.
const TICK: Duration = Duration::from_millis(100);

pub struct Narrator {
    started: Instant,
    terminal: bool,
    ticked: Cell<Option<Instant>>,
}

impl Narrator {
    pub fn new() -> Self {
        Self { started: Instant::now(), terminal: io::stdout().is_terminal(), ticked: Cell::default() }
    }

    /// Prints the title of a chapter.
    pub fn chapter(&mut self, title: &str) {
        let (bold, plain) = if self.terminal { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.write(&format!("\n         {bold}{title}{plain}\n"));
    }

    /// Prints an event. Further lines of the text are indented below the first.
    pub fn say(&mut self, text: &str) {
        let seconds = self.started.elapsed().as_secs_f32();
        let text = text.trim_end().replace('\n', "\n         ");
        self.write(&format!("{seconds:5.1} s  {text}\n"));
    }

    /// Prints a line of a table or of a page unchanged.
    pub fn quote(&mut self, text: &str) {
        let lines: String = text.lines().map(|line| format!("         | {line}\n")).collect();
        self.write(&lines);
    }

    /// Called while waiting: on a terminal it updates the clock.
    pub fn tick(&self) {
        if self.terminal && self.ticked.get().is_none_or(|at| at.elapsed() >= TICK) {
            self.ticked.set(Some(Instant::now()));
            print!("\r{:5.1} s  ...", self.started.elapsed().as_secs_f32());
            let _ = io::stdout().flush();
        }
    }

    /// A closed pipe must not panic.
    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if self.ticked.take().is_some() {
            let _ = out.write_all(b"\r\x1b[K");
        }
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }
}

pub fn holder(lease: &LeaseState) -> String {
    lease.holder().unwrap_or("no pod").to_owned()
}

pub fn token(lease: &LeaseState) -> String {
    lease.token().map_or_else(|| "none".to_owned(), |token| token.to_string())
}
