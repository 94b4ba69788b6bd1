//! Runs command line tools.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::{Error, Result};

/// Runs a tool with text on its standard input and returns its output. `line` is the command line for errors.
pub(crate) fn run(command: &mut Command, line: impl Fn() -> String, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Io { doing: format!("run `{}`", line()), source })?;
    if let Some(mut stdin) = child.stdin.take() {
        // The tool may exit before it has read all input; its own message then explains why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output =
        child.wait_with_output().map_err(|source| Error::Io { doing: format!("wait for `{}`", line()), source })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Command {
            command: line(),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

/// Runs a command and returns what it printed.
pub(crate) fn output(program: impl AsRef<Path>, args: &[&str]) -> Result<String> {
    let program = program.as_ref();
    run(Command::new(program).args(args), || format!("{} {}", program.display(), args.join(" ")), "")
}
