//! The file that tells the command until when it may run.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;

use crate::clock::{BootTime, Deadlines};

/// The begin of the name of each folder.
const PREFIX: &str = "redislease-run-";
/// It differs on each machine and after each start of it. The lock of a folder is known to one kernel only, as on NFS.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The file in it, and the one that replaces it.
const NAME: &str = "deadline.json";
/// More than its content needs.
const LARGEST: usize = 256;
const NEW: &str = "new";

/// What the file contains, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    token: u64,
    /// `CLOCK_BOOTTIME`: when the command gets the stop signal unless the lock is renewed before.
    stop_boottime_ms: u64,
    /// `CLOCK_BOOTTIME`: the deadline unless the lock is renewed before. The process group of the command is killed 50 ms earlier.
    deadline_boottime_ms: u64,
    /// The time from the writing of the file to the deadline.
    remaining_ms: u64,
}

/// A file in a folder of its own, which only this user can read. Both are removed when it is dropped. If this process is killed, a
/// later one removes them, until the machine restarts and if its boot ID can be read.
#[derive(Debug)]
pub struct DeadlineFile {
    folder: PathBuf,
    /// The open folder. This process locks it while it lives.
    _lock: File,
}

impl DeadlineFile {
    /// Creates the folder in `XDG_RUNTIME_DIR`, or else in the folder for temporary files.
    pub fn new() -> io::Result<Self> {
        let mut last = io::ErrorKind::NotFound.into();
        for parent in parents(["XDG_RUNTIME_DIR", "TMPDIR"].map(std::env::var_os)) {
            let created = create_in(&parent, &boot_id(), lock).map(|(folder, lock)| Self { folder, _lock: lock });
            match created.and_then(Self::tried) {
                Ok(file) => return Ok(file),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A file system that is full, or a limit of the size of files, lets a folder be made and nothing be written.
    fn tried(self) -> io::Result<Self> {
        let new = self.folder.join(NEW);
        fs::write(&new, [b' '; LARGEST])?;
        fs::remove_file(new)?;
        Ok(self)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Replaces the content at once: a reader sees the old one or the new one.
    pub fn write(&self, token: u64, deadlines: Deadlines, now: BootTime) -> io::Result<()> {
        let remaining = deadlines.kill_at.since(now).as_millis();
        let content = Content {
            token,
            stop_boottime_ms: deadlines.stop_at.0,
            deadline_boottime_ms: deadlines.kill_at.0,
            remaining_ms: u64::try_from(remaining).unwrap_or(u64::MAX),
        };
        let new = self.folder.join(NEW);
        fs::write(&new, serde_json::to_vec(&content)?)?;
        fs::rename(new, self.path())
    }
}

/// The values of the variables, if they can be used, and `/tmp`. The command may have another working directory, so a relative path
/// means nothing to it.
fn parents(variables: [Option<OsString>; 2]) -> impl Iterator<Item = PathBuf> {
    let named = variables.into_iter().flatten().map(PathBuf::from).filter(|parent| parent.is_absolute());
    named.chain(["/tmp".into()])
}

/// Empty if it cannot be read, as with `ProcSubset=pid` of systemd.
fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

fn create_in(parent: &Path, boot_id: &str, lock: impl Fn(&Path) -> io::Result<File>) -> io::Result<(PathBuf, File)> {
    let prefix = format!("{PREFIX}{boot_id}-");
    // Without the boot ID, folders of other machines have the same prefix.
    if !boot_id.is_empty() {
        remove_unused(parent, &prefix);
    }
    // In a folder that all users can write to, another user may have taken a name.
    let names = (0..100).map(|number| format!("{prefix}{}-{}-{number}", std::process::id(), BootTime::now().0));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for folder in names.map(|name| parent.join(name)) {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                // An umask without rights for the owner would keep this process out of it.
                let _ = fs::set_permissions(&folder, Permissions::from_mode(0o700));
                match lock(&folder) {
                    Ok(lock) if folder.exists() => return Ok((folder, lock)),
                    // Until the lock, another process can take the folder for an unused one, and removes it.
                    Ok(_) => {}
                    Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::NotFound].contains(&error.kind()) => {}
                    // Some file systems lock no folders.
                    Err(error) => {
                        let _ = fs::remove_dir(&folder);
                        return Err(error);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Opens the folder and locks it.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if its process lives; another one if a lock is impossible.
fn lock(folder: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(folder)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes the folders of processes of this user on this machine that were killed.
fn remove_unused(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes())
            && entry.metadata().is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
        // The lock is kept until the folder is gone: a process that begins now must not find its own.
        if is_ours && let Ok(_lock) = lock(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// What cannot be removed says that the deadline has passed.
fn remove(folder: &Path) {
    for name in [NAME, NEW] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}

impl Drop for DeadlineFile {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_empty_or_relative_folder_is_not_used() {
        let used =
            |variables: [Option<&str>; 2]| parents(variables.map(|text| text.map(Into::into))).collect::<Vec<_>>();
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(used([Some("/run/user/1"), Some("/var/tmp")]), paths(&["/run/user/1", "/var/tmp", "/tmp"]));
        assert_eq!(used([Some(""), Some("tmp")]), paths(&["/tmp"]));
        assert_eq!(used([None, None]), paths(&["/tmp"]));
    }

    /// It can share the folder, and locks of folders are often unknown to other machines.
    #[test]
    fn a_folder_of_another_machine_is_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let of_others = parent.path().join("redislease-run-01234567-89ab-cdef-0123-456789abcdef-7-1-0");
        fs::create_dir(&of_others).unwrap();
        let unused = parent.path().join(format!("{PREFIX}{}-7-1-0", boot_id()));
        fs::create_dir(&unused).unwrap();
        let (folder, _lock) = create_in(parent.path(), &boot_id(), lock).unwrap();
        assert!(of_others.exists() && folder.exists() && !unused.exists());
        // All machines without a readable boot ID use the same names.
        let unnamed = parent.path().join("redislease-run--7-1-0");
        fs::create_dir(&unnamed).unwrap();
        let (folder, _lock) = create_in(parent.path(), "", lock).unwrap();
        assert!(unnamed.exists() && folder.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_locked_is_removed_and_the_only_one() {
        let parent = tempfile::tempdir().unwrap();
        let tries = Cell::new(0);
        let unsupported = |_: &Path| {
            tries.set(tries.get() + 1);
            Err(io::ErrorKind::Unsupported.into())
        };
        let error = create_in(parent.path(), &boot_id(), unsupported).unwrap_err();
        assert_eq!((error.kind(), tries.get()), (io::ErrorKind::Unsupported, 1));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_is_replaced_and_removed() {
        let file = DeadlineFile::new().unwrap();
        let path = file.path();
        let until = |ms: u64| Deadlines { stop_at: BootTime(ms - 10), kill_at: BootTime(ms) };
        for deadline in [500, 700] {
            file.write(7, until(deadline), BootTime(100)).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let stop = deadline - 10;
            let left = deadline - 100;
            assert_eq!(
                text,
                format!(
                    r#"{{"token":7,"stopBoottimeMs":{stop},"deadlineBoottimeMs":{deadline},"remainingMs":{left}}}"#
                )
            );
        }
        let second = DeadlineFile::new().unwrap();
        assert!(path.exists(), "a folder in use is not removed");
        drop(second);
        drop(file);
        assert!(!path.exists() && !path.parent().unwrap().exists());
    }
}
