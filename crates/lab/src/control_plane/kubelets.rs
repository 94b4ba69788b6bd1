//! Simulated kubelets: they keep their nodes Ready, and write the status of the pods that are bound to them.
//!
//! A kubelet that stops a pod gracefully first writes a final phase and a terminated state for every container, init
//! containers too, and only then removes the pod. So do these. After a forced deletion they do nothing: the API server
//! has removed the pod, and nobody writes a status.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
    time::sleep,
};

use super::servers::now;
use crate::{
    Error, Result,
    api::{connect, follow},
};

/// How often a kubelet reports that its node is Ready. The node controller waits for 50 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The pause before a call is repeated that the API server did not carry out.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How many calls about pods are open at once. More do not make thousands of pods run sooner.
const AT_ONCE: usize = 8;
/// The addresses of pods and of nodes follow these. They must be outside the addresses of Services.
const BEFORE_PODS: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const BEFORE_NODES: u32 = u32::from_be_bytes([192, 168, 0, 0]);
/// How long the processes of a pod take to stop, for example `3s`.
const STOPS_AFTER: &str = "lab.redislease.io/stops-after";
/// A pod with this annotation also has an IPv6 address.
const DUAL_STACK: &str = "lab.redislease.io/dual-stack";

/// The kubelets of all simulated nodes. They stop when it is dropped.
#[derive(Debug)]
pub(super) struct Kubelets {
    // Emptied when it is dropped.
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: Mutex<BTreeMap<String, NodeState>>,
    /// The UIDs of pods that are being stopped.
    stopping: Mutex<BTreeSet<String>>,
    calls: Semaphore,
    /// The number of addresses that pods have got.
    addresses: AtomicU32,
}

#[derive(Debug, Clone)]
struct NodeState {
    address: Ipv4Addr,
    lost: bool,
    /// Since when it is Ready.
    since: String,
}

impl Kubelets {
    /// Starts the kubelets of these nodes, which exist.
    pub(super) fn start(kubeconfig: PathBuf, nodes: &[String]) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("kubelets").enable_all().build();
        let runtime = runtime.map_err(Error::io("start the simulated kubelets"))?;
        let state = |address| NodeState { address, lost: false, since: now() };
        let addresses = (BEFORE_NODES + 1..).map(|bits| state(Ipv4Addr::from_bits(bits)));
        let shared = Arc::new(Shared {
            nodes: Mutex::new(nodes.iter().cloned().zip(addresses).collect()),
            stopping: Mutex::default(),
            calls: Semaphore::new(AT_ONCE),
            addresses: AtomicU32::new(0),
        });
        let kubelets = Arc::clone(&shared);
        runtime.spawn(async move {
            match connect(&kubeconfig).await {
                Ok(client) => kubelets.run(client).await,
                Err(error) => eprintln!("the simulated kubelets do not run: {error}"),
            }
        });
        Ok(Self { runtime: Some(runtime), shared })
    }

    /// Stops the kubelet of a node.
    pub(super) fn lose(&self, node: &str) {
        if let Some(state) = self.shared.nodes().get_mut(node) {
            state.lost = true;
        }
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // An async test may drop it, and must not be blocked.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, NodeState>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a node whose kubelet runs.
    fn address_of(&self, node: &str) -> Option<Ipv4Addr> {
        self.nodes().get(node).filter(|state| !state.lost).map(|state| state.address)
    }

    async fn run(self: Arc<Self>, client: Client) {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let seen = |pod: &Pod, exists| {
            if exists {
                self.see(&client, pod);
            }
        };
        tokio::join!(follow(Api::all(client.clone()), bound, seen, |_| {}), self.report(&client));
    }

    /// Reports that the nodes are Ready, again and again.
    async fn report(&self, client: &Client) {
        let nodes: Api<Node> = Api::all(client.clone());
        loop {
            let mut pause = HEARTBEAT;
            let running: Vec<_> = self.nodes().clone().into_iter().filter(|(_, state)| !state.lost).collect();
            for (name, state) in running {
                let ready = Patch::Strategic(json!({"status": node_status(&name, &state)}));
                if nodes.patch_status(&name, &PatchParams::default(), &ready).await.is_err() {
                    pause = RETRY_AFTER;
                }
            }
            sleep(pause).await;
        }
    }

    /// Handles a version of a pod, each in a task of its own.
    fn see(self: &Arc<Self>, client: &Client, pod: &Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let Some(address) = self.address_of(node) else {
            return;
        };
        let pods = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let bound = Bound { node: node.to_owned(), name: pod.name_any(), pods };
        let kubelets = Arc::clone(self);
        if pod.metadata.deletion_timestamp.is_some() {
            let uid = pod.uid().unwrap_or_default();
            if self.stopping().insert(uid.clone()) {
                let end = (!has_ended(pod)).then(|| json!({"metadata": {"uid": uid}, "status": stopped(pod)}));
                let delay = stops_after(pod);
                tokio::spawn(async move {
                    sleep(delay).await;
                    kubelets.stop_pod(&bound, &uid, end).await;
                    kubelets.stopping().remove(&uid);
                });
            }
        } else if phase(pod) == "Pending" {
            // With the resource version, so that an older version of a pod does not replace what was written since.
            let status = json!({
                "metadata": {"resourceVersion": pod.resource_version()},
                "status": running(pod, address, self.pod_address()),
            });
            tokio::spawn(async move { kubelets.call(&bound, &Call::WriteStatus(status)).await });
        }
    }

    fn pod_address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(BEFORE_PODS + 1 + self.addresses.fetch_add(1, Ordering::Relaxed))
    }

    async fn stop_pod(&self, pod: &Bound, uid: &str, end: Option<Value>) {
        if let Some(status) = end
            && !self.call(pod, &Call::WriteStatus(status)).await
        {
            return;
        }
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        self.call(pod, &Call::Remove(DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) })).await;
    }

    /// Repeats a call until the API server accepts or refuses it, or the node is lost. It refuses when the pod is gone or
    /// has changed. Returns whether it accepted it.
    async fn call(&self, pod: &Bound, call: &Call) -> bool {
        while self.address_of(&pod.node).is_some() {
            let permit = self.calls.acquire().await;
            match call.send(pod).await {
                Ok(()) => return true,
                Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => return false,
                Err(_) => {}
            }
            drop(permit);
            sleep(RETRY_AFTER).await;
        }
        false
    }
}

