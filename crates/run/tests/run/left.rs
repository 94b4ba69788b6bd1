//! Processes of the command that do not end although they are killed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::{Running, Servers, child_of, eventually, grows, runs};

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

#[test]
fn what_the_command_of_on_lost_leaves_is_killed() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let left = |program: &str| format!("{program} sleep 60 & echo $! >> {}", pids.display());
    let hook = format!("{}; {}", left(""), left("setsid"));
    for isolate in ["pid", "none"] {
        let lease = format!("test/hook-{isolate}");
        let options = ["--lease", &lease, "-q", "--isolate", isolate, "--on-lost", &hook];
        let mut run = servers.run(&options, &["sleep", "60"]).spawn();
        eventually("the command", || run.guard().and_then(child_of).is_some() && servers.has_key(&lease) == 3);
        servers.delete(&lease);
        assert_eq!(run.wait().code(), Some(76), "{isolate}");
    }
    let pids = fs::read_to_string(&pids).unwrap();
    let running = pids.lines().filter(|pid| runs(pid.parse().ok().and_then(Pid::from_raw).unwrap()));
    assert_eq!((pids.lines().count(), running.count()), (4, 0), "{pids}");
}

/// A debugger that does not wait for it keeps a killed process, as uninterruptible IO does. The end of a namespace waits for it.
#[test]
fn a_command_that_has_ended_beside_a_process_that_does_not_end_gives_its_code_and_leaves_the_lock_to_its_ttl() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    let call = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
    for isolate in ["pid", "none"] {
        let [go, log] = ["go", "log"].map(|name| folder.path().join(format!("{name}-{isolate}")));
        let lease = format!("test/traced-{isolate}");
        let text = format!("sleep 60 & until [ -e {} ]; do sleep 0.05; done; exit 3", go.display());
        let options = ["--lease", &lease, "-q", "--isolate", isolate];
        let mut run = servers.run(&options, &["sh", "-c", &text]).spawn_to(&log);
        let left = || run.guard().and_then(child_of).and_then(child_of).and_then(child_of);
        eventually("the process in the background", || left().is_some());
        let pid = left().unwrap().as_raw_nonzero();
        // PTRACE_SEIZE
        let trace = format!("syscall({call}, 0x4206, {pid}, 0, 0) == 0 or die $!; $| = 1; print \"1\\n\"; sleep 60");
        let tracer = Command::new("perl").args(["-e", &trace]).stdout(Stdio::piped()).spawn().unwrap();
        let mut tracer = Running::of(tracer);
        let mut line = String::new();
        BufReader::new(tracer.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() && !geteuid().is_root() {
            return redislease_lab::skipped("a process that is traced: this user may trace only below itself");
        }
        assert_eq!(line, "1\n", "the process is not traced");
        fs::write(&go, "").unwrap();
        let code = run.wait().code();
        let is_locked = servers.is_locked(&lease);
        let output = fs::read_to_string(&log).unwrap();
        assert_eq!((code, is_locked), (Some(3), true), "{isolate}: {output}");
        assert!(output.contains("processes of the command are left"), "{isolate}: {output}");
    }
}
