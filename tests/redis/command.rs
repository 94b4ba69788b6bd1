//! `redislease run` in the binary of the operator. crates/run has the other tests of it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redislease_lab::{RedisServer, poll, private_memory};

/// The most private memory of `run` and its guard together, in kB.
const MOST_MEMORY: u64 = 6 * 1024;

/// `redislease run` on one server, with short durations.
fn run(server: &RedisServer, command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_redislease"));
    run.args(["run", "--redis", &format!("redis://{}", server.address()), "--single-node", "--lease", "test/command"]);
    run.args(["--longest-lease", "2s", "--ttl", "2s", "--grace", "0", "--quiet", "--"]).args(command);
    run
}

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child_of(pid: u32) -> Result<u32, String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).map_err(|error| error.to_string())?;
    children.split_whitespace().next().and_then(|pid| pid.parse().ok()).ok_or_else(|| format!("{pid} has no child"))
}

#[test]
fn the_binary_runs_a_command_under_a_lock_and_is_small_while_it_does() {
    let server = RedisServer::start().unwrap();
    assert_eq!(run(&server, &["sh", "-c", "exit 5"]).status().unwrap().code(), Some(5));
    let running = Running(run(&server, &["cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let keeper = running.0.id();
    let guard = poll(Duration::from_secs(20), || child_of(keeper)).unwrap();
    let init = poll(Duration::from_secs(20), || child_of(guard).and_then(|init| child_of(init).map(|_| init))).unwrap();
    let [keeper, guard, init] = [keeper, guard, init].map(|pid| private_memory(pid).unwrap());
    println!("private memory: run {keeper} kB, guard {guard} kB, init {init} kB");
    assert!(keeper + guard <= MOST_MEMORY, "run {keeper} kB, guard {guard} kB");
}
