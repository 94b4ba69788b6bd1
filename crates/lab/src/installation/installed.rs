//! A control plane with RedisLease installed.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use super::network::{Network, Peer};
use super::operator::Operator;
use super::options::{ACCOUNT, InstallationOptions, QUORUM, SECRET, namespace, nodes, overlay, redis_quorum};
use super::workload::workload;
use crate::{
    Components, ControlPlane, Cut, Error, Helm, PooledControlPlane, Proxy, RELEASE, RedisServer, Result, SYSTEM,
    SuspendLibrary, wait, watchdog::TempFolder,
};

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
        control_plane.apply_object(&namespace(SYSTEM))?;
        control_plane.define()?;
        for watched in &options.watch_namespaces {
            control_plane.apply_object(&namespace(watched))?;
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
        self.apply(&redis_quorum(QUORUM, &spec))
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

    /// Whether the operators' service account may do this with a resource (`nodes`, `deployments.apps`, `pods/exec`).
    ///
    /// # Errors
    /// [`Error::Command`] when the API server has no such resource or does not answer.
    pub fn operator_may(&self, verb: &str, resource: &str, namespace: &str) -> Result<bool> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let kubeconfig = self.kubeconfig.display();
        let flags = [
            format!("--namespace={namespace}"),
            format!("--subresource={subresource}"),
            format!("--kubeconfig={kubeconfig}"),
        ];
        let [namespace, subresource, kubeconfig] = flags.each_ref().map(String::as_str);
        match self.control_plane.kubectl(&["auth", "can-i", verb, resource, namespace, subresource, kubeconfig]) {
            Ok(_) => Ok(true),
            // For "no", kubectl exits with an error. It may warn that it has ignored the namespace.
            Err(Error::Command { stderr, .. }) if stderr.lines().all(|line| line.contains("not namespace scoped")) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
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
        self.control_plane.apply_object(object)
    }

    /// Applies a namespace.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn namespace(&self, name: &str) -> Result<()> {
        self.apply(&namespace(name))
    }

    /// Applies a [`workload`] and its namespace. A second call changes it.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn workload(&self, kind: &str, in_namespace: &str, name: &str, over: &Value) -> Result<()> {
        self.namespace(in_namespace)?;
        self.apply(&workload(kind, in_namespace, name, over))
    }

    /// Changes annotations of an object, such as `deployment/billing`. An entry `name-` removes one.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn annotate(&self, in_namespace: &str, object: &str, changes: &[&str]) -> Result<()> {
        let args = [&["annotate", "--overwrite", "--namespace", in_namespace, object], changes].concat();
        self.control_plane.kubectl(&args).map(drop)
    }

    /// Applies a Deployment and its namespace, and waits until all pods are Ready. The pods have the label `app: <name>`.
    /// A second call with another number of replicas scales it.
    ///
    /// # Errors
    /// [`Error::Command`] when the API server refuses it, or when it is not Ready within a minute.
    pub fn deployment(&self, in_namespace: &str, name: &str, replicas: usize) -> Result<()> {
        self.workload("Deployment", in_namespace, name, &json!({"spec": {"replicas": replicas}}))?;
        let deployment = format!("deployment/{name}");
        self.control_plane
            .kubectl(&["rollout", "status", &deployment, "--namespace", in_namespace, "--timeout=60s"])
            .map(drop)
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

    /// Cuts the connections of one operator process to these servers, until [`reconnect`](Self::reconnect). A process
    /// that is started later is not disconnected, even with the same name.
    ///
    /// # Errors
    /// [`Error::NoProxies`] without [`InstallationOptions::proxied`],
    /// [`Error::NotRunning`] when the operator does not run.
    pub fn cut_off(&self, operator: &Operator, from: &[Peer], how: Cut) -> Result<()> {
        let network = self.network.as_ref().ok_or(Error::NoProxies)?;
        let pid = operator.pid().ok_or_else(|| Error::NotRunning { process: "operator".to_owned() })?;
        for proxy in from.iter().flat_map(|peer| network.of(*peer)) {
            proxy.cut_process(pid, how);
        }
        Ok(())
    }

    /// Ends every [`cut_off`](Self::cut_off).
    pub fn reconnect(&self) {
        self.network.iter().flat_map(Network::all).for_each(Proxy::restore);
    }

    /// The last lines of every operator's log, with the name of the file.
    pub fn log_tails(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = |log: &PathBuf| format!("--- {}\n{}\n", log.display(), wait::tail(log));
        logs.iter().map(tail).collect()
    }
}
