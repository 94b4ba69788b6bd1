//! Runs kubectl, by default as the administrator.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, command};

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
        let mut kubectl = Command::new(&self.program);
        kubectl.env("KUBECONFIG", &self.kubeconfig).arg(self.cache_dir()).args(args);
        command::run(&mut kubectl, || format!("kubectl {}", args.join(" ")), input)
    }
}
