//! Writes what the subcommands print.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, ErrorKind, StdoutLock, Write};

use serde::Serialize;

/// Writes to standard output. That its reader has closed the pipe, for example `head`, is no error.
pub(super) fn print(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = write(&mut out).and_then(|()| out.flush());
    unless_closed(written)
}

/// Prints one line.
pub(super) fn print_line(text: &str) -> io::Result<()> {
    print(|out| writeln!(out, "{}", plain(text)))
}

/// Writes a value as JSON, in several lines.
pub(super) fn json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// The text without control characters, as one line. Objects and servers could otherwise send commands to the terminal of the reader.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let shown = |char: char| match char {
        '\n' | '\r' | '\t' => ' ',
        char if char.is_control() => char::REPLACEMENT_CHARACTER,
        char => char,
    };
    text.chars().map(shown).collect()
}

/// Prints the error of a subcommand to standard error.
pub fn print_error(error: &dyn Error) {
    // Nothing more can be done if standard error is closed.
    let _ = writeln!(io::stderr(), "error: {}", plain(&error.to_string()));
}

fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe whose reader has closed it.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        for (text, shown) in [
            ("plain text, ü and 名", "plain text, ü and 名"),
            ("two\nlines\tand a tab", "two lines and a tab"),
            ("\u{1b}[2Jred\u{7}", "\u{fffd}[2Jred\u{fffd}"),
            ("\u{7f}\u{9b}31m", "\u{fffd}\u{fffd}31m"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn only_a_closed_pipe_is_no_error() {
        assert!(unless_closed(writeln!(Closed, "text")).is_ok());
        assert!(unless_closed(json(&"text", &mut Closed)).is_ok());
        assert!(unless_closed(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
