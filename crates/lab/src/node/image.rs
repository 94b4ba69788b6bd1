//! Makes images without a registry: one program on an empty root file system.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::Sandbox;
use crate::{Error, Result, command::output};

/// An image to be made.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    reference: &'a str,
    program: Program<'a>,
}

/// The program of an image. It is the entry point.
#[derive(Debug, Clone, Copy)]
pub enum Program<'a> {
    /// The lab's small program that works until it is told to stop, under this name in the root folder. It is linked
    /// statically. Its variable `STOP_SECONDS` is how long it finishes its work after SIGTERM.
    Source(&'a str),
    /// A binary of this machine, with the shared libraries that it needs and without symbols.
    Binary(&'a Path),
}

impl<'a> Image<'a> {
    /// An image with this reference, registry and tag included.
    pub fn new(reference: &'a str, program: Program<'a>) -> Self {
        Self { reference, program }
    }

    /// Makes the archive, as `docker save` would.
    ///
    /// # Errors
    /// [`Error::Command`] with the message of the compiler or of tar.
    pub fn pack(&self, sandbox: &Sandbox) -> Result<PathBuf> {
        let name = match self.program {
            Program::Source(name) => name.to_owned(),
            Program::Binary(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let folder = sandbox.make_folder(&format!("image-{name}"))?;
        let root = sandbox.make_folder(&format!("image-{name}/root"))?;
        let target = root.join(&name);
        match self.program {
            Program::Source(_) => compile(&folder, &target)?,
            Program::Binary(path) => {
                output("strip", &["-o", &target.display().to_string(), &path.display().to_string()])?;
                libraries(path).iter().try_for_each(|library| copy(library, &root))?;
            }
        }
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))
            .map_err(Error::io(format!("make {} executable", target.display())))?;
        self.archive(&folder, &name)
    }

    fn archive(&self, folder: &Path, program: &str) -> Result<PathBuf> {
        let text = folder.display().to_string();
        let tar = |args: &[&str]| output("tar", &[&["--numeric-owner", "--owner=0", "--group=0"], args].concat());
        let layer = format!("{text}/layer.tar");
        tar(&["-cf", &layer, "-C", &format!("{text}/root"), "."])?;
        let digest = output("sha256sum", &[&layer])?;
        let digest = digest.split_whitespace().next().unwrap_or_default();
        let config = json!({
            "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
            "os": "linux",
            "config": {"Entrypoint": [format!("/{program}")], "User": "65532:65532", "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.reference], "Layers": ["layer.tar"]}]);
        for (file, content) in [("config.json", config), ("manifest.json", manifest)] {
            fs::write(folder.join(file), content.to_string()).map_err(Error::io(format!("write {file}")))?;
        }
        let archive = folder.join("image.tar");
        let path = archive.display().to_string();
        tar(&["-cf", &path, "-C", &text, "manifest.json", "config.json", "layer.tar"])?;
        Ok(archive)
    }
}

fn compile(folder: &Path, target: &Path) -> Result<()> {
    let source = folder.join("program.c");
    fs::write(&source, include_str!("container.c")).map_err(Error::io(format!("write {}", source.display())))?;
    output("cc", &["-static", "-Os", "-s", "-o", &target.display().to_string(), &source.display().to_string()])
        .map(drop)
}

/// The shared libraries of a binary, and the program that loads them. A static binary has none.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let Ok(list) = output("ldd", &[&binary.display().to_string()]) else {
        return Vec::new();
    };
    let paths = list.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Copies a file to the same path below another root folder.
fn copy(file: &Path, root: &Path) -> Result<()> {
    let failed = || Error::io(format!("copy {}", file.display()));
    let target = root.join(file.strip_prefix("/").unwrap_or(file));
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(failed())?;
    }
    fs::copy(file, target).map(drop).map_err(failed())
}
