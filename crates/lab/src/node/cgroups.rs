//! The cgroup below which the kubelets put the cgroups of their pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Error, Result, poll, watchdog};

const ROOT: &str = "/sys/fs/cgroup";
/// The controllers that a kubelet requires if the machine has them.
const NEEDED: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];
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

    /// Removes it.
    ///
    /// # Errors
    /// [`Error::Io`] when a process is still in it.
    pub(super) fn remove(&self) -> Result<()> {
        for folder in &self.folders {
            let removed = || remove(folder).map_err(|error| error.to_string());
            poll(REMOVED_WITHIN, removed).map_err(|last| {
                let process = format!("the removal of the cgroup {}", folder.display());
                Error::NotReady { process, waited: REMOVED_WITHIN, last, log: String::new() }
            })?;
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
    let Ok(controllers) = fs::read_to_string(parent.join("cgroup.controllers")) else {
        return take_over_cpus(folder);
    };
    // Version 2: a controller works in a cgroup only if its parent passes it on.
    let needed = controllers.split_whitespace().filter(|controller| NEEDED.contains(controller));
    let enable: Vec<String> = needed.map(|controller| format!("+{controller}")).collect();
    if enable.is_empty() {
        return Ok(());
    }
    fs::write(parent.join("cgroup.subtree_control"), enable.join(" ")).map_err(failed())
}

/// Version 1: a cgroup without CPUs and memory nodes accepts no process.
fn take_over_cpus(folder: &Path) -> Result<()> {
    let failed = || Error::io(format!("set the CPUs of the cgroup {}", folder.display()));
    let parent = folder.parent().unwrap_or(Path::new(ROOT));
    for file in ["cpuset.cpus", "cpuset.mems"].into_iter().filter(|file| folder.join(file).exists()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    // Stands for a hierarchy of a machine with the other version than this one.
    #[test]
    fn with_version_2_the_parent_passes_on_what_a_kubelet_needs() -> std::result::Result<(), Box<dyn std::error::Error>>
    {
        let root = tempfile::tempdir()?;
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory pids misc\n")?;
        make(&root.path().join("new"))?;
        assert!(root.path().join("new").is_dir());
        assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control"))?, "+cpuset +cpu +memory +pids");
        Ok(())
    }

    #[test]
    fn with_version_1_the_cpus_of_the_parent_are_taken_over() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let new = root.path().join("new");
        fs::create_dir(&new)?;
        fs::write(root.path().join("cpuset.cpus"), "0-1\n")?;
        fs::write(new.join("cpuset.cpus"), "")?;
        take_over_cpus(&new)?;
        assert_eq!(fs::read_to_string(new.join("cpuset.cpus"))?, "0-1");
        assert!(!new.join("cpuset.mems").exists(), "only files that the kernel has made are written");
        Ok(())
    }
}
