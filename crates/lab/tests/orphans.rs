//! Servers stop with their owner process, however it ends. Needs redis-server and `make tools`.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use redislease_lab::{Components, ControlPlane, RedisServer, Result, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Runs in a separate process, started by the tests below: starts servers, reports them and waits to be killed.
#[test]
#[ignore = "the owner that the other tests kill"]
fn owner() -> Result<()> {
    let redis = RedisServer::start()?;
    // A stopped process only reacts to SIGKILL.
    let paused = RedisServer::start()?;
    paused.process().pause()?;
    let control_plane = ControlPlane::start(Components::ApiServer)?;
    for process in [redis.process(), paused.process(), control_plane.api_server()] {
        println!("pid {}", process.pid().expect("it runs"));
        println!("dir {}", process.log().parent().expect("a folder").display());
    }
    println!("done");
    // Ends with its parent process, if that ends first.
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// The processes of an owner.
struct Lot {
    pids: Vec<u32>,
    folders: Vec<String>,
}

impl Lot {
    fn left(&self) -> Vec<String> {
        let running = self.pids.iter().map(|pid| format!("/proc/{pid}"));
        running.chain(self.folders.iter().cloned()).filter(|path| exists(path)).collect()
    }

    fn all_go(&self) {
        let probe = || {
            let left = self.left();
            if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) }
        };
        poll(Duration::from_secs(20), probe).unwrap_or_else(|left| panic!("{left}"));
    }
}

/// A zombie counts as dead; reaping orphans is not the lab's task.
fn exists(path: &str) -> bool {
    let stat = fs::read_to_string(Path::new(path).join("stat")).unwrap_or_default();
    Path::new(path).exists() && !stat.contains(") Z ")
}

fn start_owner() -> (Child, Lot, BufReader<ChildStdout>) {
    // A background process ignores SIGINT, and so do its children.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(env::current_exe().expect("this test"));
    command.args(["--exact", "owner", "--ignored", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    // The process leads a group, like a program on a terminal.
    command.process_group(0);
    let mut child = command.spawn().expect("an owner");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut lot = Lot { pids: Vec::new(), folders: Vec::new() };
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("its output"), 0, "the owner failed");
        match line.trim().split_once(' ') {
            Some(("pid", pid)) => lot.pids.push(pid.parse().expect("a number")),
            Some(("dir", folder)) => lot.folders.push(folder.to_owned()),
            _ if line.trim() == "done" => break,
            _ => {}
        }
    }
    assert_eq!((lot.pids.len(), lot.folders.len()), (3, 3));
    assert_eq!(lot.left().len(), 6, "all processes run while the owner runs");
    (child, lot, output)
}

#[test]
fn a_killed_owner_leaves_nothing_running() {
    let (mut owner, lot, _output) = start_owner();
    owner.kill().expect("SIGKILL");
    owner.wait().expect("its end");
    lot.all_go();
}

#[test]
fn an_owner_that_gets_ctrl_c_leaves_nothing_running() {
    let (mut owner, lot, _output) = start_owner();
    // The terminal sends it to the whole group.
    let group = i32::try_from(owner.id()).ok().and_then(Pid::from_raw).expect("its number");
    kill_process_group(group, Signal::INT).expect("SIGINT");
    let status = owner.wait().expect("its end");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    lot.all_go();
}
