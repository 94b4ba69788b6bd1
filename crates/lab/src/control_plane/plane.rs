//! A running control plane.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use kube::Client;
use serde_json::{Value, json};

use super::servers::{
    READY, RealNodes, SINGLE_STACK, fits_sockets, flag, start, start_api_server, start_controller_manager, start_etcd,
    wait_for,
};
use super::{access, certificates, kubectl::Kubectl, kubelets::Kubelets, reader::Reader, watch::Watch};
use crate::{Metrics, Process, Result, Tools, api::connect, repository, watchdog::TempFolder};

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

/// The permission to run one control plane. Dropping it calls its function, which makes room for another one.
#[derive(Debug)]
pub(super) struct Permit(pub(super) fn());

impl Drop for Permit {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A running control plane. All its processes stop when it is dropped or its owner is killed.
#[derive(Debug)]
pub struct ControlPlane {
    // Processes stop in this order; the folder is removed last.
    pub(super) kubelets: Option<Kubelets>,
    reader: Reader,
    pub(super) agents: Vec<Process>,
    pub(super) api_server: Process,
    pub(super) etcd: Process,
    address: SocketAddr,
    kubectl: Kubectl,
    pub(super) folder: TempFolder,
    is_used_up: AtomicBool,
    is_defined: AtomicBool,
    _permit: Permit,
}

impl ControlPlane {
    pub(super) fn start_with(permit: Permit, components: Components, services: &str) -> Result<Self> {
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

    /// A control plane for real nodes, on which a pod can be created.
    pub(super) fn start_real(permit: Permit, nodes: &RealNodes) -> Result<Self> {
        let tools = Tools::locate()?;
        let mut control_plane = Self::start_api(permit, &tools, Some(nodes), SINGLE_STACK)?;
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
            is_defined: AtomicBool::new(false),
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
    /// [`Error::MissingTool`](crate::Error::MissingTool) before `make tools`, or [`Error::Io`](crate::Error::Io) when no process can be made.
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
        self.apply_object(&json!({"apiVersion": "v1", "kind": "List", "items": nodes}))?;
        self.kubelets = Some(Kubelets::start(self.kubeconfig().to_owned(), &names)?);
        Ok(())
    }

    /// The tests after this one get another control plane: for a test that changes what all tests share, for example a CRD.
    pub fn not_again(&self) {
        self.is_used_up.store(true, Ordering::Relaxed);
    }

    /// Whether [`not_again`](Self::not_again) was called.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::Relaxed)
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

    /// Waits until the API server answers that it is ready.
    ///
    /// # Errors
    /// [`Error::Exited`](crate::Error::Exited) or [`Error::NotReady`](crate::Error::NotReady) with the end of its log.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait_for(READY)
    }

    /// The kubeconfig of an administrator (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        self.kubectl.kubeconfig()
    }

    /// A client of the administrator. It repeats no call by itself.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub async fn client(&self) -> Result<Client> {
        connect(self.kubeconfig()).await
    }

    /// Makes a kubeconfig with a token of a service account, valid for a day. The account must exist.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's answer.
    pub fn service_account_kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.kubectl(&["create", "token", account, "--namespace", namespace, "--duration=24h"])?;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        access::write_kubeconfig(self.folder.path(), self.address, &user, namespace, token.trim())
    }

    /// Reads one object or list from its path in the API, for example `/api/v1/namespaces/default/pods`; `None` when it
    /// does not exist. It takes a few milliseconds, and five seconds when the API server hangs.
    ///
    /// # Errors
    /// [`Error::Answer`](crate::Error::Answer) when the API server does not answer, or with another refusal.
    pub fn get(&self, path: &str) -> Result<Option<Value>> {
        self.reader.get(path)
    }

    /// The API server's page /metrics.
    ///
    /// # Errors
    /// [`Error::Answer`](crate::Error::Answer) when the API server does not answer.
    pub fn metrics(&self) -> Result<Metrics> {
        self.reader.page("/metrics").map(|page| Metrics::read_now(page.unwrap_or_default()))
    }

    /// Runs kubectl as the administrator (or as `--kubeconfig` among the arguments says) and returns what it printed.
    /// It has no deadline of its own: give `--request-timeout` where the API server may hang.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with its standard error.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with_input(args, "")
    }

    /// Applies a manifest in YAML or JSON on the server's side.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's refusal.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl_with_input(&["apply", "--server-side", "--filename=-"], manifest).map(drop)
    }

    /// Applies an object, or a list of objects, on the server's side.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's refusal.
    pub fn apply_object(&self, object: &Value) -> Result<()> {
        if let Some(items) = object["items"].as_array() {
            return items.iter().try_for_each(|item| self.apply_object(item));
        }
        // To start kubectl takes longer than what it does.
        if self.reader.apply(object) { Ok(()) } else { self.apply(&object.to_string()) }
    }

    /// Runs kubectl with something on its standard input.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with its standard error.
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        self.kubectl.run(args, input)
    }

    /// Installs the definitions of RedisLease and RedisQuorum and waits until objects of both can be stored.
    ///
    /// # Errors
    /// [`Error::Command`](crate::Error::Command) with the API server's refusal.
    pub fn define(&self) -> Result<()> {
        // By the test before, which has used the same control plane.
        if self.is_defined.load(Ordering::Relaxed) {
            return Ok(());
        }
        let definitions = repository().join("crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "--filename", &definitions])?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
        // A busy API server that prepares the storage of a new kind ends a request after a minute.
        self.wait_for(&["get", "redisleases,redisquorums", "--all-namespaces"])?;
        self.is_defined.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Shows objects of one kind in a namespace as they are, and from then on every change, until it is dropped.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when no process can be made.
    pub fn watch(&self, kind: &str, namespace: &str) -> Result<Watch> {
        Watch::start(&self.kubectl, self.folder.path(), kind, namespace)
    }

    /// Repeats a kubectl command until it succeeds.
    fn wait_for(&self, args: &[&str]) -> Result<()> {
        wait_for(&self.api_server, &self.kubectl, args)
    }
}
