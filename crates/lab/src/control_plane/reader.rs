//! Reads objects through a `kubectl proxy` on a Unix socket, so that polling does not start a process for each call.

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
        proxy.wait_until(START_WITHIN, || {
            if socket.exists() { Ok(()) } else { Err(format!("there is no {}", socket.display())) }
        })?;
        Ok(Self { _proxy: proxy, socket })
    }

    pub(super) fn get(&self, path: &str) -> Result<Option<Value>> {
        let parse = |body: String| {
            let failed = |error: serde_json::Error| Error::Answer { url: path.to_owned(), message: error.to_string() };
            serde_json::from_str(&body).map_err(failed)
        };
        self.page(path)?.map(parse).transpose()
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
