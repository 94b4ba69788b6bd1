//! A real Kubernetes control plane on this machine. The kubelets of its nodes are simulated, or started by the caller.

mod access;
mod certificates;
mod faults;
mod kubectl;
mod kubelets;
mod pool;
mod reader;
mod restore;
mod watch;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use serde_json::{Value, json};

pub use self::pool::PooledControlPlane;
pub use self::restore::Backup;
pub use self::watch::{Watch, WatchEvent};
use self::{kubectl::Kubectl, kubelets::Kubelets, pool::Permit, reader::Reader};
use crate::{Error, Metrics, Process, Result, Tools, redis::free_address, repository, watchdog::TempFolder};

/// Each process serves within seconds; on a busy machine it may take longer.
const START_WITHIN: Duration = Duration::from_mins(1);
const ETCD_SOCKET: &str = "etcd.sock";
const ETCD_DATA: &str = "etcd";
const PROXY_SOCKET: &str = "proxy.sock";
const READY: &[&str] = &["get", "--raw=/readyz"];
/// The addresses of Services.
const SINGLE_STACK: &str = "10.96.0.0/16";
const DUAL_STACK: &str = "10.96.0.0/16,fd00:96::/112";

/// Which processes of a control plane are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Components {
    /// etcd and the API server: enough for CRDs, RBAC and objects that no controller reads. Pods cannot be created,
    /// because no controller creates the service account that they need.
    ApiServer,
    /// Also the controller-manager: namespaces, service accounts, Deployments, garbage collection. No pod runs.
    Controllers,
    /// Also the scheduler and this many nodes `node-0`, `node-1`, ..., on which pods run. A pod is Ready at once. After a
    /// graceful deletion it stops at once, or after the whole seconds in its annotation `lab.redislease.io/stops-after`
    /// (`3s`): its status says that every container terminated, then the pod is removed. A forced deletion writes no
    /// status.
    Nodes(usize),
}

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

/// A running control plane. All its processes stop when it is dropped or its owner is killed.
#[derive(Debug)]
pub struct ControlPlane {
    // Processes stop in this order; the folder is removed last.
    kubelets: Option<Kubelets>,
    reader: Reader,
    agents: Vec<Process>,
    api_server: Process,
    etcd: Process,
    address: SocketAddr,
    kubectl: Kubectl,
    folder: TempFolder,
    is_used_up: AtomicBool,
    _permit: Permit,
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves; with [`Components::Nodes`], until a pod can be created and run.
    /// At most eight run in one process: another one waits until one of them stops.
    ///
    /// # Errors
    /// [`Error::MissingTool`] before `make tools`; [`Error::Exited`] or [`Error::NotReady`] with the end of the log
    /// of the process that did not come up; [`Error::LongFolder`] when TMPDIR is too long for sockets.
    pub fn start(components: Components) -> Result<Self> {
        Self::start_with(Permit::acquire()?, components, SINGLE_STACK)
    }

