//! `redislease crds`: prints the CustomResourceDefinitions as YAML.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use redislease_plan::api::crd;

use crate::cli::client::Outcome;
use crate::cli::output;

/// Print the CustomResourceDefinitions as YAML, for `kubectl apply --server-side -f -`.
#[derive(Debug, Args)]
pub(super) struct Crds {
    /// Write one file per CustomResourceDefinition into this directory instead of printing
    #[arg(long, env = "REDISLEASE_CRDS_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    pub(super) fn run(self) -> Outcome {
        if let Some(dir) = self.dir {
            return write_files(&dir);
        }
        let documents = documents()?;
        let printed = output::print(|out| out.write_all(documents.as_bytes()));
        printed.map_err(|error| format!("cannot print the CustomResourceDefinitions: {error}").into())
    }
}

/// Every definition, as one file of YAML.
fn documents() -> Outcome<String> {
    crd::all().iter().map(|crd| Ok(format!("---\n{}", yaml(crd)?))).collect()
}

fn write_files(dir: &Path) -> Outcome {
    for crd in crd::all() {
        let path = dir.join(file_name(&crd));
        fs::write(&path, yaml(&crd)?).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}.yaml", crd.spec.names.plural)
}

fn yaml(crd: &CustomResourceDefinition) -> Outcome<String> {
    let yaml = serde_saphyr::to_string(crd);
    yaml.map_err(|error| format!("cannot convert the CustomResourceDefinitions to YAML: {error}").into())
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
        let printed = documents().expect("the CRDs convert to YAML");
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
