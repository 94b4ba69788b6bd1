//! Reads and applies objects through a `kubectl proxy` on a Unix socket, so that polling does not start a process for each call.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::access;
use super::servers::{PROXY_SOCKET, START_WITHIN, start};
use crate::{Error, Process, Result, Tools, http};

#[derive(Debug)]
pub(super) struct Reader {
    // Kept because dropping it stops the process.
    _proxy: Process,
    socket: PathBuf,
}

impl Reader {
    pub(super) fn start(tools: &Tools, folder: &Path) -> Result<Self> {
        let socket = folder.join(PROXY_SOCKET);
        let proxy = start(
            "kubectl proxy",
            &tools.kubectl,
            folder,
            &[
                "proxy".to_owned(),
                format!("--kubeconfig={}", access::kubeconfig(folder, access::ADMIN).display()),
                format!("--unix-socket={}", socket.display()),
            ],
        )?;
        proxy.wait_for_file(&socket, START_WITHIN)?;
        Ok(Self { _proxy: proxy, socket })
    }

    pub(super) fn get(&self, path: &str) -> Result<Option<Value>> {
        let parse = |body: String| {
            let failed = |error: serde_json::Error| Error::Answer { url: path.to_owned(), message: error.to_string() };
            serde_json::from_str(&body).map_err(failed)
        };
        self.page(path)?.map(parse).transpose()
    }

    /// Applies an object on the server's side, as kubectl does. Returns whether it is certain that the API server has stored it: kubectl
    /// says what is wrong otherwise, and knows kinds whose plural is irregular.
    pub(super) fn apply(&self, object: &Value) -> bool {
        let Some(path) = path_of(object) else { return false };
        let path = format!("{path}?fieldManager=kubectl&fieldValidation=Strict");
        let answer = http::patch_to_socket(&self.socket, &path, "application/apply-patch+yaml", &object.to_string());
        matches!(answer, Ok((200 | 201, _)))
    }

    pub(super) fn page(&self, path: &str) -> Result<Option<String>> {
        let failed = |message: String| Error::Answer { url: path.to_owned(), message };
        let (code, body) = http::get_from_socket(&self.socket, path).map_err(|error| failed(error.to_string()))?;
        match code {
            200 => Ok(Some(body)),
            404 => Ok(None),
            _ => Err(failed(format!("{code}: {}", body.trim()))),
        }
    }
}

/// The path of an object with a regular plural. Without a namespace it belongs to the cluster.
fn path_of(object: &Value) -> Option<String> {
    let [version, kind] = ["apiVersion", "kind"].map(|field| object[field].as_str());
    let (version, kind, name) = (version?, kind?.to_lowercase(), object["metadata"]["name"].as_str()?);
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let namespace =
        object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    Some(format!("/{root}/{version}{namespace}/{plural}/{name}"))
}