    /// The same with two address families for Services. A pod with the annotation `lab.redislease.io/dual-stack` also has an
    /// IPv6 address.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_dual_stack(components: Components) -> Result<Self> {
        Self::start_with(Permit::acquire()?, components, DUAL_STACK)
    }

    fn start_with(permit: Permit, components: Components, services: &str) -> Result<Self> {
        let tools = Tools::locate()?;
        let mut control_plane = Self::start_api(permit, &tools, None, services)?;
        if components != Components::ApiServer {
            control_plane.start_controllers(&tools, &[])?;
        }
        if let Components::Nodes(count) = components {
            control_plane.start_scheduler(&tools)?;
            control_plane.start_nodes(count)?;
        }
        if components != Components::ApiServer {
            control_plane.wait_for_default_account()?;
        }
        if matches!(components, Components::Nodes(1..)) {
            control_plane.wait_for(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=10s"])?;
        }
        Ok(control_plane)
    }

    /// Starts a control plane for real nodes and waits until a pod can be created.
    pub(crate) fn start_for(nodes: &RealNodes) -> Result<Self> {
        let tools = Tools::locate()?;
        let mut control_plane = Self::start_api(Permit::acquire()?, &tools, Some(nodes), SINGLE_STACK)?;
        let silence = flag("node-monitor-grace-period", format!("{}s", nodes.silence.as_secs()));
        control_plane.start_controllers(&tools, &[silence, flag("node-monitor-period", "2s")])?;
        control_plane.start_scheduler(&tools)?;
        control_plane.wait_for_default_account()?;
        Ok(control_plane)
    }

    fn start_api(permit: Permit, tools: &Tools, nodes: Option<&RealNodes>, services: &str) -> Result<Self> {
        let folder = TempFolder::new("control-plane")?;
        fits_sockets(folder.path())?;
        certificates::write(folder.path())?;
        let etcd = start_etcd(tools, folder.path())?;
        let admin = access::kubeconfig(folder.path(), access::ADMIN);
        let kubectl = Kubectl::new(&tools.kubectl, admin, folder.path());
        let (api_server, address) = start_api_server(tools, folder.path(), &kubectl, nodes, services)?;
        let reader = Reader::start(tools, folder.path())?;
        Ok(Self {
            kubelets: None,
            reader,
            agents: Vec::new(),
            api_server,
            etcd,
            address,
            kubectl,
            folder,
            is_used_up: AtomicBool::new(false),
            _permit: permit,
        })
    }

    /// The API server refuses pods until their namespace has its service account.
    fn wait_for_default_account(&self) -> Result<()> {
        self.wait_for(&["get", "serviceaccount", "default", "--namespace=default"])
    }

    /// The kubeconfig of the kubelet of a real node.
    pub(crate) fn kubelet_kubeconfig(&self, node: &str) -> PathBuf {
        access::kubeconfig(self.folder.path(), &access::kubelet(node))
    }

    /// The process kube-controller-manager: to pause, resume or kill it; `None` without controllers.
    pub fn controllers(&self) -> Option<&Process> {
        self.not_again();
        self.agents.first()
    }

    /// Starts a second controller of EndpointSlices, which does not know of the one in [`controllers`](Self::controllers):
    /// the two work as when a paused leader wakes up after another has taken over.
    ///
    /// # Errors
    /// [`Error::MissingTool`] before `make tools`, or [`Error::Io`] when no process can be made.
    pub fn start_endpoint_controller(&self) -> Result<Process> {
        let only = flag("controllers", "endpointslice-controller");
        start_controller_manager(&Tools::locate()?, self.folder.path(), "endpointslice-controller", &[only])
    }

    fn start_controllers(&mut self, tools: &Tools, more: &[String]) -> Result<()> {
        let started = start_controller_manager(tools, self.folder.path(), "kube-controller-manager", more)?;
        self.agents.push(started);
        Ok(())
    }

    fn start_scheduler(&mut self, tools: &Tools) -> Result<()> {
        let folder = self.folder.path();
        self.agents.push(start(
            "kube-scheduler",
            &tools.kube_scheduler,
            folder,
            &[
                flag("kubeconfig", access::kubeconfig(folder, access::SCHEDULER).display()),
                flag("leader-elect", false),
                flag("secure-port", 0),
            ],
        )?);
        Ok(())
    }

    fn start_nodes(&mut self, count: usize) -> Result<()> {
        let names: Vec<_> = (0..count).map(|index| format!("node-{index}")).collect();
        let node = |name| {
            let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        };
        let nodes: Vec<_> = names.iter().map(node).collect();
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string())?;
        self.kubelets = Some(Kubelets::start(self.kubeconfig().to_owned(), &names)?);
        Ok(())
    }

    /// The address of the API server. It stays the same when the API server restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process of the API server: to pause, resume or kill it. After a kill, call [`Process::start`] and
    /// [`wait_ready`](Self::wait_ready).
    pub fn api_server(&self) -> &Process {
        self.not_again();
        &self.api_server
    }

    /// The process of etcd.
    pub fn etcd(&self) -> &Process {
        self.not_again();
        &self.etcd
    }

    /// Waits until the API server answers that it is ready.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::NotReady`] with the end of its log.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait_for(READY)
    }

    /// The kubeconfig of an administrator (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        self.kubectl.kubeconfig()
    }

    /// Makes a kubeconfig with a token of a service account, valid for a day. The account must exist.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's answer.
    pub fn service_account_kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.kubectl(&["create", "token", account, "--namespace", namespace, "--duration=24h"])?;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        access::write_kubeconfig(self.folder.path(), self.address, &user, namespace, token.trim())
    }

    /// Reads one object or list from its path in the API, for example `/api/v1/namespaces/default/pods`; `None` when it
    /// does not exist. It takes a few milliseconds, and five seconds when the API server hangs.
    ///
    /// # Errors
    /// [`Error::Answer`] when the API server does not answer, or with another refusal.
    pub fn get(&self, path: &str) -> Result<Option<Value>> {
        self.reader.get(path)
    }

    /// The API server's page /metrics.
    ///
    /// # Errors
    /// [`Error::Answer`] when the API server does not answer.
    pub fn metrics(&self) -> Result<Metrics> {
        self.reader.page("/metrics").map(|page| Metrics::read_now(page.unwrap_or_default()))
    }

    /// Runs kubectl as the administrator (or as `--kubeconfig` among the arguments says) and returns what it printed.
    /// It has no deadline of its own: give `--request-timeout` where the API server may hang.
    ///
    /// # Errors
    /// [`Error::Command`] with its standard error.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with_input(args, "")
    }

    /// Applies a manifest in YAML or JSON on the server's side.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl_with_input(&["apply", "--server-side", "--filename=-"], manifest).map(drop)
    }

    /// Runs kubectl with something on its standard input.
    ///
    /// # Errors
    /// [`Error::Command`] with its standard error.
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        self.kubectl.run(args, input)
    }

    /// Installs the definitions of RedisLease and RedisQuorum and waits until objects of both can be stored.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn define(&self) -> Result<()> {
        let definitions = repository().join("crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "--filename", &definitions])?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
        // kubectl waits while the API server prepares the storage of a new kind.
        self.kubectl(&["get", "redisleases,redisquorums", "--all-namespaces"]).map(drop)
    }

    /// Shows objects of one kind in a namespace as they are, and from then on every change, until it is dropped.
    ///
    /// # Errors
    /// [`Error::Io`] when no process can be made.
    pub fn watch(&self, kind: &str, namespace: &str) -> Result<Watch> {
        Watch::start(&self.kubectl, self.folder.path(), kind, namespace)
    }

    /// Repeats a kubectl command until it succeeds.
    fn wait_for(&self, args: &[&str]) -> Result<()> {
        wait_for(&self.api_server, &self.kubectl, args)
    }
}

