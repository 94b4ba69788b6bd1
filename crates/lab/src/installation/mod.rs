//! All of RedisLease on this machine: a control plane, the Redis servers of one quorum, the definitions, the operator's
//! rights, and as many operators as asked for, each the real binary under its own service account.
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
mod operator;
mod quorum;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

pub use self::{
    deadline::Deadline,
    events::Event,
    lease::{Condition, Lease, LeaseState, Role},
    metrics::Metrics,
    operator::Operator,
    quorum::QuorumState,
};
use crate::{
    Components, ControlPlane, Error, Gate, RedisOptions, RedisServer, Result, repository, wait, watchdog::Scratch,
};

/// Where operators, their RedisQuorum and its secret live.
pub const SYSTEM: &str = "redislease-system";
/// The service account of the role file.
const ACCOUNT: &str = "redislease-operator";
/// The RedisQuorum that leases name when they name none.
pub(crate) const QUORUM: &str = "default";
const SECRET: &str = "redis-password";

/// What an [`Installation`] is made of.
#[derive(Debug, Clone)]
pub struct InstallationOptions {
    /// The `redislease` binary. In integration tests of the root package: `env!("CARGO_BIN_EXE_redislease")`.
    pub binary: PathBuf,
    /// How the operators are told their cluster is called.
    pub cluster: String,
    /// How many Redis servers.
    pub redis_servers: usize,
    /// What the servers ask for; the operators get it in a secret.
    pub password: Option<String>,
    /// Fields of the RedisQuorum's spec, over the defaults here: a longest lease of 10 s, which is also what the first
    /// election waits for.
    pub quorum: Value,
    /// How many nodes pods run on.
    pub nodes: usize,
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
        }
    }

    /// Starts the servers, for one or more installations.
    ///
    /// # Errors
    /// As [`RedisServer::start_with`].
    pub fn start_redis(&self) -> Result<Vec<Arc<RedisServer>>> {
        let options = RedisOptions { password: self.password.clone(), ..RedisOptions::default() };
        (0..self.redis_servers).map(|_| RedisServer::start_with(&options).map(Arc::new)).collect()
    }
}

/// A control plane with RedisLease installed on it, and the servers of its quorum. All of it stops when it is dropped.
#[derive(Debug)]
pub struct Installation {
    options: InstallationOptions,
    kubeconfig: PathBuf,
    logs: Mutex<Vec<PathBuf>>,
    // Before the servers, so that what speaks to them is gone first.
    control_plane: ControlPlane,
    redis: Vec<Arc<RedisServer>>,
    folder: Scratch,
}

impl Installation {
    /// Starts servers and control plane, and installs what operators need. No operator runs yet.
    ///
    /// # Errors
    /// That of the part that did not come up.
    pub fn start(options: &InstallationOptions) -> Result<Self> {
        let redis = options.start_redis()?;
        Self::install(options, ControlPlane::start(Components::Nodes(options.nodes))?, redis)
    }

    /// Installs on what runs already: a second cluster on the same Redis servers, for example.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn install(
        options: &InstallationOptions,
        control_plane: ControlPlane,
        redis: Vec<Arc<RedisServer>>,
    ) -> Result<Self> {
        control_plane.apply(&namespace(SYSTEM))?;
        control_plane.define()?;
        let rights = repository().join("charts/redislease/files/operator-rbac.yaml").display().to_string();
        control_plane.kubectl(&["apply", "--server-side", "--filename", &rights])?;
        let kubeconfig = control_plane.service_account_kubeconfig(SYSTEM, ACCOUNT)?;
        let installation = Self {
            options: options.clone(),
            kubeconfig,
            logs: Mutex::default(),
            control_plane,
            redis,
            folder: Scratch::new("operators")?,
        };
        installation.apply_quorum()?;
        Ok(installation)
    }

    fn apply_quorum(&self) -> Result<()> {
        let nodes: Vec<_> = self
            .redis
            .iter()
            .enumerate()
            .map(|(index, server)| json!({"name": node_name(index), "address": server.address().to_string()}))
            .collect();
        let mut spec = json!({"nodes": nodes, "maxLeaseDuration": "10s"});
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

    /// The control plane, for kubectl and for what befalls pods, nodes and the API server.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The servers of the quorum. The first is the node `redis-0`.
    pub fn redis(&self) -> &[Arc<RedisServer>] {
        &self.redis
    }

    /// The kubeconfig of the operators' service account.
    pub fn operator_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Starts an operator and waits until it serves /metrics; it is not ready yet. `instance` is its name, of which
    /// there is one at a time; `args` are more flags.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn start_operator(&self, instance: &str, args: &[&str]) -> Result<Operator> {
        self.start_operator_as(&self.kubeconfig, instance, args)
    }

    /// The same, for an operator that reaches the API server through this gate alone.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn start_operator_behind(&self, gate: &Gate, instance: &str) -> Result<Operator> {
        let direct = fs::read_to_string(&self.kubeconfig).map_err(Error::io("read the operators' kubeconfig"))?;
        let through = direct.replace(&self.control_plane.address().to_string(), &gate.address().to_string());
        let kubeconfig = self.folder.path().join(format!("{instance}.kubeconfig"));
        fs::write(&kubeconfig, through).map_err(Error::io(format!("write the kubeconfig of {instance}")))?;
        self.start_operator_as(&kubeconfig, instance, &[])
    }

    fn start_operator_as(&self, kubeconfig: &Path, instance: &str, args: &[&str]) -> Result<Operator> {
        let log = self.folder.path().join(format!("{instance}.log"));
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if !logs.contains(&log) {
            logs.push(log.clone());
        }
        drop(logs);
        Operator::start(&self.options, instance, kubeconfig, log, args)
    }

    /// Applies an object, or a whole list of them.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn apply(&self, object: &Value) -> Result<()> {
        self.control_plane.apply(&object.to_string())
    }

    /// Makes a Deployment (and its namespace) whose pods carry the label `app: <name>`, and waits until all are Ready.
    /// Applied again with another number of replicas, it is scaled.
    ///
    /// # Errors
    /// [`Error::Command`] when it is refused or not Ready within a minute.
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

    /// Applies a RedisLease (and its namespace). `spec` goes over the defaults here: the pods of the Deployment of the
    /// same name, leaseDuration 10s, renewInterval 2s, gracePeriod 3s; null takes a default away.
    ///
    /// # Errors
    /// [`Error::Command`] with the sentence of the rule that refuses it.
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

    /// A RedisLease that was applied otherwise.
    pub fn find_lease(&self, namespace: &str, name: &str) -> Lease<'_> {
        Lease::new(self, namespace, name)
    }

    /// Polls until `probe` gives a value.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with what `probe` last said instead and the end of every operator's log.
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

    /// The end of every operator's log, under its name.
    pub fn log_tails(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = |log: &PathBuf| format!("--- {}\n{}\n", log.display(), wait::tail(log));
        logs.iter().map(tail).collect()
    }
}

/// The name of a node of the quorum by its place among the servers.
pub(crate) fn node_name(index: usize) -> String {
    format!("redis-{index}")
}

fn namespace(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string()
}

/// Puts the fields of `over` in the place of those of `base`; null takes a field away.
fn overlay(base: &mut Value, over: &Value) {
    for (field, value) in over.as_object().into_iter().flatten() {
        base[field] = value.clone();
    }
    if let Some(fields) = base.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}
