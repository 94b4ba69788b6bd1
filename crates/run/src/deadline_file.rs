//! The file that tells the command until when it may run.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::clock::{BootTime, Deadlines};

/// What the file contains, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    token: u64,
    /// `CLOCK_BOOTTIME`: when the command gets the stop signal unless the lock is renewed before.
    stop_boottime_ms: u64,
    /// `CLOCK_BOOTTIME`: when the kernel kills the command unless the lock is renewed before.
    deadline_boottime_ms: u64,
    /// The time from the writing of the file to the deadline.
    remaining_ms: u64,
}

/// A file in a folder of its own, which only this user can read. Both are removed when it is dropped.
#[derive(Debug)]
pub struct DeadlineFile {
    folder: PathBuf,
}

impl DeadlineFile {
    /// Creates the folder in `XDG_RUNTIME_DIR`, or else in the folder for temporary files.
    pub fn new() -> io::Result<Self> {
        let parents = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter().chain([std::env::temp_dir()]);
        let mut last = io::ErrorKind::NotFound.into();
        for parent in parents {
            match create_in(&parent) {
                Ok(folder) => return Ok(Self { folder }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("deadline.json")
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
        let new = self.folder.join("new");
        fs::write(&new, serde_json::to_vec(&content)?)?;
        fs::rename(new, self.path())
    }
}

fn create_in(parent: &Path) -> io::Result<PathBuf> {
    // In a folder that all users can write to, another user may have taken a name.
    let names = (0..100).map(|number| format!("redislease-run-{}-{}-{number}", std::process::id(), BootTime::now().0));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for folder in names.map(|name| parent.join(name)) {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

impl Drop for DeadlineFile {
    fn drop(&mut self) {
        // What cannot be removed says that the deadline has passed.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        drop(file);
        assert!(!path.exists() && !path.parent().unwrap().exists());
    }
}
