//! Processes of the command that do not end although they are killed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::{Servers, eventually, grows, runs};

/// Such a parent hides its children: they are not those of `run` before it has ended. Here it belongs to another user.
#[test]
fn what_is_below_a_process_that_cannot_be_killed_is_killed() {
    if !geteuid().is_root() {
        return redislease_lab::skipped("a process that this user may not kill: only root can make a setuid program");
    }
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let [setuid, parent, pid, log] = ["setuid", "parent", "pid", "log"].map(|name| folder.path().join(name));
    let setpriv = Command::new("sh").args(["-c", "command -v setpriv"]).output().unwrap().stdout;
    fs::copy(String::from_utf8(setpriv).unwrap().trim(), &setuid).unwrap();
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let work = format!("echo $$ > {}; while :; do echo x >> {}; sleep 0.01; done", pid.display(), log.display());
    let text =
        format!("setpriv {} setsid sh -c '{work}' & echo $$ > {}; exec sleep 60", user.join(" "), parent.display());
    let command = [setuid.to_str().unwrap(), "--reuid=0", "sh", "-c", &text];
    let inner = servers.run(&["--lease", "test/below", "-q", "--isolate", "none"], &command);
    let mut run = inner.under("setpriv", &user).spawn_to(&folder.path().join("output"));
    eventually("the worker", || log.exists());
    servers.delete("test/below");
    let code = run.wait().code();
    let works = grows(&log);
    let number = |file| fs::read_to_string(file).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
    let is_left = runs(number(&parent));
    for file in [&parent, &pid] {
        let _ = kill_process(number(file), Signal::KILL);
    }
    let output = fs::read_to_string(folder.path().join("output")).unwrap();
    assert_eq!((code, is_left, works), (Some(76), true, false), "{output}");
    assert!(output.contains("processes of the command are left"), "{output}");
}
