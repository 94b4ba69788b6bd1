//! Runs a command while a lock is held on a majority of independent Redis masters. The kernel keeps the deadline.
//!
//! `redislease run` takes the lock itself, with `redislease-locker`. It starts three processes of the same program:
//!
//! | process | does | ends |
//! |---|---|---|
//! | `run` (keeper) | takes and renews the lock, passes signals on, reaps orphans | with the command, or with the loss |
//! | guard | has a timer of the kernel that kills it at the deadline; each renewal moves it | at the deadline, or with the command |
//! | init | starts the command; the first process of a PID namespace if one is allowed | with the guard (`PR_SET_PDEATHSIG`) |
//!
//! The guard is never the first process of a PID namespace, which its own timer could not kill. The end of the guard ends init, and the end
//! of init ends everything in its namespace. None of this needs a process of ours to be scheduled.
//!
//! Decisions are in machines without IO ([`machine`], [`deadline`]); the other modules carry them out.

mod acquire;
mod channel;
mod children;
mod clock;
mod deadline;
mod deadline_file;
mod deadline_writer;
mod duration;
mod exit;
mod files;
mod guard;
mod helper;
mod incoming;
mod init;
mod isolation;
mod keeper;
mod launch;
mod limits;
mod link;
mod listen;
mod machine;
mod message;
mod namespace;
mod options;
mod say;
mod servers;
mod shell;
mod signals;
mod terminal;
mod timer;

use std::ffi::OsString;
use std::process::ExitCode;

pub use exit::USAGE;
pub use isolation::Choice as IsolationChoice;
pub use options::{Lease, Mode, RunOptions};
pub use servers::Servers;

/// Runs the command of `options`. Returns its exit code, or one of those in the documentation of [`RunOptions`].
pub fn run(options: RunOptions) -> ExitCode {
    ExitCode::from(keeper::main(options))
}

/// Runs a helper process, if the command line is that of one. Call it first in `main`: `run` starts its own program with such command
/// lines. Returns the exit code.
///
/// The helper processes are not for users, so they are not in the help.
pub fn helper(line: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut line = line.into_iter().skip(1);
    let role = line.next()?;
    let main: fn(&[OsString]) -> ExitCode = match role.to_str()? {
        helper::GUARD => guard::main,
        helper::INIT => init::main,
        helper::EXEC => launch::main,
        _ => return None,
    };
    let line: Vec<OsString> = line.collect();
    Some(main(&line))
}
