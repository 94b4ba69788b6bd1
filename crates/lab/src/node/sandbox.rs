//! Namespaces of their own for everything that real nodes start.
//!
//! A program that enters a sandbox runs itself again as the first process of a PID namespace. When that process ends for
//! any reason, the kernel kills everything that was started in it, container processes too, and removes its mounts and its
//! network. Left are the cgroups and the files, which the first program removes, or its watchdog if it is killed.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use super::cgroups::Cgroup;
use crate::{
    Error, Result, repository,
    tools::NodeTools,
    watchdog::{self, TempFolder},
};

/// Says to the inner program where its folder is.
const VARIABLE: &str = "REDISLEASE_SANDBOX";
/// Where the kubelet and containerd have fixed paths: each node sees empty folders there.
const HIDDEN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// The inside of the sandbox.
#[derive(Debug)]
pub struct Sandbox {
    folder: PathBuf,
}

/// On which side of the sandbox this process is.
#[derive(Debug)]
pub enum Entered {
    /// This process is the first one in the sandbox.
    Inside(Sandbox),
    /// The program has run inside the sandbox and ended with this code; nothing is left of it.
    Ended(ExitCode),
    /// This machine cannot run a node, for this reason: a sentence.
    Impossible(String),
}

impl Sandbox {
    /// Runs this program again inside a new sandbox, with the same arguments, and waits until it has ended.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses, also when something is left of the sandbox at the end.
    pub fn enter() -> Result<Entered> {
        if let Some(folder) = env::var_os(VARIABLE) {
            return Ok(Entered::Inside(Self { folder: folder.into() }));
        }
        if let Some(reason) = impossible()? {
            return Ok(Entered::Impossible(reason));
        }
        let folder = TempFolder::new("node")?;
        let program = env::current_exe().map_err(Error::io("find this program"))?;
        for needed in [folder.path(), &program, &repository(), &NodeTools::locate()?.kubelet] {
            if let Some(hidden) = hides(needed)? {
                let why = format!("{} is in {hidden}, which nodes do not see: use another folder.", needed.display());
                return Ok(Entered::Impossible(why));
            }
        }
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cgroup = Cgroup::new(&name)?;
        let mut inner = Command::new("/bin/sh");
        // The shell writes its process ID to the watchdog before it becomes `unshare`. If that is killed, so is the first
        // process in the namespace.
        inner.args(["-c", r#"echo "pid $$" >&0; exec "$@" </dev/null"#, "sh", "unshare"]);
        inner.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--propagation=private", "--net"]);
        inner.arg("--").arg(program).args(env::args_os().skip(1));
        inner.env(VARIABLE, folder.path()).env("TMPDIR", folder.path());
        // A group of its own: Ctrl-C ends this process, and the watchdog the rest.
        inner.stdin(watchdog::pipe()?).process_group(0);
        let status = inner.status().map_err(Error::io("run unshare"))?;
        // All processes have ended.
        cgroup.remove()?;
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Ok(Entered::Ended(ExitCode::from(code)))
    }

    /// Makes a folder in it.
    pub(crate) fn make_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(Error::io(format!("make {}", folder.display())))?;
        Ok(folder)
    }

    /// The name of its cgroup.
    pub(super) fn cgroup(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Why this machine cannot run a node.
fn impossible() -> Result<Option<String>> {
    let script = repository().join("hack/node-possible.sh");
    let output = Command::new(&script).output().map_err(Error::io(format!("run {}", script.display())))?;
    let reason = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((!output.status.success()).then_some(reason))
}

fn hides(path: &Path) -> Result<Option<&'static str>> {
    let path = path.canonicalize().map_err(Error::io(format!("find {}", path.display())))?;
    Ok(HIDDEN.into_iter().find(|hidden| path.starts_with(hidden)))
}
