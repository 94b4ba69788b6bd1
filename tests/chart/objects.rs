//! Reads what Helm renders.

use redislease_lab::{Helm, Result};
use serde_json::Value;

/// One rendered object.
#[derive(Clone, Debug)]
pub struct Object(pub Value);

impl Object {
    pub fn kind(&self) -> &str {
        self.0["kind"].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Empty for an object without a namespace.
    pub fn namespace(&self) -> &str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// The template of the pods that it runs.
    pub fn pod(&self) -> Option<&Value> {
        self.0.pointer("/spec/template/spec").filter(|pod| pod["containers"].is_array())
    }
}

/// Renders the chart and reads all objects, those of hooks too.
pub fn render(helm: &Helm, args: &[&str]) -> Result<Vec<Object>> {
    helm.template(args).map(|text| read(&text))
}

/// The objects of a manifest.
pub fn read(manifest: &str) -> Vec<Object> {
    let documents = manifest.split("\n---").map(|document| document.trim_start_matches("---"));
    documents
        .map(|document| {
            serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error} in\n{document}"))
        })
        .filter(|object| !object.is_null())
        .map(Object)
        .collect()
}
