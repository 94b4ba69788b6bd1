//! A backup of etcd, and its restoration.

use std::{fs, path::Path};

use super::plane::ControlPlane;
use super::servers::{ETCD_DATA, ETCD_SOCKET, START_WITHIN};
use crate::{Error, Process, Result, watchdog::TempFolder};

/// A copy of the data of etcd.
#[derive(Debug)]
pub struct Backup(TempFolder);

impl ControlPlane {
    /// Copies the data of etcd. etcd is paused meanwhile: the copy is what a crash would leave.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn back_up(&self) -> Result<Backup> {
        let backup = TempFolder::new("etcd-backup")?;
        self.not_again();
        self.etcd.pause()?;
        let copied = copy(&self.folder.path().join(ETCD_DATA), &backup.path().join(ETCD_DATA));
        self.etcd.resume()?;
        copied.map_err(Error::io("copy the data of etcd")).map(|()| Backup(backup))
    }

    /// Stops all processes, replaces the data of etcd by the backup, and starts the processes again, as the documentation of
    /// Kubernetes says. Resource versions go back, and what was written since the backup is lost.
    ///
    /// # Errors
    /// [`Error::Io`], or the error of a process that does not start.
    pub fn restore(&self, backup: &Backup) -> Result<()> {
        let processes = || self.agents.iter().chain([&self.api_server, &self.etcd]);
        processes().try_for_each(Process::kill)?;
        let (data, socket) = (self.folder.path().join(ETCD_DATA), self.folder.path().join(ETCD_SOCKET));
        fs::remove_dir_all(&data).map_err(Error::io("remove the data of etcd"))?;
        copy(&backup.0.path().join(ETCD_DATA), &data).map_err(Error::io("restore the data of etcd"))?;
        if socket.exists() {
            fs::remove_file(&socket).map_err(Error::io("remove the socket of etcd"))?;
        }
        self.etcd.start()?;
        self.etcd.wait_for_file(&socket, START_WITHIN)?;
        self.api_server.start()?;
        self.wait_ready()?;
        self.agents.iter().try_for_each(Process::start)
    }
}

/// Copies a folder with all that it contains.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}
