//! `run` as the first process of a real container, which `runc` starts.
//!
//! The container has namespaces of its own for processes, mounts, IPC and the host name, the capabilities that Docker and containerd give,
//! and may not create namespaces, as their seccomp profile says. Its root has the programs of this machine, and it shares the network.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use redislease_lab::poll;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process_log;
use crate::support::{PATIENCE, Run, Running, Servers, eventually, program};
use crate::worker;

const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// Why this machine cannot run a container.
pub fn missing() -> Option<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let has_runc = || Command::new("runc").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_root {
        Some("only root can start a container")
    } else if has_runc() {
        None
    } else {
        Some("runc is missing: run `hack/install-deps.sh node`")
    }
}

/// The command line in a container. `folder` has the same path inside, and gets the file `pid` with the process ID of the first process.
pub fn command(run: &Run, folder: &Path, variables: &[(&str, String)]) -> Command {
    // A lock that is lost before the command begins is tried again in another container.
    let bundle = tempfile::Builder::new().prefix("bundle-").tempdir_in(folder).unwrap().keep();
    let root = bundle.join("rootfs");
    fs::create_dir_all(root.join("usr")).unwrap();
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(Path::new("usr").join(link), root.join(link)).unwrap();
    }
    let words: Vec<&str> = run.words().map(|word| word.to_str().unwrap()).collect();
    let mut environment: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    environment.push("PATH=/usr/bin:/bin".into());
    let bind = |path: &Path, mode: &str| json!({"destination": path, "source": path, "options": ["rbind", mode]});
    let namespaces = ["pid", "mount", "ipc", "uts"].map(|kind| json!({"type": kind}));
    let refused = json!({"names": ["unshare", "setns"], "action": "SCMP_ACT_ERRNO"});
    let mut config = json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": false},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": words,
            "env": environment,
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            bind(Path::new("/usr"), "ro"),
            bind(program().parent().unwrap(), "ro"),
            bind(folder, "rw"),
        ],
        "linux": {
            "namespaces": namespaces,
            "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]},
        },
    });
    for set in ["bounding", "effective", "permitted"] {
        config["process"]["capabilities"][set] = Value::from(CAPABILITIES.to_vec());
    }
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    let mut command = Command::new("runc");
    // The names of containers are those of the whole machine.
    let name = format!("redislease-{}-{}", std::process::id(), bundle.file_name().unwrap().display());
    command.arg("--root").arg(folder.join("runc")).args(["run", "--pid-file"]).arg(folder.join("pid"));
    command.arg("--bundle").arg(&bundle).arg(name);
    command
}

/// The first process of the container.
pub fn first_process(folder: &Path) -> Option<Pid> {
    fs::read_to_string(folder.join("pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw)
}

/// The kernel ends a container with its first process.
#[test]
fn the_end_of_the_first_process_of_a_container_ends_the_command() {
    if let Some(missing) = missing() {
        return redislease_lab::skipped(missing);
    }
    let servers = Servers::short();
    let folder = tempfile::Builder::new().prefix("redislease-container-").tempdir().unwrap();
    let log = folder.path().join("log");
    let variables = [("WORKER_LOG", log.display().to_string())];
    let inner = servers.run(&["--lease", "test/container", "--mode", "service"], &worker::command());
    let mut command = command(&inner, folder.path(), &variables);
    let output = fs::File::create(folder.path().join("output")).unwrap();
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    let mut container = Running::of(command.spawn().unwrap());
    let output = || fs::read_to_string(folder.path().join("output")).unwrap();
    let result = poll(PATIENCE, || if process_log::read(&log).is_empty() { Err(output()) } else { Ok(()) });
    assert!(result.is_ok(), "{}", output());
    // The command has started before `run` says so.
    let said = poll(PATIENCE, || if output().contains("isolation none") { Ok(()) } else { Err(output()) });
    assert_eq!(said, Ok(()));
    let first = first_process(folder.path()).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", first.as_raw_nonzero())).unwrap();
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    kill_process(first, Signal::KILL).unwrap();
    container.wait();
    let before = process_log::read(&log);
    // The second command gets the lock with the end of the TTL.
    let second = servers.run(&["--lease", "test/container", "--wait", "60s"], &worker::command());
    let second = second.env("WORKER_LOG", log.as_os_str()).spawn();
    eventually("the second command", || process_log::read(&log).len() > 1);
    drop(second);
    let after = process_log::read(&log);
    assert_eq!(after.first_key_value(), before.first_key_value(), "the first command has written nothing more");
    assert!(process_log::overlaps(&after).is_empty());
}