fn wait_for(api_server: &Process, kubectl: &Kubectl, args: &[&str]) -> Result<()> {
    let args = [args, &["--request-timeout=5s"]].concat();
    api_server.wait_until(START_WITHIN, || kubectl.run(&args, "").map(drop).map_err(|error| error.to_string()))
}

/// With a longer path a server starts, and no client can connect to its socket.
fn fits_sockets(folder: &Path) -> Result<()> {
    /// The kernel's field has 108 bytes, the terminating zero included.
    const MOST: usize = 107;
    let length = [ETCD_SOCKET, PROXY_SOCKET].map(|name| folder.join(name).as_os_str().len());
    match length.into_iter().max() {
        Some(length) if length > MOST => Err(Error::LongFolder { folder: folder.to_owned(), excess: length - MOST }),
        _ => Ok(()),
    }
}

fn start_etcd(tools: &Tools, folder: &Path) -> Result<Process> {
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
    listens(&etcd, &socket)?;
    Ok(etcd)
}

/// An API server that starts before etcd waits a second before it tries again.
fn listens(etcd: &Process, socket: &Path) -> Result<()> {
    etcd.wait_until(START_WITHIN, || {
        if socket.exists() { Ok(()) } else { Err(format!("there is no {}", socket.display())) }
    })
}

fn start_api_server(
    tools: &Tools,
    folder: &Path,
    kubectl: &Kubectl,
    nodes: Option<&RealNodes>,
    services: &str,
) -> Result<(Process, SocketAddr)> {
    let mut tries = 5;
    loop {
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
        match wait_for(&api_server, kubectl, READY) {
            Err(error) if error.is_address_in_use() && tries > 1 => tries -= 1,
            other => return other.map(|()| (api_server, address)),
        }
    }
}

fn start_controller_manager(tools: &Tools, folder: &Path, name: &str, more: &[String]) -> Result<Process> {
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

fn start(name: &str, program: &Path, folder: &Path, flags: &[String]) -> Result<Process> {
    let process = Process::new(name, program, folder.join(format!("{name}.log"))).args(flags);
    process.start()?;
    Ok(process)
}

/// The time as Kubernetes writes it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%FT%TZ").to_string()
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

#[cfg(test)]
mod tests {
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
