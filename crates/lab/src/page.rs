//! The commands of a documentation page, run as a reader runs them.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::{ControlPlane, Error, Result, Tools, tools, watchdog::TempFolder};

/// A fenced block of a page.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The word after the fence, such as `sh`.
    pub language: &'a str,
    /// The lines between the fences.
    pub text: &'a str,
}

impl<'a> Block<'a> {
    /// The blocks of a page, in their order.
    pub fn of(page: &'a str) -> Vec<Self> {
        let fenced = page.split("\n```").skip(1).step_by(2);
        fenced.filter_map(|block| block.split_once('\n')).map(|(language, text)| Self { language, text }).collect()
    }

    /// The name of the file that the block shows: its first line is `# NAME`.
    pub fn file(&self) -> Option<&'a str> {
        self.text.lines().next()?.strip_prefix("# ")
    }
}

/// A reader of a page: a folder in which commands run, with kubectl and Helm.
#[derive(Debug)]
pub struct Reader {
    folder: TempFolder,
}

impl Reader {
    /// Creates the folder.
    ///
    /// # Errors
    /// [`Error::MissingTool`] when kubectl or Helm has not been built.
    pub fn new() -> Result<Self> {
        let folder = TempFolder::new("reader")?;
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).map_err(Error::io("make a folder for tools"))?;
        for (tool, name) in [(tools::helm()?, "helm"), (Tools::locate()?.kubectl, "kubectl")] {
            symlink(tool, bin.join(name)).map_err(Error::io(format!("link {name}")))?;
        }
        Ok(Self { folder })
    }

    /// The folder in which the commands of the page run. It is deleted with this value.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a block of shell as an administrator of the cluster. Returns what it printed.
    ///
    /// # Errors
    /// The block and what it printed, when a command fails.
    pub fn run(
        &self,
        block: &str,
        cluster: &ControlPlane,
        variables: &[(&str, &str)],
    ) -> std::result::Result<String, String> {
        let path = format!("{}:{}", self.folder().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(self.folder())
            .env("PATH", path)
            .env("HOME", self.folder())
            .env("KUBECONFIG", cluster.kubeconfig())
            .envs(variables.iter().copied())
            .output()
            .map_err(|error| format!("{block}\ncannot be run: {error}"))?;
        let printed = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        if output.status.success() { Ok(printed) } else { Err(format!("{block}\nfailed:\n{printed}")) }
    }
}
