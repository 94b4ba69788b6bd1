//! `redislease crds`: prints the CustomResourceDefinitions as YAML.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use redislease_plan::api::crd;

/// Print the CustomResourceDefinitions as YAML, for `kubectl apply --server-side -f -`.
#[derive(Debug, Args)]
pub(super) struct Crds {
    /// Write one file per CustomResourceDefinition into this directory instead of printing
    #[arg(long, env = "REDISLEASE_CRDS_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    pub(super) fn run(self) -> Result<(), CrdsError> {
        match self.dir {
            Some(dir) => write_files(&dir),
            None => print(&mut io::stdout().lock()),
        }
    }
}

#[derive(Debug)]
pub(super) enum CrdsError {
    Render(serde_saphyr::ser_error::Error),
    Print(io::Error),
    Write { path: PathBuf, error: io::Error },
}

impl fmt::Display for CrdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Render(error) => write!(f, "cannot convert the CustomResourceDefinitions to YAML: {error}"),
            Self::Print(error) => write!(f, "cannot print the CustomResourceDefinitions: {error}"),
            Self::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CrdsError {}

fn print(out: &mut impl Write) -> Result<(), CrdsError> {
    for crd in crd::all() {
        let yaml = yaml(&crd).map_err(CrdsError::Render)?;
        write!(out, "---\n{yaml}").map_err(CrdsError::Print)?;
    }
    Ok(())
}

fn write_files(dir: &Path) -> Result<(), CrdsError> {
    for crd in crd::all() {
        let path = dir.join(file_name(&crd));
        let yaml = yaml(&crd).map_err(CrdsError::Render)?;
        fs::write(&path, yaml).map_err(|error| CrdsError::Write { path, error })?;
    }
    Ok(())
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}.yaml", crd.spec.names.plural)
}

fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser_error::Error> {
    serde_saphyr::to_string(crd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGENERATE: &str = "run `cargo run -- crds --dir crds` and commit the result";

    #[test]
    fn committed_crds_match_the_types() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        for crd in crd::all() {
            let path = dir.join(file_name(&crd));
            let committed =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}: {REGENERATE}", path.display()));
            let generated = yaml(&crd).expect("a CRD converts to YAML");
            assert!(committed == generated, "{} differs from the types: {REGENERATE}", path.display());
        }
        let files = fs::read_dir(&dir).expect("crds/ is readable").count();
        assert_eq!(files, crd::all().len(), "crds/ contains files that are not generated");
    }

    #[test]
    fn printed_crds_can_be_parsed() {
        let mut printed = Vec::new();
        print(&mut printed).expect("printing into memory");
        let printed = String::from_utf8(printed).expect("YAML is text");
        let read: Vec<CustomResourceDefinition> = printed
            .split("---\n")
            .skip(1)
            .map(|document| serde_saphyr::from_str(document).expect("the document reads back"))
            .collect();
        assert_eq!(read, crd::all());
    }

    #[test]
    fn missing_directory_is_named_in_the_error() {
        let missing = tempfile::tempdir().expect("a directory").path().join("gone");
        let error = write_files(&missing).expect_err("the directory does not exist");
        assert!(
            error.to_string().starts_with(&format!("cannot write {}: ", missing.join("redisquorums.yaml").display())),
            "{error}"
        );
    }
}
