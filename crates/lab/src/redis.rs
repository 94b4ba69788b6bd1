//! Real redis-servers and their faults: killed, paused, restarted empty or with an older snapshot.

use std::{
    borrow::Borrow,
    env, fs,
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Error, Identity, Process, Reply, Result, process::on_free_port, read, resp, unix_time, watchdog::TempFolder,
};

/// Limit for a start, also on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(20);
/// Limit for a command: tests send small commands over loopback.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Settings that differ from the defaults.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// `requirepass`.
    pub password: Option<String>,
    /// The server also listens with TLS, on [`RedisServer::tls_address`].
    pub tls: Option<RedisTls>,
    /// An address besides loopback on which the server listens. [`RedisServer::tls_address`] is then on it.
    pub host: Option<IpAddr>,
    /// It is a Sentinel and keeps no keys.
    pub sentinel: bool,
    /// More arguments, for example `["--maxmemory-policy", "allkeys-lru"]`.
    pub args: Vec<String>,
}

/// The certificates of a server.
#[derive(Debug, Clone)]
pub struct RedisTls {
    /// The certificate of the server and its key.
    pub identity: Identity,
    /// The certificate authority of clients. `None` accepts clients without a certificate.
    pub client_ca: Option<String>,
}

/// A redis-server with a folder of its own on a loopback port. It stops when it is dropped, or when the process that
/// started it is killed.
///
/// It saves only when [`save`](Self::save) is called: after a kill and a restart it has the data of the last save.
/// The program is `redis-server` in PATH, or the one that the variable `REDIS_SERVER` names (Valkey, another version).
#[derive(Debug)]
pub struct RedisServer {
    // Declared before the folder: the server must have stopped before its folder is removed.
    process: Process,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    password: Mutex<Option<String>>,
    folder: TempFolder,
}

/// The data of a server at one moment; see [`RedisServer::save`].
#[derive(Debug, Clone)]
pub struct Snapshot(PathBuf);

