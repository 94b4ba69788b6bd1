//! PostgreSQL: the condition of the UPDATE is the check. A server of its own, which listens on a socket in its folder only.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::late_write::{Store, recipe};
use crate::support::{PATIENCE, ms};

pub struct Database {
    folder: PathBuf,
    programs: PathBuf,
    server: Child,
}

/// The folder with `initdb`, `postgres` and `psql`: of the newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.sort_by_key(|path| path.to_str().and_then(|path| path.split('/').nth(4)?.parse::<u32>().ok()));
    found.into_iter().rev().find(|path| ["initdb", "postgres", "psql"].iter().all(|name| path.join(name).exists()))
}

/// The server refuses to run as root.
fn ordinary_user(command: &mut Command) -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").ok()?.uid() != 0 {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.starts_with("nobody:"))?;
    let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
    let (user, group) = (ids.next()?, ids.next()?);
    command.uid(user).gid(group);
    Some((user, group))
}

impl Database {
    /// `None`, with a message, if PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            redislease_lab::skipped("PostgreSQL is not installed: run `make deps`, or apt-get install postgresql");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("redislease-postgres-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let data = folder.join("data");
        let mut init = Command::new(programs.join("initdb"));
        if let Some((user, group)) = ordinary_user(&mut init) {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        init.args(["--username=test", "--auth=trust", "--no-sync", "--no-locale", "--pgdata"]).arg(&data);
        let done = init.current_dir(&folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut server = Command::new(programs.join("postgres"));
        ordinary_user(&mut server);
        server.arg("-D").arg(&data).arg("-k").arg(&folder).args(["-c", "listen_addresses=", "-F"]);
        let server = server.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let database = Self { folder, programs, server };
        let began = Instant::now();
        while database.run("SELECT 1").is_err() {
            assert!(began.elapsed() < PATIENCE, "PostgreSQL does not answer after {PATIENCE:?}");
            std::thread::sleep(ms(20));
        }
        let create = "CREATE TABLE account (id int PRIMARY KEY, balance text, token bigint NOT NULL)";
        database.run(create).unwrap();
        database.run("INSERT INTO account VALUES (1, '', 0)").unwrap();
        Some(database)
    }

    /// The output of psql.
    fn run(&self, statement: &str) -> Result<String, String> {
        let psql: &Path = &self.programs.join("psql");
        let mut psql = Command::new(psql);
        psql.arg("-h").arg(&self.folder).args(["-U", "test", "-d", "postgres", "-X", "-A", "-t", "-c", statement]);
        let done = psql.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }
}

impl Store for Database {
    fn write(&self, value: &str, token: u64) -> bool {
        // psql has no parameters for one statement.
        let update =
            recipe("sql").replace("$1", &format!("'{value}'")).replace("$2", &token.to_string()).replace("$3", "1");
        let changed = self.run(&update).unwrap();
        assert!(matches!(changed.as_str(), "UPDATE 0" | "UPDATE 1"), "{changed}");
        changed == "UPDATE 1"
    }

    fn value(&self) -> String {
        self.run("SELECT balance FROM account WHERE id = 1").unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // At once: nothing of it is kept.
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
