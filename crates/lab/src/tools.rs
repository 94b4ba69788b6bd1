//! Finds the binaries of the local control plane and of Helm.

use std::{path::PathBuf, process::Command};

use crate::{Error, Result, repository};

/// The pinned binaries. The script that builds them also prints their paths: those in `KUBEBUILDER_ASSETS` that have the
/// right version, otherwise those in the user's cache folder.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each field is the path of the binary it is named after")]
pub struct Tools {
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub kube_controller_manager: PathBuf,
    pub kube_scheduler: PathBuf,
    pub kubectl: PathBuf,
    pub kwok: PathBuf,
    pub helm: PathBuf,
}

impl Tools {
    /// Finds all binaries and builds none.
    ///
    /// # Errors
    /// [`Error::MissingTool`] names the first that has not been built and the command that builds it.
    pub fn locate() -> Result<Self> {
        let script = repository().join("hack/build-tools.sh");
        let output =
            Command::new(&script).arg("--print").output().map_err(Error::io(format!("run {}", script.display())))?;
        if !output.status.success() {
            return Err(Error::Command {
                command: format!("{} --print", script.display()),
                status: output.status,
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        let listing = String::from_utf8_lossy(&output.stdout);
        let find = |tool: &'static str| {
            let path = listing
                .lines()
                .filter_map(|line| line.split_once('\t'))
                .find_map(|(name, path)| (name == tool).then(|| PathBuf::from(path)))
                .unwrap_or_default();
            if path.is_file() { Ok(path) } else { Err(Error::MissingTool { tool, path }) }
        };
        Ok(Self {
            etcd: find("etcd")?,
            kube_apiserver: find("kube-apiserver")?,
            kube_controller_manager: find("kube-controller-manager")?,
            kube_scheduler: find("kube-scheduler")?,
            kubectl: find("kubectl")?,
            kwok: find("kwok")?,
            helm: find("helm")?,
        })
    }
}
