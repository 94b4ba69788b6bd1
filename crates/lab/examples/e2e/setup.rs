//! The servers, the images and the objects that exist before the chart is installed.

use std::{collections::BTreeSet, error::Error, fmt, net::IpAddr, path::Path, sync::Arc, time::Instant};

use redislease_lab::{
    Authority, ControlPlane, Identity, RedisOptions, RedisServer, RedisTls, SYSTEM,
    node::{Cluster, Image, Node, Program, Sandbox},
    workload,
};
use serde_json::{Value, json};

use crate::narrator::Narrator;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub const NAMESPACE: &str = "shop";
pub const WORKLOAD: &str = "billing";
pub const REPLICAS: usize = 3;

/// Every node gets the image of the operator under the reference that the chart uses by default.
pub const OPERATOR_IMAGE: &str = concat!("docker.io/library/redislease:", env!("CARGO_PKG_VERSION"));
pub const WORKLOAD_IMAGE: &str = "docker.io/library/workload:1";
/// How long a pod of the workload finishes its work after SIGTERM.
pub const STOP_SECONDS: u64 = 3;
/// Nodes with a kubelet each.
const NODES: usize = 2;
/// The addresses of the Redis servers.
const HOSTS: &[IpAddr] = Cluster::SERVERS.split_at(3).0;
const COLUMNS: &str = "--output=custom-columns=NAME:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,\
                       RUNTIME:.status.nodeInfo.containerRuntimeVersion,ADDRESS:.status.addresses[0].address";
pub const PASSWORD: &str = "only-for-this-run";
/// The secrets in the operator's namespace.
pub const PASSWORD_SECRET: &str = "redis-password";
pub const TLS_SECRET: &str = "redis-tls";

/// This machine cannot run nodes or pods. Nothing of RedisLease has run yet.
#[derive(Debug)]
pub struct Impossible(String);

impl fmt::Display for Impossible {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Impossible {}

/// What the chart is installed on.
pub struct Parts {
    pub control_plane: ControlPlane,
    pub redis: Vec<Arc<RedisServer>>,
    pub authority: Authority,
}

pub fn start(
    sandbox: &Sandbox,
    binary: &Path,
    archive: Option<&Path>,
    narrator: &mut Narrator,
) -> Outcome<(Vec<Node>, Parts)> {
    narrator.chapter("Setup");
    let began = Instant::now();
    let cluster = Cluster::start(sandbox, NODES).map_err(|error| Impossible(error.to_string()))?;
    narrator.say(&format!(
        "{NODES} nodes are Ready {:.1} s after the start of etcd: a control plane, {NODES} kubelets, {NODES} containerds",
        began.elapsed().as_secs_f32(),
    ));
    narrator.quote(&format!("$ kubectl get nodes\n{}", cluster.control_plane().kubectl(&["get", "nodes", COLUMNS])?));
    let authority = Authority::new("redis")?;
    let redis = start_redis(&authority)?;
    narrator.say(
        "3 redis-servers run outside of the nodes, with TLS, client certificates, and the ACL user of\n\
         docs/redis-checklist.md",
    );
    let made =
        if archive.is_none() { Some(Image::new(OPERATOR_IMAGE, Program::Binary(binary)).pack(sandbox)?) } else { None };
    let operator = archive.or(made.as_deref()).ok_or("There is no image of the operator.")?;
    cluster.import(operator, OPERATOR_IMAGE)?;
    cluster.import(&Image::new(WORKLOAD_IMAGE, Program::Source("workload")).pack(sandbox)?, WORKLOAD_IMAGE)?;
    let kind = if made.is_some() { "an image of the debug build" } else { "the image of the release build" };
    narrator.say(&format!("Imported to both nodes: {kind} of the operator, and that of the workload"));
    let (nodes, control_plane) = cluster.split();
    prepare(&control_plane, &authority)?;
    narrator.say(&format!(
        "Deployment {WORKLOAD} in {NAMESPACE}: {REPLICAS} pods run. Its annotation redislease.io/lease asks for a lease."
    ));
    Ok((nodes, Parts { control_plane, redis, authority }))
}

fn start_redis(authority: &Authority) -> Outcome<Vec<Arc<RedisServer>>> {
    let mut servers = Vec::new();
    for &host in HOSTS {
        let options = RedisOptions {
            password: Some(format!("admin-{PASSWORD}")),
            tls: Some(server_tls(authority, host)?),
            host: Some(host),
            args: ["--maxmemory-policy", "noeviction"].map(str::to_owned).to_vec(),
            ..RedisOptions::default()
        };
        let server = RedisServer::start_with(&options)?;
        server.create_user(PASSWORD, "redislease", &[])?;
        servers.push(Arc::new(server));
    }
    Ok(servers)
}

/// The certificate of a server and the authority of its clients.
pub fn server_tls(authority: &Authority, host: IpAddr) -> Outcome<RedisTls> {
    let identity = authority.sign(&[&host.to_string()])?;
    Ok(RedisTls { identity, client_ca: Some(authority.certificate()) })
}

/// A secret as cert-manager writes it.
pub fn certificates(authorities: &str, client: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": TLS_SECRET, "namespace": SYSTEM},
        "stringData": {"ca.crt": authorities, "tls.crt": client.certificate, "tls.key": client.key},
    })
}

