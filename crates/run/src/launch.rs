//! The helper process that becomes the command: it sets what a process can only set for itself, and executes the command.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use rustix::process::{getpriority_process, setpriority_process};

use crate::channel::{Channel, Received};
use crate::message::{Launch, Outcome, Start};
use crate::say::say;
use crate::{exit, helper, shell, signals, terminal};

/// Ctrl-Z has no effect on a command of the foreground. Without a shell, init continues it when it is stopped.
const IGNORED_IN_FOREGROUND: &str = "TSTP";
/// The kernel does not stop a hook, which runs in the background of the terminal: it can write to it, and a read fails.
pub const IGNORED_IN_BACKGROUND: &str = "TTIN TTOU";

/// Starts the process, in a process group of its own. The channel is at its end when the command is executed, and has an
/// [`Outcome`] before if that is impossible. The command of `--on-acquire` is a hook: `run` keeps the terminal, so that it is told of
/// Ctrl-C.
pub fn spawn(
    start: &Start,
    user: &[OsString],
    stdin: Option<&impl std::os::fd::AsFd>,
    is_hook: bool,
) -> io::Result<(Child, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    let ignored = if is_hook { IGNORED_IN_BACKGROUND } else { IGNORED_IN_FOREGROUND };
    let command = helper::command(helper::EXEC, user);
    let mut command = if start.foreground { shell::ignoring(ignored, command) } else { command };
    let child = command.process_group(0).stdin(Stdio::from(theirs.into_fd())).spawn()?;
    // In a namespace, the end of init ends all processes.
    let parent = if start.isolation.has_namespace() { None } else { i32::try_from(std::process::id()).ok() };
    ours.send(&Launch { start: start.clone(), is_hook, parent }, stdin.map(std::os::fd::AsFd::as_fd))?;
    Ok((child, ours))
}

/// Executes the command; returns only if that is impossible.
pub fn main(line: &[OsString]) -> ExitCode {
    let Some([program, arguments @ ..]) = helper::split(line) else { return ExitCode::from(exit::FAILED) };
    let Ok(init) = Channel::of_stdin() else { return ExitCode::from(exit::FAILED) };
    let (code, why) = execute(&init, program, arguments);
    // Without init, nobody needs the reason.
    let _ = init.send(&Outcome::NotStarted { code, why }, None);
    ExitCode::from(code)
}

fn execute(init: &Channel, program: &OsString, arguments: &[OsString]) -> (u8, String) {
    let failed = |why: String| (exit::FAILED, format!("cannot start the command: {why}"));
    let launch = match prepare(init) {
        Ok(Some(launch)) => launch,
        Ok(None) => return failed("its parent process has ended".to_owned()),
        Err(error) => return failed(error.to_string()),
    };
    let mut variables = shell::variables();
    if !launch.is_hook {
        take_place_of(launch.start.run, &mut variables);
    }
    let error = Command::new(program).args(arguments).env_clear().envs(variables).exec();
    // As env(1).
    let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE };
    (code, format!("cannot execute {}: {error}", program.display()))
}

/// systemd names `run` in these variables, and a program uses its watchdog and its sockets only if it finds its own process ID there.
fn take_place_of(run: u32, variables: &mut BTreeMap<OsString, OsString>) {
    for name in ["WATCHDOG_PID", "LISTEN_PID"] {
        if let Some(pid) = variables.get_mut(OsStr::new(name)).filter(|pid| **pid == *run.to_string()) {
            *pid = std::process::id().to_string().into();
            // It says the same as LISTEN_PID with another number of that process. It may be absent.
            variables.remove(OsStr::new("LISTEN_PIDFDID"));
        }
    }
}

/// Prepares this process. `None` if its parent has ended.
fn prepare(init: &Channel) -> io::Result<Option<Launch>> {
    let Some(Received { message: launch, fd: stdin }) = init.receive::<Launch>(true)? else { return Ok(None) };
    if let Some(parent) = launch.parent {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before this call.
        if getppid().as_raw() != parent {
            return Ok(None);
        }
    }
    match stdin {
        Some(stdin) => rustix::stdio::dup2_stdin(stdin)?,
        None => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
    }
    if launch.start.foreground
        && !launch.is_hook
        && let Err(error) = terminal::take()
    {
        say(&format!("the command does not get the terminal: {error}"));
    }
    signals::unblock_all_but(&launch.start.blocked)?;
    // A seccomp filter can forbid the call, and then the priority is still that of `run`.
    if getpriority_process(None)? != launch.start.nice {
        setpriority_process(None, launch.start.nice)?;
    }
    Ok(Some(launch))
}
