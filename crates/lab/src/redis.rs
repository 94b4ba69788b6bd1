//! Real redis-servers, with the accidents that befall them: killed, hung, back empty, back with an older memory.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{Error, Process, Reply, Result, resp, watchdog::Scratch};

/// A start that takes longer is a failure, also on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(20);
/// A command that takes longer is a failure: tests ask small things on loopback.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// How a server differs from a plain one.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// `requirepass`.
    pub password: Option<String>,
    /// More arguments, for example `["--maxmemory-policy", "allkeys-lru"]`.
    pub args: Vec<String>,
}

/// A redis-server of its own folder on a loopback port. It stops when it is dropped or its owner is killed.
///
/// Nothing is saved but by [`save`](Self::save): a plain restart after a kill comes back with what was saved last.
/// The program is `redis-server` in PATH, or what the variable `REDIS_SERVER` names (a Valkey, another version).
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder: a server must be gone before its folder is removed.
    process: Process,
    address: SocketAddr,
    password: Option<String>,
    folder: Scratch,
}

/// What a server remembered at one moment; see [`RedisServer::save`].
#[derive(Debug, Clone)]
pub struct Snapshot(PathBuf);

impl RedisServer {
    /// Starts a plain server and waits until it answers.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn start() -> Result<Self> {
        Self::start_with(&RedisOptions::default())
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Exited`] with the server's own words when it does not accept an argument or is not installed;
    /// [`Error::NotReady`] when it does not answer in time.
    pub fn start_with(options: &RedisOptions) -> Result<Self> {
        let mut tries = 5;
        loop {
            let server = Self::prepare(options)?;
            match server.restart() {
                // Somebody took the port between the probe and the bind: ask for another.
                Err(error) if error.is_address_in_use() && tries > 1 => tries -= 1,
                other => return other.map(|()| server),
            }
        }
    }

    fn prepare(options: &RedisOptions) -> Result<Self> {
        let folder = Scratch::new("redis")?;
        let address = free_address()?;
        let process = Process::new(format!("redis-server {address}"), program(), folder.path().join("log"))
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .args([folder.path()])
            .args(options.password.iter().flat_map(|password| ["--requirepass", password]))
            .args(&options.args);
        Ok(Self { process, address, password: options.password.clone(), folder })
    }

    /// Where it listens; the same over all restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process, to kill, pause and resume it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command on a connection of its own. Also a paused server makes it return, with an error.
    ///
    /// # Errors
    /// [`Error::Redis`] with the server's error, or with the reason why it did not answer.
    pub fn command(&self, command: &[&str]) -> Result<Reply> {
        resp::call(self.address, self.password.as_deref(), command, ANSWER_WITHIN).map_err(|error| Error::Redis {
            address: self.address.to_string(),
            command: (*command.first().unwrap_or(&"")).to_owned(),
            message: error.to_string(),
        })
    }

    /// Kills the server if it runs, starts it on the same port with what was saved last, and waits until it answers.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn restart(&self) -> Result<()> {
        self.process.kill()?;
        let deadline = Instant::now() + START_WITHIN;
        loop {
            // A failed try must not be found in the log of the next one.
            if let Err(error) = fs::remove_file(self.process.log())
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(Error::io("remove the log of redis-server")(error));
            }
            self.process.start()?;
            match self.process.wait_until(START_WITHIN, || self.is_ours()) {
                // A client that dials the dead port may hold it for a moment as its own source port.
                Err(error) if error.is_address_in_use() && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                // How a shell says that there is no such program.
                Err(Error::Exited { status, .. }) if status.code() == Some(127) => {
                    return Err(Error::MissingTool { tool: "redis-server", path: program() });
                }
                other => return other,
            }
        }
    }

    /// Another server that took the port would answer as well, and one that still loads its data answers INFO:
    /// ready is the one with our process number that has loaded.
    fn is_ours(&self) -> std::result::Result<(), String> {
        let info = self.command(&["INFO"]).map_err(|error| error.to_string())?;
        let info = info.text().unwrap_or_default();
        let pid = format!("process_id:{}", self.process.pid().unwrap_or_default());
        if !info.lines().any(|line| line == pid) {
            Err(format!("another server answers at {}", self.address))
        } else if !info.lines().any(|line| line == "loading:0") {
            Err("it is loading its data".to_owned())
        } else {
            Ok(())
        }
    }

    /// Kills the server and starts it on the same port with all it knew.
    ///
    /// # Errors
    /// As [`save`](Self::save) and [`start_with`](Self::start_with).
    pub fn restart_full(&self) -> Result<()> {
        self.save()?;
        self.restart()
    }

    /// Kills the server and starts it on the same port without any data, as after a lost disk.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with); [`Error::Io`] when the data cannot be removed.
    pub fn restart_empty(&self) -> Result<()> {
        self.process.kill()?;
        self.forget()?;
        self.restart()
    }

    /// Writes all it knows to disk (SAVE) and keeps a copy, for [`restart_from`](Self::restart_from).
    ///
    /// # Errors
    /// [`Error::Redis`] when the server refuses, [`Error::Io`] when the copy fails.
    pub fn save(&self) -> Result<Snapshot> {
        self.command(&["SAVE"])?;
        let copy = tempfile::Builder::new()
            .prefix("snapshot-")
            .tempfile_in(self.folder.path())
            .and_then(|file| file.keep().map_err(|error| error.error))
            .map_err(Error::io("make a file for the snapshot"))?
            .1;
        fs::copy(self.dump(), &copy).map_err(Error::io("copy dump.rdb"))?;
        Ok(Snapshot(copy))
    }

    /// Kills the server and starts it on the same port with an older memory, as after a restored backup.
    /// Only for servers without `appendonly`: its log would win over the snapshot.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with); [`Error::Io`] when the snapshot cannot be put in place.
    pub fn restart_from(&self, snapshot: &Snapshot) -> Result<()> {
        self.process.kill()?;
        self.forget()?;
        fs::copy(&snapshot.0, self.dump()).map_err(Error::io("restore dump.rdb"))?;
        self.restart()
    }

    fn dump(&self) -> PathBuf {
        self.folder.path().join("dump.rdb")
    }

    fn forget(&self) -> Result<()> {
        let remove = |path: &Path| match path {
            path if path.is_dir() => fs::remove_dir_all(path),
            path if path.exists() => fs::remove_file(path),
            _ => Ok(()),
        };
        remove(&self.dump())
            .and_then(|()| remove(&self.folder.path().join("appendonlydir")))
            .map_err(Error::io("remove the data of redis-server"))
    }
}

fn program() -> PathBuf {
    env::var_os("REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// A loopback address that the kernel says is free.
///
/// It is released for the server to bind, so another process may take it first: who uses it retries on
/// "address in use".
///
/// # Errors
/// [`Error::Io`] when the kernel has no port left.
pub fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Error::io("find a free port on loopback"))
}