/// What `docs/install.md` creates before `helm install`, and the workload.
fn prepare(control_plane: &ControlPlane, authority: &Authority) -> Outcome {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let password = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": PASSWORD_SECRET, "namespace": SYSTEM},
        "stringData": {"username": "redislease", "password": PASSWORD},
    });
    for object in [
        namespace(SYSTEM, json!({"pod-security.kubernetes.io/enforce": "restricted"})),
        namespace(NAMESPACE, json!({})),
        password,
        certificates(&authority.certificate(), &authority.sign(&["redislease"])?),
        annotated(),
    ] {
        control_plane.apply(&object.to_string())?;
    }
    let deployment = format!("deployment/{WORKLOAD}");
    let rollout = ["rollout", "status", &deployment, "--namespace", NAMESPACE, "--timeout=300s"];
    control_plane.kubectl(&rollout).map_err(|error| match last_warning(control_plane) {
        Ok(warning) if !warning.is_empty() => Impossible(format!("pods do not start: {warning}")),
        _ => Impossible(error.to_string()),
    })?;
    Ok(())
}

/// What Kubernetes last reported about the pods of the workload.
fn last_warning(control_plane: &ControlPlane) -> Outcome<String> {
    let template = "--output=jsonpath={.items[-1:].message}";
    let sorted = "--sort-by=.metadata.creationTimestamp";
    let warnings = ["get", "events", "--namespace", NAMESPACE, "--field-selector=type=Warning", sorted, template];
    Ok(control_plane.kubectl(&warnings)?)
}

fn annotated() -> Value {
    // The shortest lease that survives the end of the leading replica.
    let annotations = json!({
        "redislease.io/lease": "true",
        "redislease.io/lease-duration": "15s",
        "redislease.io/renew-interval": "2s",
        "redislease.io/grace-period": "5s",
    });
    deployment(WORKLOAD, json!({"metadata": {"annotations": annotations}, "spec": {"replicas": REPLICAS}}))
}

/// A Deployment whose pods finish their work for [`STOP_SECONDS`], with these fields besides.
pub fn deployment(name: &str, mut over: Value) -> Value {
    let pod = &mut over["spec"]["template"]["spec"];
    let stop_seconds = json!({"name": "STOP_SECONDS", "value": STOP_SECONDS.to_string()});
    pod["containers"] = json!([{"name": "main", "image": WORKLOAD_IMAGE, "env": [stop_seconds]}]);
    pod["automountServiceAccountToken"] = false.into();
    workload("Deployment", NAMESPACE, name, &over)
}

/// All objects of the cluster, as kind, namespace and name, without pods, events and what a kubelet writes about its node, which
/// can be later than the first inventory.
pub fn inventory(control_plane: &ControlPlane) -> Outcome<BTreeSet<String>> {
    let kinds = control_plane.kubectl(&["api-resources", "--verbs=list", "--output=name"])?;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.starts_with("csinodes"))
        .filter(|kind| !matches!(*kind, "pods" | "componentstatuses"))
        .collect();
    let template =
        "{{range .items}}{{.kind}} {{with .metadata.namespace}}{{.}}/{{end}}{{.metadata.name}}{{\"\\n\"}}{{end}}";
    let list = control_plane.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--template", template])?;
    Ok(list.lines().filter(|object| !object.starts_with("Lease kube-node-lease/")).map(str::to_owned).collect())
}
