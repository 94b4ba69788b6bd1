//! The cgroup below which the kubelets put the cgroups of their pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result, watchdog};

const ROOT: &str = "/sys/fs/cgroup";
/// A cgroup can be removed a moment after its last process has ended.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);

/// A cgroup with one name in every hierarchy. It is removed when it is dropped, with all cgroups below it.
#[derive(Debug)]
pub(super) struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    pub(super) fn new(name: &str) -> Result<Self> {
        let folders: Vec<PathBuf> = hierarchies()?.into_iter().map(|root| root.join(name)).collect();
        for folder in &folders {
            watchdog::remove_cgroup(folder)?;
            make(folder)?;
        }
        Ok(Self { folders })
    }
}

impl Cgroup {
    /// Removes it.
    ///
    /// # Errors
    /// [`Error::Io`] when a process is still in it.
    pub(super) fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + REMOVED_WITHIN;
        for folder in &self.folders {
            while let Err(error) = remove(folder) {
                if Instant::now() >= deadline {
                    return Err(Error::io(format!("remove the cgroup {}", folder.display()))(error));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // If this fails, the watchdog tries again.
        let _ = self.remove();
    }
}

/// Makes a cgroup below one that [`Cgroup::new`] has made, in every hierarchy. It is removed together with it.
pub(super) fn make_below(parent: &str, name: &str) -> Result<()> {
    hierarchies()?.into_iter().try_for_each(|root| make(&root.join(parent).join(name)))
}

/// The folders in which cgroups are made: one for each controller with version 1, a single one with version 2.
fn hierarchies() -> Result<Vec<PathBuf>> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return Ok(vec![ROOT.into()]);
    }
    let failed = || Error::io(format!("list the cgroup hierarchies in {ROOT}"));
    let mut found = Vec::new();
    for entry in fs::read_dir(ROOT).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        // Names such as cpu,cpuacct have links beside them. runc also uses `unified`, which has no controllers here.
        let is_folder = entry.file_type().map_err(failed())?.is_dir();
        if is_folder && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn make(folder: &Path) -> Result<()> {
    let failed = || Error::io(format!("make the cgroup {}", folder.display()));
    fs::create_dir(folder).map_err(failed())?;
    let parent = folder.parent().unwrap_or(Path::new(ROOT));
    // Version 2: a controller works in a cgroup only if its parent passes it on.
    if let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) {
        for controller in controllers.split_whitespace() {
            fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}")).map_err(failed())?;
        }
    }
    // Version 1: a cgroup without CPUs and memory nodes accepts no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if parent.join("cgroup.controllers").exists() || !folder.join(file).exists() {
            continue;
        }
        let all = fs::read_to_string(parent.join(file)).map_err(failed())?;
        fs::write(folder.join(file), all.trim()).map_err(failed())?;
    }
    Ok(())
}

fn remove(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    // The files of a cgroup go with it.
    fs::remove_dir(folder)
}
