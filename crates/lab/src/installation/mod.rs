//! RedisLease installed on this machine: a control plane, the Redis servers of one quorum, the CRDs, the operator's rights
//! as the chart has them, and any number of operator processes with the operator's service account.
//!
//! ```no_run
//! # fn main() -> redislease_lab::Result<()> {
//! use std::time::Duration;
//! use redislease_lab::{Installation, InstallationOptions};
//! use serde_json::json;
//!
//! let installation = Installation::start(&InstallationOptions::new("target/debug/redislease"))?;
//! let operator = installation.start_operator("operator-0", &[])?;
//! installation.deployment("shop", "billing", 3)?;
//! let lease = installation.lease("shop", "billing", &json!({"leaseDuration": "10s"}))?;
//! let first = lease.wait("a holder", Duration::from_secs(30), |lease| lease.is_active())?;
//! operator.restart()?;
//! installation.control_plane().kubectl(&["delete", "pod", "-n", "shop", first.holder().unwrap_or_default()])?;
//! lease.wait("another holder", Duration::from_secs(5), |lease| {
//!     lease.is_active() && lease.holder() != first.holder() && lease.token() > first.token()
//! })?;
//! # Ok(())
//! # }
//! ```

mod deadline;
mod events;
mod lease;
mod metrics;
mod network;
mod operator;
mod quorum;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use self::network::Network;
pub use self::{
    deadline::Deadline,
    events::Event,
    lease::{Condition, Lease, LeaseState, Role},
    metrics::Metrics,
    network::Peer,
    operator::Operator,
    quorum::QuorumState,
};
use crate::{
    Components, ControlPlane, Error, Helm, PooledControlPlane, Proxy, RELEASE, RedisOptions, RedisServer, Result,
    SuspendLibrary, read, wait, watchdog::TempFolder,
};

/// The namespace of the operators, their RedisQuorum and its secret.
pub const SYSTEM: &str = "redislease-system";
/// The operators' service account, as the chart names it.
const ACCOUNT: &str = "redislease-operator";
/// The RedisQuorum that a lease uses when it names none.
pub(crate) const QUORUM: &str = "default";
const SECRET: &str = "redis-password";

/// The settings of an [`Installation`].
#[allow(clippy::struct_excessive_bools, reason = "each is an independent setting")]
#[derive(Debug, Clone)]
pub struct InstallationOptions {
    /// The `redislease` binary. In integration tests of the root package: `env!("CARGO_BIN_EXE_redislease")`.
    pub binary: PathBuf,
    /// The operators' `--cluster-name`.
    pub cluster: String,
    /// The number of Redis servers.
    pub redis_servers: usize,
    /// The password of the Redis servers; the operators read it from a secret.
    pub password: Option<String>,
    /// Fields of the RedisQuorum's spec. They replace the defaults of the lab: `maxLeaseDuration` is 10 s there, which is
    /// also how long the first election waits.
    pub quorum: Value,
    /// The number of nodes for pods.
    pub nodes: usize,
    /// Whether operators reach the Redis servers and the API server through proxies, as
    /// [`Installation::cut_off`] needs.
    pub proxied: bool,
    /// Whether each operator runs on a simulated machine of its own, as [`Operator::suspend`] needs.
    pub suspendable: bool,
    /// The namespaces that operators watch, and in which alone they have rights; none means all.
    pub watch_namespaces: Vec<String>,
    /// Whether operators may remove scheduling gates from pods and delete pods that they have started.
    pub allow_scheduling_gate: bool,
    /// Whether operators may change the replicas of Deployments and StatefulSets.
    pub allow_scale: bool,
    /// Whether operators may suspend and resume CronJobs.
    pub allow_suspend: bool,
    /// Whether operators create leases for annotated workloads.
    pub annotations: bool,
}

