//! What is installed.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use serde_json::{Value, json};

use crate::{Helm, RedisOptions, RedisServer, Result, SYSTEM, read};

/// The operators' service account, as the chart names it.
pub(super) const ACCOUNT: &str = "redislease-operator";
/// The RedisQuorum that a lease uses when it names none.
pub(super) const QUORUM: &str = "default";
pub(super) const SECRET: &str = "redis-password";

/// The settings of an [`Installation`](crate::Installation).
#[allow(clippy::struct_excessive_bools, reason = "each is an independent setting")]
#[derive(Debug, Clone)]
pub struct InstallationOptions {
    /// The `redislease` binary. In integration tests of the root package: `env!("CARGO_BIN_EXE_redislease")`.
    pub binary: PathBuf,
    /// The operators' `--cluster-name`.
    pub cluster: String,
    /// The password of the Redis servers; the operators read it from a secret.
    pub password: Option<String>,
    /// Fields of the RedisQuorum's spec. They replace the defaults of the lab: `maxLeaseDuration` is 10 s there, which is
    /// also how long the first election waits.
    pub quorum: Value,
    /// The number of nodes for pods.
    pub nodes: usize,
    /// Whether operators reach the Redis servers and the API server through proxies, as
    /// [`Installation::cut_off`](crate::Installation::cut_off) needs.
    pub proxied: bool,
    /// Whether each operator runs on a simulated machine of its own, as [`Process::suspend`](crate::Process::suspend) needs.
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
    pub(super) fn chart_quorum(&self, addresses: &[SocketAddr]) -> Value {
        let mut quorum = json!({"name": QUORUM, "nodes": nodes(addresses.iter().copied()), "maxLeaseDuration": "10s"});
        overlay(&mut quorum, &self.quorum);
        quorum
    }

    /// The operators' service account, roles and admission policy, as the chart has them.
    pub(super) fn rights(&self) -> Result<String> {
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

    /// Starts three Redis servers. Several installations can share them.
    ///
    /// # Errors
    /// As [`RedisServer::start_with`].
    pub fn start_redis(&self) -> Result<Vec<Arc<RedisServer>>> {
        let options = RedisOptions { password: self.password.clone(), ..RedisOptions::default() };
        (0..3).map(|_| RedisServer::start_with(&options).map(Arc::new)).collect()
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

/// The nodes of a RedisQuorum on these servers.
pub fn nodes(addresses: impl IntoIterator<Item = SocketAddr>) -> Value {
    let node = |(index, address): (usize, SocketAddr)| json!({"name": node_name(index), "address": address});
    addresses.into_iter().enumerate().map(node).collect()
}

/// A RedisQuorum in the operator's namespace.
pub fn redis_quorum(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"name": name, "namespace": SYSTEM},
        "spec": spec,
    })
}

/// The name of a Redis node, by the index of its server.
pub(super) fn node_name(index: usize) -> String {
    format!("redis-{index}")
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Replaces fields of `base` by those of `over`; a null removes the field.
pub(super) fn overlay(base: &mut Value, over: &Value) {
    for (field, value) in over.as_object().into_iter().flatten() {
        base[field] = value.clone();
    }
    if let Some(fields) = base.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}
