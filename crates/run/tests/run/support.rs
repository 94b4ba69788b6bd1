//! Real servers, and the program under test.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redislease_lab::{Cut, Proxy, RedisServer, poll};
use rustix::process::{Pid, Signal, kill_process};

/// The timeout of every wait, with tolerance for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// The `ttl` of tests that lose no lock: a busy machine must not delay all renewals until the deadline.
const LONG: &str = "8s";
/// The `ttl` of tests that wait for its end. The deadline is 1.9 s after a renewal.
const SHORT: &str = "3s";

/// Servers that vote.
pub struct Servers {
    pub redis: Vec<RedisServer>,
    /// Those that the programs connect to, if not to the servers themselves.
    pub proxies: Vec<Proxy>,
    /// The `ttl` of the programs, which is also the longest lease.
    ttl: &'static str,
}

impl Servers {
    /// Three servers. They vote one longest lease after the first program has connected.
    pub fn start() -> Self {
        Self::new(LONG).that_vote()
    }

    /// The same, for programs whose locks expire soon.
    pub fn short() -> Self {
        Self::new(SHORT).that_vote()
    }

    /// The same, with a proxy before each of them.
    pub fn behind_proxies() -> Self {
        let mut servers = Self::new(SHORT);
        servers.proxies = servers.redis.iter().map(|server| Proxy::to(server.address()).unwrap()).collect();
        servers.that_vote()
    }

    /// Three servers that have just started.
    pub fn new(ttl: &'static str) -> Self {
        Self { redis: (0..3).map(|_| RedisServer::start().unwrap()).collect(), proxies: Vec::new(), ttl }
    }

    fn that_vote(self) -> Self {
        // A machine that is too busy may lose a short lock, and the next one then has to show that the servers vote.
        poll(PATIENCE, || {
            let output = self.run(&["--lease", "test/first", "--wait", "60s", "-q"], &["true"]).0.output().unwrap();
            if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        })
        .expect("servers that vote");
        self
    }

    pub fn urls(&self) -> String {
        let proxies = self.proxies.iter().map(Proxy::address);
        let servers = self.redis.iter().map(RedisServer::address).filter(|_| self.proxies.is_empty());
        proxies.chain(servers).map(|address| format!("redis://{address}")).collect::<Vec<_>>().join(",")
    }

    /// A command line of the program, with short durations.
    pub fn run<S: AsRef<OsStr>>(&self, options: &[&str], user: &[S]) -> Run {
        let mut command = Command::new(program());
        command.args(["--redis", &self.urls(), "--longest-lease", self.ttl, "--ttl", self.ttl]);
        if !options.contains(&"--grace") {
            command.args(["--grace", "300ms"]);
        }
        command.args(["--command-timeout", "1s"]).args(options).arg("--").args(user);
        Run(command)
    }

    /// Whether a majority has the key of a lease. A release waits for the answers of a majority only.
    pub fn is_locked(&self, lease: &str) -> bool {
        self.has_key(lease) >= 2
    }

    /// The number of servers that have the key of a lease.
    pub fn has_key(&self, lease: &str) -> usize {
        let key = format!("redislease:lock:{lease}");
        self.redis.iter().filter(|server| server.command(&["EXISTS", &key]).unwrap().integer().unwrap() > 0).count()
    }

    /// Cuts the connections of one program for good.
    pub fn cut(&self, program: Pid, cut: Cut) {
        let pid = program.as_raw_nonzero().get().try_into().unwrap();
        for proxy in &self.proxies {
            proxy.cut_process(pid, cut);
        }
    }

    pub fn delete(&self, lease: &str) {
        for server in &self.redis {
            delete_key(server, lease);
        }
    }
}

pub fn delete_key(server: &RedisServer, lease: &str) {
    server.command(&["DEL", &format!("redislease:lock:{lease}")]).unwrap();
}

/// The file of the program under test.
pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_redislease-run"))
}

/// A command that was not started.
pub struct Run(pub Command);

impl Run {
    /// The program with these arguments and no others.
    pub fn new(args: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(args);
        Self(command)
    }

    /// The same as the last arguments of another program.
    pub fn under(&self, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).args(self.words());
        Self(command)
    }

    pub fn words(&self) -> impl Iterator<Item = &OsStr> {
        [self.0.get_program()].into_iter().chain(self.0.get_args())
    }

    /// The line of a shell that runs it.
    pub fn line(&self) -> String {
        self.words().map(|word| format!("'{}' ", word.to_str().unwrap().replace('\'', r"'\''"))).collect()
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts it, with its output in pipes.
    pub fn spawn(mut self) -> Running {
        let command = self.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Running::of(command.spawn().unwrap())
    }

    /// Starts it, with its output in a file.
    pub fn spawn_to(mut self, log: &Path) -> Running {
        let file = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let command = self.0.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        Running::of(command.spawn().unwrap())
    }

    /// Runs it to its end. Returns the exit code, standard output and standard error.
    pub fn finish(self) -> (Option<i32>, String, String) {
        let mut running = self.spawn();
        let status = running.wait();
        let mut out = String::new();
        if let Some(pipe) = &mut running.child.stdout {
            pipe.read_to_string(&mut out).unwrap();
        }
        (status.code(), out, running.errors())
    }
}

/// A running program. When it is dropped, it and its helper processes are killed.
pub struct Running {
    pub child: Child,
}

impl Running {
    pub fn of(child: Child) -> Self {
        Self { child }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has written to standard error until its end.
    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(pipe) = &mut self.child.stderr {
            pipe.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// Its guard process.
    pub fn guard(&self) -> Option<Pid> {
        child_of(self.pid())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "still running after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            // The guard kills the command; without `run`, nobody renews.
            if let Some(guard) = self.guard() {
                let _ = kill_process(guard, Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a request to the HTTP server of `--listen`.
pub fn ask(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream
}

/// Its answer.
pub fn get(address: &str, path: &str) -> String {
    let mut text = String::new();
    ask(address, path).read_to_string(&mut text).unwrap();
    text
}

/// The first child of a process, if it has one.
pub fn child_of(pid: Pid) -> Option<Pid> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

/// Whether a process runs: one that nobody has waited for does not.
pub fn runs(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Whether somebody writes to the file: a process that does so each 10 ms writes twenty times in this span.
pub fn grows(file: &Path) -> bool {
    let size = || std::fs::metadata(file).unwrap().len();
    let before = size();
    std::thread::sleep(Duration::from_millis(200));
    size() != before
}

/// Polls until `probe` is true.
///
/// # Panics
/// Names `what` if it does not become true in time.
pub fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let result = poll(PATIENCE, || if probe() { Ok(()) } else { Err(String::new()) });
    assert!(result.is_ok(), "still waiting for {what} after {PATIENCE:?}");
}
