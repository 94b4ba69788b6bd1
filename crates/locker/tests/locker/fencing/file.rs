//! A file: the token is its first line, and a lock of the operating system makes check and write one step.

use std::fs;
use std::path::{Path, PathBuf};

use super::late_write::Store;

pub struct File(PathBuf);

impl File {
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("redislease-fencing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("account")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A temporary folder that stays harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes `text` if no greater token is in the file. The lock is on a file of its own, because the other one is replaced.
fn replace(path: &Path, text: &str, token: u64) -> std::io::Result<bool> {
    let lock = fs::File::create(path.with_extension("lock"))?;
    lock.lock()?;
    let seen = match fs::read_to_string(path) {
        Ok(content) => content.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    if token < seen {
        return Ok(false);
    }
    let new = path.with_extension("new");
    fs::write(&new, format!("{token}\n{text}"))?;
    fs::rename(new, path)?;
    Ok(true)
}

impl Store for File {
    fn write(&self, value: &str, token: u64) -> bool {
        replace(&self.path(), value, token).unwrap()
    }

    fn value(&self) -> String {
        let content = fs::read_to_string(self.path()).unwrap();
        content.split_once('\n').unwrap().1.to_owned()
    }
}