impl RedisServer {
    /// Starts a server with default settings and waits until it answers.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn start() -> Result<Self> {
        Self::start_with(&RedisOptions::default())
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Exited`] with the server's message when it does not accept an argument or is not installed;
    /// [`Error::NotReady`] when it does not answer in time.
    pub fn start_with(options: &RedisOptions) -> Result<Self> {
        on_free_port(|| {
            let server = Self::prepare(options)?;
            server.restart()?;
            Ok(server)
        })
    }

    fn prepare(options: &RedisOptions) -> Result<Self> {
        let folder = TempFolder::new("redis")?;
        let address = free_address()?;
        let mut process = Process::new(format!("redis-server {address}"), program(), folder.path().join("log"));
        if options.sentinel {
            // It keeps its state in this file, which must be the first argument.
            let file = folder.path().join("sentinel.conf");
            let failed = |source| Error::Io { doing: format!("write {}", file.display()), source };
            fs::write(&file, "").map_err(failed)?;
            process = process.args([file.as_os_str(), "--sentinel".as_ref()]);
        }
        let mut process = process
            .args(["--port", &address.port().to_string(), "--save", "", "--dir"])
            .args([folder.path()])
            .args(["--bind", "127.0.0.1"])
            .args(options.host.map(|host| host.to_string()))
            .args(options.password.iter().flat_map(|password| ["--requirepass", password]));
        let mut tls_address = None;
        if let Some(tls) = &options.tls {
            let mut address = free_address()?;
            address.set_ip(options.host.unwrap_or(address.ip()));
            process = process.args(["--tls-port", &address.port().to_string()]);
            process = process.args(
                tls_settings(&folder, tls)?.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]),
            );
            tls_address = Some(address);
        }
        let process = process.args(&options.args);
        Ok(Self { process, address, tls_address, password: Mutex::new(options.password.clone()), folder })
    }

    /// Replaces the certificates of the running server. Open connections stay. After a restart the server has the
    /// certificates of its start again.
    ///
    /// # Errors
    /// [`Error::Redis`] with the server's refusal; [`Error::Io`] when a file cannot be written.
    pub fn set_tls(&self, tls: &RedisTls) -> Result<()> {
        let settings = tls_settings(&self.folder, tls)?;
        let words = settings.iter().flat_map(|(name, value)| [*name, value.as_str()]);
        self.command(&["CONFIG", "SET"].into_iter().chain(words).collect::<Vec<_>>()).map(drop)
    }

    /// The address on which the server listens with TLS, if [`RedisOptions::tls`] is set.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    fn password(&self) -> Option<String> {
        self.password.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the password of the server. Open connections stay.
    ///
    /// # Errors
    /// [`Error::Redis`] with the server's refusal.
    pub fn set_password(&self, password: &str) -> Result<()> {
        self.command(&["CONFIG", "SET", "requirepass", password])?;
        *self.password.lock().unwrap_or_else(PoisonError::into_inner) = Some(password.to_owned());
        Ok(())
    }

    /// Creates the user of `docs/redis-checklist.md`, which shows it as a line of `redis.conf`, with a password and the default prefix or
    /// another one. More rules follow the ones of the page.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    ///
    /// # Panics
    /// The page has no such line.
    pub fn create_user(&self, password: &str, prefix: &str, more: &[&str]) -> Result<()> {
        let page = read("docs/redis-checklist.md");
        let rules = page.lines().find_map(|line| line.strip_prefix("user redislease ")).expect("the line of the user");
        let rules = rules.replace("PASSWORD", password).replace("~redislease:", &format!("~{prefix}:"));
        let words = ["ACL", "SETUSER", "redislease"].into_iter().chain(rules.split(' ')).chain(more.iter().copied());
        self.command(&words.collect::<Vec<_>>()).map(drop)
    }

    /// The address of the server. It stays the same when the server restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process, to kill, pause and resume it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command on a new connection. When the server is paused it returns an error after some seconds.
    ///
    /// # Errors
    /// [`Error::Redis`] with the server's error, or with the reason why it did not answer.
    pub fn command(&self, command: &[&str]) -> Result<Reply> {
        let reply = resp::call(self.address, self.password().as_deref(), command, ANSWER_WITHIN);
        reply.map_err(|error| self.failed((*command.first().unwrap_or(&"")).to_owned(), &error))
    }

    fn failed(&self, command: String, error: &std::io::Error) -> Error {
        Error::Redis { address: self.address.to_string(), command, message: error.to_string() }
    }

    /// Sends several commands together on a new connection and returns one reply for each. An error reply to one of them
    /// is a [`Value::ServerError`](::redis::Value::ServerError).
    ///
    /// # Errors
    /// [`Error::Redis`] with the reason why the server did not answer all of them.
    pub fn pipeline(&self, commands: &[Vec<String>]) -> Result<Vec<Reply>> {
        let replies = resp::pipeline(self.address, self.password().as_deref(), commands, ANSWER_WITHIN);
        replies.map_err(|error| self.failed(format!("{} commands", commands.len()), &error))
    }

    /// The name that the server gave itself at its start.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn run_id(&self) -> Result<String> {
        let info = self.command(&["INFO", "server"])?.text().unwrap_or_default();
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let failed = || self.failed("INFO server".to_owned(), &std::io::Error::other("the reply has no run_id"));
        run_id.map(str::to_owned).ok_or_else(failed)
    }

    /// Lets the server vote at once, as if it had waited for the longest lease. `membership` is `<generation>:<fingerprint>`.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn admit(&self, prefix: &str, membership: &str) -> Result<()> {
        let fence = unix_time().as_micros().to_string();
        let marker = format!("{}:{membership}", self.run_id()?);
        // A server that votes already keeps what it has.
        self.command(&["SET", &format!("{prefix}:fence"), &fence, "NX"])?;
        self.command(&["SET", &format!("{prefix}:marker"), &marker, "NX"]).map(drop)
    }

    /// Kills the server if it runs, restarts it on the same port with the data of the last save, and waits until it
    /// answers.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub fn restart(&self) -> Result<()> {
        self.process.kill()?;
        let deadline = Instant::now() + START_WITHIN;
        loop {
            // The log of a failed attempt must not be mixed with that of the next one.
            if let Err(error) = fs::remove_file(self.process.log())
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(Error::io("remove the log of redis-server")(error));
            }
            self.process.start()?;
            match self.process.wait_until(START_WITHIN, || self.is_ours()) {
                // A client that connects to the closed port may use it briefly as its own source port.
                Err(error) if error.is_address_in_use() && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                // The exit status of a shell for a missing program.
                Err(Error::Exited { status, .. }) if status.code() == Some(127) => {
                    return Err(Error::MissingTool { tool: "redis-server", path: program() });
                }
                other => return other,
            }
        }
    }

    /// Another server on the same port would answer too, and so would one that still loads its data. The server is ready
    /// when INFO shows this process ID and the data is loaded.
    fn is_ours(&self) -> std::result::Result<(), String> {
        let info = self.command(&["INFO"])?;
        let info = info.text().unwrap_or_default();
        let pid = format!("process_id:{}", self.process.pid().unwrap_or_default());
        if !info.lines().any(|line| line == pid) {
            Err(format!("another server answers at {}", self.address))
        } else if info.lines().any(|line| line == "loading:1") {
            Err("it is loading its data".to_owned())
        } else {
            Ok(())
        }
    }

    /// Kills the server and starts it on the same port with all of its data.
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

    /// Writes all data to disk (SAVE) and keeps a copy, for [`restart_from`](Self::restart_from).
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

    /// Kills the server and starts it on the same port with an older snapshot, as after a restored backup.
    /// Not for servers with `appendonly`: they load their log instead of the snapshot, and keep it when they restart empty.
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
        let dump = self.dump();
        let removed = if dump.exists() { fs::remove_file(dump) } else { Ok(()) };
        removed.map_err(Error::io("remove the data of redis-server"))
    }
}

/// Pauses the processes of these servers.
///
/// # Errors
/// As [`Process::pause`].
pub fn pause(servers: &[impl Borrow<RedisServer>]) -> Result<()> {
    servers.iter().try_for_each(|server| server.borrow().process().pause())
}

/// Resumes the processes of these servers.
///
/// # Errors
/// As [`Process::resume`].
pub fn resume(servers: &[impl Borrow<RedisServer>]) -> Result<()> {
    servers.iter().try_for_each(|server| server.borrow().process().resume())
}

/// Writes the certificates into new files, and returns the settings that name them.
fn tls_settings(folder: &TempFolder, tls: &RedisTls) -> Result<Vec<(&'static str, String)>> {
    let file = |name: &str, content: &str| -> Result<String> {
        let mut file = tempfile::Builder::new()
            .prefix(name)
            .tempfile_in(folder.path())
            .map_err(Error::io("make a file for a certificate"))?;
        file.write_all(content.as_bytes()).map_err(Error::io("write a certificate"))?;
        let (_, path) = file.keep().map_err(|error| Error::io("keep the file of a certificate")(error.error))?;
        Ok(path.display().to_string())
    };
    let (authenticate, ca) = tls.client_ca.as_ref().map_or(("no", &tls.identity.certificate), |ca| ("yes", ca));
    Ok(vec![
        ("tls-cert-file", file("tls.crt-", &tls.identity.certificate)?),
        ("tls-key-file", file("tls.key-", &tls.identity.key)?),
        ("tls-ca-cert-file", file("ca.crt-", ca)?),
        ("tls-auth-clients", authenticate.to_owned()),
    ])
}

fn program() -> PathBuf {
    env::var_os("REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// A loopback address that the kernel says is free.
///
/// The port is released so that the server can bind it. Another process may take it first: the caller retries when the
/// server reports "address in use".
///
/// # Errors
/// [`Error::Io`] when the kernel has no port left.
pub fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Error::io("find a free port on loopback"))
}