impl InstallationOptions {
    /// Three Redis servers without a password, three nodes, a longest lease of 10 s.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            cluster: "lab".to_owned(),
            redis_servers: 3,
            password: None,
            quorum: json!({}),
            nodes: 3,
            proxied: false,
            suspendable: false,
            watch_namespaces: Vec::new(),
            allow_scheduling_gate: false,
            allow_scale: false,
            allow_suspend: false,
            annotations: true,
        }
    }

    /// The entry of the chart's `quorums` for these Redis servers.
    fn chart_quorum(&self, addresses: &[SocketAddr]) -> Value {
        let mut quorum = json!({"name": QUORUM, "nodes": nodes(addresses.iter().copied()), "maxLeaseDuration": "10s"});
        overlay(&mut quorum, &self.quorum);
        quorum
    }

    /// The operators' service account, roles and admission policy, as the chart has them.
    fn rights(&self) -> Result<String> {
        if self.has_rights_of_defaults() {
            return Ok(rights_of_defaults());
        }
        let watched = format!("--set=watchNamespaces={{{}}}", self.watch_namespaces.join(","));
        let mut args = vec!["--show-only=templates/serviceaccount.yaml", "--show-only=templates/rbac.yaml"];
        args.push("--show-only=templates/admission-policy.yaml");
        if !self.watch_namespaces.is_empty() {
            args.push(&watched);
        }
        for (allowed, value) in [
            (self.allow_scheduling_gate, "--set=rbac.allowSchedulingGate=true"),
            (self.allow_scale, "--set=rbac.allowScale=true"),
            (self.allow_suspend, "--set=rbac.allowSuspend=true"),
            (!self.annotations, "--set=annotations.enabled=false"),
        ] {
            args.extend(allowed.then_some(value));
        }
        Helm::new()?.template(&args)
    }

    const fn has_rights_of_defaults(&self) -> bool {
        let allowed = self.allow_scheduling_gate || self.allow_scale || self.allow_suspend;
        self.watch_namespaces.is_empty() && self.annotations && !allowed
    }

    /// Starts the Redis servers. Several installations can share them.
    ///
    /// # Errors
    /// As [`RedisServer::start_with`].
    pub fn start_redis(&self) -> Result<Vec<Arc<RedisServer>>> {
        let options = RedisOptions { password: self.password.clone(), ..RedisOptions::default() };
        (0..self.redis_servers).map(|_| RedisServer::start_with(&options).map(Arc::new)).collect()
    }
}

/// The rights in the manifests for those without Helm, which are generated from the chart: the demo needs no Helm.
fn rights_of_defaults() -> String {
    let is_right = |object: &&str| {
        let kind = object.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap_or_default();
        kind == "ServiceAccount" || kind.contains("Role") || kind.starts_with("ValidatingAdmissionPolicy")
    };
    read("deploy/redislease.yaml").split("\n---\n").filter(is_right).collect::<Vec<_>>().join("\n---\n")
}

/// A control plane with RedisLease installed, and the Redis servers of its quorum. Everything stops when it is dropped.
#[derive(Debug)]
pub struct Installation {
    options: InstallationOptions,
    kubeconfig: PathBuf,
    logs: Mutex<Vec<PathBuf>>,
    // Declared before the servers, so that it stops first.
    control_plane: PooledControlPlane,
    redis: Vec<Arc<RedisServer>>,
    network: Option<Network>,
    suspend: Option<SuspendLibrary>,
    folder: TempFolder,
}

impl Installation {
    /// Starts the Redis servers and a control plane, and installs what operators need. It starts no operator.
    ///
    /// # Errors
    /// The error of the part that did not start.
    pub fn start(options: &InstallationOptions) -> Result<Self> {
        let redis = options.start_redis()?;
        Self::install(options, ControlPlane::start(Components::Nodes(options.nodes))?, redis)
    }

