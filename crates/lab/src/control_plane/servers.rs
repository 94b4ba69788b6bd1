//! The processes of a control plane, with their flags.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use super::{access, certificates, kubectl::Kubectl};
use crate::{Error, Process, Result, Tools, process::on_free_port, redis::free_address};

/// Each process serves within seconds; on a busy machine it may take longer.
pub(super) const START_WITHIN: Duration = Duration::from_mins(1);
pub(super) const ETCD_SOCKET: &str = "etcd.sock";
pub(super) const ETCD_DATA: &str = "etcd";
pub(super) const PROXY_SOCKET: &str = "proxy.sock";
pub(super) const READY: &[&str] = &["get", "--raw=/readyz"];
/// The addresses of Services.
pub(super) const SINGLE_STACK: &str = "10.96.0.0/16";
pub(super) const DUAL_STACK: &str = "10.96.0.0/16,fd00:96::/112";

/// The real nodes of a control plane: their kubelets are started by the caller.
#[derive(Debug, Clone)]
pub(crate) struct RealNodes {
    /// Where the API server listens: the first address of the service network, so that pods reach it without kube-proxy.
    pub(crate) api_server: SocketAddr,
    /// The names of the nodes. Each gets a kubeconfig with the rights of a kubelet.
    pub(crate) names: Vec<String>,
    /// How long a node can be silent before it is not Ready.
    pub(crate) silence: Duration,
}

pub(super) fn wait_for(api_server: &Process, kubectl: &Kubectl, args: &[&str]) -> Result<()> {
    let args = [args, &["--request-timeout=5s"]].concat();
    api_server.wait_until(START_WITHIN, || kubectl.run(&args, "").map(drop).map_err(|error| error.to_string()))
}

/// An API server accepts connections only after some seconds. To ask with kubectl before would keep a processor busy, which it needs.
fn accepts(api_server: &Process, address: SocketAddr) -> Result<()> {
    api_server.wait_until(START_WITHIN, || TcpStream::connect(address).map(drop).map_err(|error| error.to_string()))
}

/// With a longer path a server starts, and no client can connect to its socket.
pub(super) fn fits_sockets(folder: &Path) -> Result<()> {
    /// The kernel's field has 108 bytes, the terminating zero included.
    const MOST: usize = 107;
    let length = [ETCD_SOCKET, PROXY_SOCKET].map(|name| folder.join(name).as_os_str().len());
    match length.into_iter().max() {
        Some(length) if length > MOST => Err(Error::LongFolder { folder: folder.to_owned(), excess: length - MOST }),
        _ => Ok(()),
    }
}

pub(super) fn start_etcd(tools: &Tools, folder: &Path) -> Result<Process> {
    let socket = folder.join(ETCD_SOCKET);
    let etcd = start(
        "etcd",
        &tools.etcd,
        folder,
        &[
            flag("data-dir", folder.join(ETCD_DATA).display()),
            flag("listen-client-urls", format!("unix://{}", socket.display())),
            // etcd requires these two addresses; no client and no peer uses them.
            flag("advertise-client-urls", "http://127.0.0.1:0"),
            flag("listen-peer-urls", "http://127.0.0.1:0"),
            flag("unsafe-no-fsync", true),
            flag("log-level", "warn"),
        ],
    )?;
    // An API server that starts before etcd waits a second before it tries again.
    etcd.wait_for_file(&socket, START_WITHIN)?;
    Ok(etcd)
}

pub(super) fn start_api_server(
    tools: &Tools,
    folder: &Path,
    kubectl: &Kubectl,
    nodes: Option<&RealNodes>,
    services: &str,
) -> Result<(Process, SocketAddr)> {
    on_free_port(|| {
        let address = nodes.map_or_else(free_address, |nodes| Ok(nodes.api_server))?;
        access::write(folder, address, nodes.map_or(&[], |nodes| &nodes.names))?;
        let api_server = start(
            "kube-apiserver",
            &tools.kube_apiserver,
            folder,
            &[
                flag("etcd-servers", format!("unix://{}", folder.join(ETCD_SOCKET).display())),
                flag("bind-address", address.ip()),
                flag("secure-port", address.port()),
                flag("tls-cert-file", folder.join(certificates::SERVER_CERTIFICATE).display()),
                flag("tls-private-key-file", folder.join(certificates::SERVER_KEY).display()),
                flag("token-auth-file", folder.join(access::TOKENS).display()),
                flag("authorization-mode", "Node,RBAC"),
                flag("enable-admission-plugins", "NodeRestriction"),
                // A node's name has no address: `kubectl logs` reaches the kubelet by the address of the node.
                flag("kubelet-preferred-address-types", "InternalIP"),
                flag("endpoint-reconciler-type", "none"),
                flag("service-account-issuer", "https://kubernetes.default.svc"),
                flag("service-account-key-file", folder.join(certificates::ACCOUNTS_PUBLIC_KEY).display()),
                flag("service-account-signing-key-file", folder.join(certificates::ACCOUNTS_KEY).display()),
                flag("service-cluster-ip-range", services),
            ],
        )?;
        accepts(&api_server, address)?;
        wait_for(&api_server, kubectl, READY)?;
        Ok((api_server, address))
    })
}

pub(super) fn start_controller_manager(tools: &Tools, folder: &Path, name: &str, more: &[String]) -> Result<Process> {
    let flags = [
        flag("kubeconfig", access::kubeconfig(folder, access::CONTROLLER_MANAGER).display()),
        flag("service-account-private-key-file", folder.join(certificates::ACCOUNTS_KEY).display()),
        flag("root-ca-file", folder.join(certificates::CA).display()),
        // The default roles of Kubernetes are for single controllers.
        flag("use-service-account-credentials", true),
        flag("leader-elect", false),
        flag("secure-port", 0),
        // With the default limit of 20 calls a second, namespaces and rollouts take many seconds.
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 1000),
    ];
    start(name, &tools.kube_controller_manager, folder, &[&flags, more].concat())
}

pub(super) fn start(name: &str, program: &Path, folder: &Path, flags: &[String]) -> Result<Process> {
    let process = Process::new(name, program, folder.join(format!("{name}.log"))).args(flags);
    process.start()?;
    Ok(process)
}

/// The time as Kubernetes writes it.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%FT%TZ").to_string()
}

pub(super) fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_folder_too_long_for_sockets_is_named() {
        let of = |length: usize| PathBuf::from("/".to_owned() + &"x".repeat(length - 1));
        // The path also has a slash and `proxy.sock`.
        assert!(fits_sockets(&of(107 - 11)).is_ok());
        let refused = fits_sockets(&of(107 - 11 + 3)).map_err(|error| error.to_string());
        let says = format!("{} is 3 bytes too long for Unix sockets: set TMPDIR to a shorter folder", of(99).display());
        assert_eq!(refused, Err(says));
    }
}
