//! Runs Helm on the chart of this repository.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, command, repository, tools, watchdog::TempFolder};

/// The release name with which the lab renders the chart. The operator's service account is then `redislease-operator`.
pub const RELEASE: &str = "redislease";
/// The namespace of the operators, their RedisQuorum and its secret.
pub const SYSTEM: &str = "redislease-system";

/// The pinned Helm with a cache and a configuration of its own, which are removed when it is dropped.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
    home: TempFolder,
}

impl Helm {
    /// Helm without a cluster, for templates.
    ///
    /// # Errors
    /// [`Error::MissingTool`](crate::Error::MissingTool) before `make tools`.
    pub fn new() -> Result<Self> {
        Ok(Self { program: tools::helm()?, kubeconfig: None, home: TempFolder::new("helm")? })
    }

    /// Helm as the user of a kubeconfig.
    ///
    /// # Errors
    /// [`Error::MissingTool`](crate::Error::MissingTool) before `make tools`.
    pub fn with_kubeconfig(kubeconfig: &Path) -> Result<Self> {
        Ok(Self { kubeconfig: Some(kubeconfig.to_owned()), ..Self::new()? })
    }

    /// The folder of the chart.
    pub fn chart() -> String {
        repository().join("charts/redislease").display().to_string()
    }

    /// Runs Helm and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with its standard error.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.program);
        let home = self.home.path();
        helm.env("HELM_CACHE_HOME", home).env("HELM_CONFIG_HOME", home).env("HELM_DATA_HOME", home);
        // Without a cluster, no kubeconfig of the user's may be found.
        helm.env("KUBECONFIG", self.kubeconfig.clone().unwrap_or_else(|| home.join("no-kubeconfig")));
        helm.args(args);
        command::run(&mut helm, || format!("helm {}", args.join(" ")), "")
    }

    /// Renders the chart for the operator's namespace, with more arguments of `helm template`.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the reason.
    pub fn template(&self, args: &[&str]) -> Result<String> {
        self.run(&[&["template", RELEASE, &Self::chart(), "--namespace", SYSTEM], args].concat())
    }
}