    /// Installs on servers that already run, for example as a second cluster on the same Redis servers.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn install(
        options: &InstallationOptions,
        control_plane: impl Into<PooledControlPlane>,
        redis: Vec<Arc<RedisServer>>,
    ) -> Result<Self> {
        let control_plane = control_plane.into();
        control_plane.apply(&namespace(SYSTEM))?;
        control_plane.define()?;
        for watched in &options.watch_namespaces {
            control_plane.apply(&namespace(watched))?;
        }
        control_plane.apply(&options.rights()?)?;
        let kubeconfig = control_plane.service_account_kubeconfig(SYSTEM, ACCOUNT)?;
        let network = options.proxied.then(|| Network::before(control_plane.address(), &redis)).transpose()?;
        let folder = TempFolder::new("operators")?;
        let suspend = options.suspendable.then(|| SuspendLibrary::compile(folder.path())).transpose()?;
        let mut installation = Self {
            options: options.clone(),
            kubeconfig,
            logs: Mutex::default(),
            control_plane,
            redis,
            network,
            suspend,
            folder,
        };
        if let Some(network) = &installation.network {
            installation.kubeconfig = installation.kubeconfig_through(network.api_server(), "proxied")?;
        }
        installation.apply_quorum()?;
        Ok(installation)
    }

    /// Installs the chart with Helm on servers that already run, with more arguments of `helm install`. The operators of
    /// the release run as simulated pods; [`start_operator`](Self::start_operator) starts real ones with the same rights.
    ///
    /// # Errors
    /// [`Error::Command`] with Helm's message.
    pub fn install_chart(
        options: &InstallationOptions,
        control_plane: ControlPlane,
        redis: Vec<Arc<RedisServer>>,
        args: &[&str],
    ) -> Result<Self> {
        let addresses: Vec<SocketAddr> = redis.iter().map(|server| server.address()).collect();
        let quorum = format!("--set-json=quorums=[{}]", options.chart_quorum(&addresses));
        let cluster = format!("--set=cluster.name={}", options.cluster);
        let helm = Helm::with_kubeconfig(control_plane.kubeconfig())?;
        let install = ["install", RELEASE, &Helm::chart(), "--namespace", SYSTEM, &cluster, &quorum];
        helm.run(&[&install, args].concat())?;
        Self::of_release(options, control_plane, redis)
    }

    /// The installation that Helm has made from the chart, with the release name [`RELEASE`].
    ///
    /// # Errors
    /// [`Error::Command`] when there is no such release.
    pub fn of_release(
        options: &InstallationOptions,
        control_plane: ControlPlane,
        redis: Vec<Arc<RedisServer>>,
    ) -> Result<Self> {
        let kubeconfig = control_plane.service_account_kubeconfig(SYSTEM, ACCOUNT)?;
        Ok(Self {
            options: options.clone(),
            kubeconfig,
            logs: Mutex::default(),
            control_plane: control_plane.into(),
            redis,
            network: None,
            suspend: None,
            folder: TempFolder::new("operators")?,
        })
    }

    fn apply_quorum(&self) -> Result<()> {
        let addresses: Vec<SocketAddr> = match &self.network {
            Some(network) => network.redis().collect(),
            None => self.redis.iter().map(|server| server.address()).collect(),
        };
        let mut spec = json!({"nodes": nodes(addresses), "maxLeaseDuration": "10s"});
        if let Some(password) = &self.options.password {
            spec["auth"] = json!({"secretRef": {"name": SECRET}});
            self.apply(&json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": SECRET, "namespace": SYSTEM},
                "stringData": {"password": password},
            }))?;
        }
        overlay(&mut spec, &self.options.quorum);
        self.apply(&json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisQuorum",
            "metadata": {"name": QUORUM, "namespace": SYSTEM},
            "spec": spec,
        }))
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The Redis servers of the quorum. The first is the node `redis-0`.
    pub fn redis(&self) -> &[Arc<RedisServer>] {
        &self.redis
    }

    /// The kubeconfig of the operators' service account.
    pub fn operator_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Starts an operator and waits until it serves /metrics; it may not be ready yet. `instance` is its unique name, and
    /// `args` are additional flags.
    ///
    /// # Errors
    /// [`Error::Exited`] with the last lines of its log.
    pub fn start_operator(&self, instance: &str, args: &[&str]) -> Result<Operator> {
        self.start_operator_as(&self.kubeconfig, instance, args)
    }

    /// Starts an operator that connects to the API server only through this proxy.
    ///
    /// # Errors
    /// [`Error::Exited`] with the last lines of its log.
    pub fn start_operator_behind(&self, proxy: &Proxy, instance: &str) -> Result<Operator> {
        self.start_operator_as(&self.kubeconfig_through(proxy.address(), instance)?, instance, &[])
    }

    /// Starts replicas of one operator: `operator-0`, `operator-1`, ... Does not wait until they are ready.
    ///
    /// # Errors
    /// [`Error::Exited`] with the last lines of the log of the one that did not start.
    pub fn start_replicas(&self, count: usize) -> Result<Vec<Operator>> {
        (0..count).map(|number| self.start_operator(&format!("operator-{number}"), &[])).collect()
    }

    /// The operators' kubeconfig, with another address for the API server.
    fn kubeconfig_through(&self, address: SocketAddr, name: &str) -> Result<PathBuf> {
        let direct = fs::read_to_string(&self.kubeconfig).map_err(Error::io("read the operators' kubeconfig"))?;
        let through = direct.replace(&self.control_plane.address().to_string(), &address.to_string());
        let kubeconfig = self.folder.path().join(format!("{name}.kubeconfig"));
        fs::write(&kubeconfig, through).map_err(Error::io(format!("write the kubeconfig {name}")))?;
        Ok(kubeconfig)
    }

    fn start_operator_as(&self, kubeconfig: &Path, instance: &str, args: &[&str]) -> Result<Operator> {
        let log = self.folder.path().join(format!("{instance}.log"));
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if !logs.contains(&log) {
            logs.push(log.clone());
        }
        drop(logs);
        let machine = self.suspend.as_ref().map(|library| library.machine(instance)).transpose()?;
        Operator::start(&self.options, instance, kubeconfig, log, args, machine)
    }

    /// Applies an object or a list of objects.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn apply(&self, object: &Value) -> Result<()> {
        self.control_plane.apply(&object.to_string())
    }

    /// Applies a Deployment and its namespace, and waits until all pods are Ready. The pods have the label `app: <name>`.
    /// A second call with another number of replicas scales it.
    ///
    /// # Errors
    /// [`Error::Command`] when the API server refuses it, or when it is not Ready within a minute.
    pub fn deployment(&self, in_namespace: &str, name: &str, replicas: usize) -> Result<()> {
        self.control_plane.apply(&namespace(in_namespace))?;
        let labels = json!({"app": name});
        self.apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": in_namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "none"}]},
                },
            },
        }))?;
        let deployment = format!("deployment/{name}");
        self.control_plane
            .kubectl(&["rollout", "status", &deployment, "--namespace", in_namespace, "--timeout=60s"])
            .map(drop)
    }

    /// Applies a RedisLease and its namespace. The fields of `spec` replace the defaults of the lab: the candidates are the
    /// pods of the Deployment with the same name, leaseDuration 10s, renewInterval 2s, gracePeriod 3s. A null removes a
    /// default.
    ///
    /// # Errors
    /// [`Error::Command`] with the message of the rule that refuses it.
    pub fn lease(&self, in_namespace: &str, name: &str, spec: &Value) -> Result<Lease<'_>> {
        self.control_plane.apply(&namespace(in_namespace))?;
        let mut whole = json!({
            "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            "leaseDuration": "10s",
            "renewInterval": "2s",
            "gracePeriod": "3s",
        });
        overlay(&mut whole, spec);
        self.apply(&json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisLease",
            "metadata": {"name": name, "namespace": in_namespace},
            "spec": whole,
        }))?;
        Ok(self.find_lease(in_namespace, name))
    }

    /// A RedisLease that exists already.
    pub fn find_lease(&self, namespace: &str, name: &str) -> Lease<'_> {
        Lease::new(self, namespace, name)
    }

    /// Polls until `probe` returns a value.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with the last error of `probe` and the last lines of every operator's log.
    pub fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        probe: impl FnMut() -> std::result::Result<T, String>,
    ) -> Result<T> {
        wait::poll(within, probe).map_err(|last| Error::NotInTime {
            what: what.to_owned(),
            waited: within,
            last,
            context: self.log_tails(),
        })
    }

    /// The last lines of every operator's log, with the name of the file.
    pub fn log_tails(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = |log: &PathBuf| format!("--- {}\n{}\n", log.display(), wait::tail(log));
        logs.iter().map(tail).collect()
    }
}

/// The nodes of a RedisQuorum on these servers.
pub fn nodes(addresses: impl IntoIterator<Item = SocketAddr>) -> Value {
    let node = |(index, address): (usize, SocketAddr)| json!({"name": node_name(index), "address": address});
    addresses.into_iter().enumerate().map(node).collect()
}

/// The name of a Redis node, by the index of its server.
pub(crate) fn node_name(index: usize) -> String {
    format!("redis-{index}")
}

fn namespace(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string()
}

/// Replaces fields of `base` by those of `over`; a null removes the field.
fn overlay(base: &mut Value, over: &Value) {
    for (field, value) in over.as_object().into_iter().flatten() {
        base[field] = value.clone();
    }
    if let Some(fields) = base.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}
