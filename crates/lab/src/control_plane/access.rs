//! The users of the API server and their kubeconfigs.

use std::{
    fs::{self, File},
    io::Read,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::certificates;
use crate::{Error, Result};

pub(super) const TOKENS: &str = "tokens.csv";
pub(super) const ADMIN: &str = "admin";
pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// Writes a token and a kubeconfig for each user of the control plane itself. The two `system:` users have the roles
/// that Kubernetes ships for them. The kubelet of each of `nodes` has the rights of a kubelet.
pub(super) fn write(folder: &Path, address: SocketAddr, nodes: &[String]) -> Result<()> {
    let users = [(ADMIN, "system:masters"), (CONTROLLER_MANAGER, ""), (SCHEDULER, "")];
    let users = users.map(|(user, group)| (user.to_owned(), group)).into_iter();
    let mut tokens = Vec::new();
    for (user, group) in users.chain(nodes.iter().map(|node| (kubelet(node), "system:nodes"))) {
        let token = random_token()?;
        tokens.push(format!("{token},{user},{user},\"{group}\"\n"));
        write_kubeconfig(folder, address, &user, "default", &token)?;
    }
    fs::write(folder.join(TOKENS), tokens.concat()).map_err(Error::io("write the API server's tokens"))
}

/// The user of the kubelet of a node, as the Node authorizer expects it.
pub(super) fn kubelet(node: &str) -> String {
    format!("system:node:{node}")
}

pub(super) fn kubeconfig(folder: &Path, user: &str) -> PathBuf {
    folder.join(format!("{}.kubeconfig", user.replace(':', "-")))
}

pub(super) fn write_kubeconfig(
    folder: &Path,
    address: SocketAddr,
    user: &str,
    namespace: &str,
    token: &str,
) -> Result<PathBuf> {
    let path = kubeconfig(folder, user);
    // JSON is also YAML.
    let content = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority": folder.join(certificates::CA),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user, "namespace": namespace}}],
        "current-context": "lab",
    });
    fs::write(&path, content.to_string()).map_err(Error::io(format!("write the kubeconfig of {user}")))?;
    Ok(path)
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(Error::io("read random bytes"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
