//! Runs kubectl, by default as the administrator.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    pub(super) fn new(program: &Path, kubeconfig: PathBuf, folder: &Path) -> Self {
        Self { program: program.to_owned(), kubeconfig, cache: folder.join("kubectl-cache") }
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The default cache is keyed by address, and another test may have used this address for other resources.
    pub(super) fn cache_dir(&self) -> String {
        format!("--cache-dir={}", self.cache.display())
    }

    pub(super) fn run(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(&self.program)
            .env("KUBECONFIG", &self.kubeconfig)
            .arg(self.cache_dir())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::io(format!("run {}", self.program.display())))?;
        if let Some(mut stdin) = child.stdin.take() {
            // kubectl may exit before it has read everything; its own message then tells why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(Error::io("wait for kubectl"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(Error::Command {
                command: format!("kubectl {}", args.join(" ")),
                status: output.status,
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            })
        }
    }
}
