//! The helper process that becomes the command: it sets what a process can only set for itself, and executes the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::message::Start;
use crate::{exit, helper, say, signals, terminal};

/// The words for [`main`]: the parent whose end ends the command, `0` for none; whether the command is in the foreground; the blocked
/// signals.
fn words(start: &Start) -> [String; 3] {
    // In a namespace, the end of init ends all processes.
    let parent = if start.isolation.has_namespace() { 0 } else { std::process::id() };
    let blocked: Vec<String> = start.blocked.iter().map(ToString::to_string).collect();
    [parent.to_string(), u8::from(start.foreground).to_string(), blocked.join(",")]
}

/// A command that executes `user` in a process group of its own.
pub fn command(start: &Start, user: &[OsString]) -> Command {
    let mut command = helper::command(helper::EXEC, &words(start), user);
    command.process_group(0);
    command
}

/// Executes the command; returns only if that is impossible.
pub fn main(line: &[OsString]) -> ExitCode {
    let Some((words, [program, arguments @ ..])) = helper::split(line) else { return exit::code(exit::FAILED) };
    let text = |index: usize| words.get(index).and_then(|word| word.to_str()).unwrap_or_default();
    let parent: i32 = text(0).parse().unwrap_or_default();
    if parent != 0 {
        let bound = set_pdeathsig(Signal::SIGKILL);
        // The parent may have ended before this call.
        if bound.is_err() || getppid().as_raw() != parent {
            return exit::code(exit::FAILED);
        }
    }
    if text(1) == "1"
        && let Err(error) = terminal::take()
    {
        say(&format!("the command does not get the terminal: {error}"));
    }
    let blocked: Vec<i32> = text(2).split(',').filter_map(|number| number.parse().ok()).collect();
    if let Err(error) = signals::set_of(&blocked).thread_set_mask() {
        say(&format!("cannot restore the blocked signals: {error}"));
        return exit::code(exit::FAILED);
    }
    let error = if text(1) == "1" {
        // As a shell without job control starts it. A shell does this, because a process can ignore a signal only with
        // `unsafe`.
        let script = "trap '' TSTP; exec \"$@\"";
        Command::new("/bin/sh").args(["-c", script, "redislease run"]).arg(program).args(arguments).exec()
    } else {
        Command::new(program).args(arguments).exec()
    };
    say(&format!("cannot execute {}: {error}", program.display()));
    exit::code(not_executed(&error))
}

/// The exit code as that of env(1).
fn not_executed(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE }
}
