//! A shell that starts a helper process, because a process can ignore a signal only with `unsafe`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Command;

use crate::helper;

const SHELL: &str = "/bin/sh";
/// The first argument is the list of signals. To block them is not enough: dash unblocks them in its children.
const SCRIPT: &str = "trap '' $1; shift; exec \"$@\"";
/// Begins the names of variables whose real names a shell would not keep; the real name follows in hexadecimal digits.
const RENAMED: &str = "REDISLEASE_RUN_VARIABLE_";

/// The command line of a helper process that ignores signals, and everything that it starts too. Their names are written without SIG.
/// Without a shell, or if the file of this program was replaced, it is an ordinary one.
pub fn ignoring(signals: &str, command: Command) -> Command {
    let program = env::current_exe().ok().filter(|file| file.exists() && Path::new(SHELL).exists());
    let Some(program) = program else { return command };
    let mut shell = Command::new(SHELL);
    shell.args(["-c", SCRIPT, "redislease run", signals]).arg(program).args(command.get_args());
    helper::keep_signals(&mut shell);
    for (name, value) in env::vars_os().filter(|(name, _)| !is_kept(name.as_bytes())) {
        let hex: String = name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        shell.env_remove(&name).env(format!("{RENAMED}{hex}"), value);
    }
    shell
}

/// Gives the variables that [`ignoring`] has renamed to a command under their real names.
pub fn restore_variables(command: &mut Command) {
    for (name, value) in env::vars_os() {
        if let Some(real) = name.to_str().and_then(|name| unhex(name.strip_prefix(RENAMED)?)) {
            command.env_remove(&name).env(real, value);
        }
    }
}

/// Whether a shell gives a variable with this name to the programs that it executes.
fn is_kept(name: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_word)
}

fn unhex(digits: &str) -> Option<OsString> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(OsStr::from_bytes(pair).to_str()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().map(OsString::from_vec)
}
