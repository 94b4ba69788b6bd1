//! A shell that starts a helper process, because a process can ignore a signal only with `unsafe`.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Command;

use crate::helper;

const SHELL: &str = "/bin/sh";
/// The first argument is the list of signals. To block them is not enough: dash unblocks them in its children.
const SCRIPT: &str = "trap '' $1; shift; exec \"$@\"";
/// Begins the names of all variables while the shell runs, which sets some itself and removes others; the real name follows in
/// hexadecimal digits.
const RENAMED: &str = "REDISLEASE_RUN_VARIABLE_";

/// The command line of a helper process that ignores signals, and everything that it starts too. Their names are written without SIG.
/// Without a shell, or if the file of this program was replaced, it is an ordinary one.
pub fn ignoring(signals: &str, command: Command) -> Command {
    let program = env::current_exe().ok().filter(|file| file.exists() && Path::new(SHELL).exists());
    let Some(program) = program else { return command };
    let mut shell = Command::new(SHELL);
    shell.args(["-c", SCRIPT, "redislease run", signals]).arg(program).args(command.get_args());
    helper::keep_signals(&mut shell);
    for (name, value) in env::vars_os() {
        let hex: String = name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        shell.env(format!("{RENAMED}{hex}"), value);
        // The shell and this program can need those of the dynamic linker.
        if !name.as_bytes().starts_with(b"LD_") {
            shell.env_remove(&name);
        }
    }
    shell
}

/// The variables for the command: those that [`ignoring`] has renamed, under their real names. Without a shell, those of this process.
pub fn variables() -> BTreeMap<OsString, OsString> {
    let real = |name: OsString| unhex(name.to_str()?.strip_prefix(RENAMED)?);
    let renamed: BTreeMap<_, _> = env::vars_os().filter_map(|(name, value)| Some((real(name)?, value))).collect();
    if renamed.is_empty() { env::vars_os().collect() } else { renamed }
}

fn unhex(digits: &str) -> Option<OsString> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(OsStr::from_bytes(pair).to_str()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().map(OsString::from_vec)
}
