//! The messages between the processes of one run: `run`, guard and init.

use serde::{Deserialize, Serialize};

use crate::clock::Deadlines;
use crate::exit;
use crate::isolation::Isolation;

/// From `run` to the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// The first message; it carries the standard input of the command.
    Start(Start, Deadlines),
    /// The lock was renewed.
    Renewed(Deadlines),
    /// A signal for the command.
    Signal(i32),
    /// The lock is lost: stop the command, see [`Schedule::told`](crate::deadline::Schedule::told).
    Stop,
}

/// How the command is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The process ID of `run`, whose place the command takes.
    pub run: u32,
    pub isolation: Isolation,
    /// The signal that asks the command to stop.
    pub stop_signal: i32,
    /// The time from the stop signal to SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// A shell command that must succeed before the command starts.
    pub before: Option<String>,
    /// The command becomes the foreground process group of the terminal; that of `--on-acquire` does not.
    pub foreground: bool,
    /// The signals that are blocked when the command starts, as `run` found them.
    pub blocked: Vec<i32>,
    /// The nice value of `run`, which the command gets.
    pub nice: i32,
}

/// From init to the process that becomes the command; it carries the standard input, if the command gets one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub start: Start,
    /// Whether this is the command of `--on-acquire`.
    pub is_hook: bool,
    /// The parent whose end ends the command, if that is not the end of a namespace.
    pub parent: Option<i32>,
}

/// From the guard to init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToInit {
    /// The first message; it carries the standard input of the command.
    Start(Start),
    /// A signal for the process group of the command, and whether it asks the command to end: one that has not started yet does not
    /// start then.
    Signal { number: i32, stops: bool },
}

/// From init to the guard, and from the guard to `run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The process that starts the command, as `run` sees its process ID. It has not got the command yet.
    Init { pid: i32 },
    /// Init has made the isolation, and starts the command now.
    Launching,
    /// Something that the user should know.
    Note(String),
    /// This isolation is not possible here.
    Refused(String),
    /// The guard has sent the stop signal, because the lock was not renewed in time.
    Stopping,
    /// The command has ended.
    Ended(Outcome),
}

/// How the command has ended. The process that becomes the command sends it to init if that is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its exit code.
    Exited(u8),
    /// The number of the signal that ended it.
    Killed(u8),
    /// It was never executed: the exit code, and why.
    NotStarted { code: u8, why: String },
    /// A helper process has failed or was killed, and the command with it.
    Failed(String),
}

impl Outcome {
    /// The command was never executed, because this program failed.
    pub const fn not_started(why: String) -> Self {
        Self::NotStarted { code: exit::FAILED, why }
    }
}
