//! Finds the binaries of the local control plane, of Helm and of the object store.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{Error, Result, command, repository};

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
}

/// The pinned binaries of a real node, from the same script.
#[derive(Debug, Clone)]
pub(crate) struct NodeTools {
    pub(crate) kubelet: PathBuf,
    /// Its shim is in the same folder.
    pub(crate) containerd: PathBuf,
    pub(crate) ctr: PathBuf,
    /// The folder of the CNI plugins.
    pub(crate) plugins: PathBuf,
}

impl NodeTools {
    /// Finds all binaries and builds none.
    pub(crate) fn locate() -> Result<Self> {
        let listing = Listing::read()?;
        listing.find("containerd-shim-runc-v2")?;
        listing.find("loopback")?;
        listing.find("host-local")?;
        let bridge = listing.find("bridge")?;
        Ok(Self {
            kubelet: listing.find("kubelet")?,
            containerd: listing.find("containerd")?,
            ctr: listing.find("ctr")?,
            plugins: bridge.parent().map(PathBuf::from).unwrap_or_default(),
        })
    }
}

impl Tools {
    /// Finds all binaries and builds none.
    ///
    /// # Errors
    /// [`Error::MissingTool`] names the first that has not been built and the command that builds it.
    pub fn locate() -> Result<Self> {
        let listing = Listing::read()?;
        Ok(Self {
            etcd: listing.find("etcd")?,
            kube_apiserver: listing.find("kube-apiserver")?,
            kube_controller_manager: listing.find("kube-controller-manager")?,
            kube_scheduler: listing.find("kube-scheduler")?,
            kubectl: listing.find("kubectl")?,
        })
    }
}

/// The pinned binary of Helm, from the same script.
pub(crate) fn helm() -> Result<PathBuf> {
    Listing::read()?.find("helm")
}

/// The pinned binary of the object store, from the same script.
pub(crate) fn object_store() -> Result<PathBuf> {
    Listing::read()?.find("versitygw")
}

/// What the script that builds the tools prints: one line `tool<TAB>path` each.
struct Listing(&'static str);

impl Listing {
    /// Runs the script once in a process.
    fn read() -> Result<Self> {
        static PRINTED: OnceLock<String> = OnceLock::new();
        if let Some(printed) = PRINTED.get() {
            return Ok(Self(printed));
        }
        let printed = command::output(repository().join("hack/build-tools.sh"), &["--print"])?;
        Ok(Self(PRINTED.get_or_init(|| printed)))
    }

    fn find(&self, tool: &'static str) -> Result<PathBuf> {
        let path = self
            .0
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find_map(|(name, path)| (name == tool).then(|| PathBuf::from(path)))
            .unwrap_or_default();
        if path.is_file() { Ok(path) } else { Err(Error::MissingTool { tool, path }) }
    }
}