/// A pod of a node.
struct Bound {
    node: String,
    pods: Api<Pod>,
    name: String,
}

enum Call {
    WriteStatus(Value),
    Remove(DeleteParams),
}

impl Call {
    async fn send(&self, Bound { pods, name, .. }: &Bound) -> kube::Result<()> {
        match self {
            Self::WriteStatus(status) => {
                pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.map(drop)
            }
            Self::Remove(how) => pods.delete(name, how).await.map(drop),
        }
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// How long the processes of the pod take to stop after SIGTERM.
fn stops_after(pod: &Pod) -> Duration {
    let seconds = pod.annotations().get(STOPS_AFTER).and_then(|text| text.strip_suffix('s')?.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs)
}

fn node_status(name: &str, state: &NodeState) -> Value {
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    json!({
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "The kubelet is simulated.",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": state.since,
        }],
        "addresses": [{"type": "InternalIP", "address": state.address}, {"type": "Hostname", "address": name}],
        "allocatable": room,
        "capacity": room,
        "nodeInfo": {"operatingSystem": "linux", "osImage": "simulated", "kubeletVersion": "simulated"},
    })
}

/// The status of a pod that runs and is Ready.
fn running(pod: &Pod, node: Ipv4Addr, address: Ipv4Addr) -> Value {
    let (now, spec) = (now(), pod.spec.clone().unwrap_or_default());
    let gates = spec.readiness_gates.unwrap_or_default().into_iter().map(|gate| gate.condition_type);
    let kinds = ["Initialized", "Ready", "ContainersReady"].map(str::to_owned).into_iter().chain(gates);
    let condition = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let address = if spec.host_network == Some(true) { node } else { address };
    let mut addresses = vec![address.to_string()];
    if pod.annotations().contains_key(DUAL_STACK) {
        let [.., high, low] = address.to_ipv6_mapped().segments();
        addresses.push(format!("fd00::{high:x}:{low:x}"));
    }
    let ips = |addresses: &[String]| addresses.iter().map(|ip| json!({"ip": ip})).collect::<Value>();
    json!({
        "phase": "Running",
        "startTime": now,
        "conditions": kinds.map(condition).collect::<Value>(),
        "initContainerStatuses": statuses(&spec.init_containers.unwrap_or_default(), is_sidecar, true, &now),
        "containerStatuses": statuses(&spec.containers, |_| true, true, &now),
        "hostIP": node,
        "hostIPs": ips(&[node.to_string()]),
        "podIP": address,
        "podIPs": ips(&addresses),
    })
}

/// The status of a pod all of whose containers have stopped.
fn stopped(pod: &Pod) -> Value {
    let (now, spec) = (now(), pod.spec.clone().unwrap_or_default());
    let condition =
        |kind| json!({"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
    let conditions = ["Ready", "ContainersReady"].map(condition);
    json!({
        "phase": "Succeeded",
        "conditions": conditions,
        "initContainerStatuses": statuses(&spec.init_containers.unwrap_or_default(), |_| false, false, &now),
        "containerStatuses": statuses(&spec.containers, |_| false, false, &now),
    })
}

fn statuses(containers: &[Container], runs: impl Fn(&Container) -> bool, ready: bool, now: &str) -> Value {
    let status = |container: &Container| {
        let runs = runs(container);
        let state = if runs {
            json!({"running": {"startedAt": now}})
        } else {
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}})
        };
        json!({
            "name": container.name,
            "image": container.image,
            "ready": ready,
            "started": runs,
            "restartCount": 0,
            "state": state,
        })
    };
    containers.iter().map(status).collect()
}
