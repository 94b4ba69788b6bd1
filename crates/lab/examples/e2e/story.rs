//! The chapters until the chart runs, and what all chapters use.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::{Duration, Instant},
};

use redislease_lab::{
    Authority, Helm, Installation, InstallationOptions, Lease, LeaseState, RELEASE, SYSTEM, Watch,
    node::{Container, Node},
};
use serde_json::{Value, json};

use crate::{
    narrator::Narrator,
    setup::{PASSWORD_SECRET, Parts, TLS_SECRET},
    upkeep::inventory,
};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub const NAMESPACE: &str = "shop";
pub const WORKLOAD: &str = "billing";
pub const REPLICAS: usize = 3;
/// The leases on the pods of the workload: that of the annotation, and others.
pub const LEASES: usize = 10;
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
pub const OPERATOR: &str = "deployment/redislease-operator";

/// Limit for steps that do not wait for a lease. It tolerates a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

pub struct Story<'a> {
    pub nodes: &'a [Node],
    pub installation: Installation,
    pub helm: Helm,
    pub authority: Authority,
    pub narrator: Narrator,
    /// Events of all leases since the chart was installed.
    pub watch: Watch,
    /// All objects of the cluster before the chart was installed.
    pub inventory: BTreeSet<String>,
}

impl<'a> Story<'a> {
    /// Installs the chart and waits for the first holder.
    pub fn install(nodes: &'a [Node], parts: Parts, mut narrator: Narrator) -> Outcome<Self> {
        narrator.chapter("helm install");
        let Parts { control_plane, redis, authority } = parts;
        let addresses: Vec<Value> = (0..)
            .zip(&redis)
            .filter_map(|(index, server)| Some((index, server.tls_address()?)))
            .map(|(index, address): (usize, _)| json!({"name": format!("redis-{index}"), "address": address.to_string()}))
            .collect();
        let options = InstallationOptions {
            cluster: "e2e".to_owned(),
            quorum: json!({
                "nodes": addresses,
                "maxLeaseDuration": format!("{}s", LEASE_DURATION.as_secs()),
                "existingSecret": PASSWORD_SECRET,
                "tls": {"existingSecret": TLS_SECRET},
            }),
            ..InstallationOptions::new("not started by the lab")
        };
        let inventory = inventory(&control_plane)?;
        let began = Instant::now();
        let helm = Helm::with_kubeconfig(control_plane.kubeconfig())?;
        let installation = Installation::install_chart(&options, control_plane, redis, &[])?;
        narrator.say(&format!("helm install has returned after {:.1} s", began.elapsed().as_secs_f32()));
        let control_plane = installation.control_plane();
        control_plane.kubectl(&["rollout", "status", OPERATOR, "--namespace", SYSTEM, "--timeout=60s"])?;
        narrator.say(&format!("2 operator pods are Ready {:.1} s after its start", began.elapsed().as_secs_f32()));
        narrator.say(
            "A new Redis node has no vote until the longest lease has passed, 15 s: it could be a server that has\n\
             lost its data, and with them a lease that still runs.",
        );
        let watch = control_plane.watch("redisleases", NAMESPACE)?;
        let mut story = Self { nodes, helm, authority, narrator, watch, inventory, installation };
        let first = story.lease().wait("a first holder", SOON, LeaseState::is_active)?;
        story.narrator.say(&format!(
            "first lease Active {:.1} s after the start of helm install: {} holds it, fencing token {}",
            began.elapsed().as_secs_f32(),
            holder(&first),
            token(&first),
        ));
        story.see_roles(&first)?;
        story.more_leases()?;
        Ok(story)
    }

    pub fn tell(&mut self) -> Outcome {
        self.helm_test()?;
        self.container_is_killed()?;
        self.holders_pod_is_deleted()?;
        self.operator_is_rolled_out()?;
        self.certificates_are_rotated()?;
        self.kubelet_is_stopped()?;
        self.chart_is_uninstalled()
    }

    pub fn end(mut self) {
        self.narrator.say("All steps succeeded. Everything that was started is being stopped.");
    }

    fn more_leases(&mut self) -> Outcome {
        for number in 1..LEASES {
            self.installation.lease(
                NAMESPACE,
                &format!("{WORKLOAD}-{number}"),
                &json!({
                    "candidates": {"selector": {"matchLabels": {"app": WORKLOAD}}},
                    "leaseDuration": "15s", "renewInterval": "2s", "gracePeriod": "5s",
                }),
            )?;
        }
        let held = self.held()?;
        self.narrator.say(&format!("{} more leases on the same pods are Active", held.len() - 1));
        Ok(())
    }

    fn helm_test(&mut self) -> Outcome {
        self.narrator.chapter("helm test");
        let began = Instant::now();
        let printed = self.helm.run(&["test", RELEASE, "--namespace", SYSTEM, "--logs", "--timeout=60s"])?;
        self.narrator.say(&format!(
            "succeeded after {:.1} s: `redislease doctor` has run as a pod with the operator's service account",
            began.elapsed().as_secs_f32(),
        ));
        let logs = printed.split_once("POD LOGS:").map_or(printed.as_str(), |(_, logs)| logs);
        self.narrator.quote(logs.trim());
        Ok(())
    }

    /// The lease that the annotation creates.
    pub fn lease(&self) -> Lease<'_> {
        self.installation.find_lease(NAMESPACE, WORKLOAD)
    }

    /// Waits until all leases are held and returns them by name.
    pub fn held(&self) -> Outcome<BTreeMap<String, LeaseState>> {
        let names = (1..LEASES).map(|number| format!("{WORKLOAD}-{number}")).chain([WORKLOAD.to_owned()]);
        let held = |name: String| {
            let lease = self.installation.find_lease(NAMESPACE, &name);
            Ok((name, lease.wait("held", SOON, LeaseState::is_active)?))
        };
        names.map(held).collect()
    }

    /// Compares all leases with what they were, and every event since: the names of those that were not held all the time,
    /// or whose term changed.
    pub fn moved(&mut self, before: &BTreeMap<String, LeaseState>, since: Instant) -> Outcome<Vec<String>> {
        let mut moved: Vec<String> = Vec::new();
        for event in self.watch.so_far().iter().filter(|event| event.at >= since) {
            let name = event.object["metadata"]["name"].as_str().unwrap_or_default();
            let Some(before) = before.get(name) else { continue };
            let status = &event.object["status"];
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_active = conditions.iter().any(|found| found["type"] == "Active" && found["status"] == "True");
            if !is_active || status["attempt"].as_str() != before.attempt() || event.kind == "DELETED" {
                moved.push(name.to_owned());
            }
        }
        for (name, before) in before {
            let now = self.installation.find_lease(NAMESPACE, name).state()?;
            if !same_term(before, &now) {
                moved.push(name.clone());
            }
        }
        moved.sort();
        moved.dedup();
        Ok(moved)
    }

    /// Checks that no lease has moved since.
    pub fn none_moved(&mut self, before: &BTreeMap<String, LeaseState>, since: Instant) -> Outcome {
        let moved = self.moved(before, since)?;
        if moved.is_empty() {
            self.narrator.say(&format!(
                "0 of {} leases moved: same holders, same tokens, no event without Active=True",
                before.len()
            ));
            return Ok(());
        }
        Err(format!("These leases should not have moved: {}.", moved.join(", ")).into())
    }

    pub fn see_roles(&mut self, lease: &LeaseState) -> Outcome {
        self.lease().wait_for_roles(lease, REPLICAS, SOON)?;
        self.narrator.say("Only its pod is labelled lease.redislease.io/billing: active");
        Ok(())
    }

    pub fn wait_until<T>(&self, what: &str, within: Duration, probe: impl FnMut() -> Result<T, String>) -> Outcome<T> {
        Ok(self.installation.wait_for(what, within, probe)?)
    }

    /// A pod of the workload.
    pub fn pod(&self, name: &str) -> Outcome<Value> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
        self.installation.control_plane().get(&path)?.ok_or_else(|| format!("The pod {name} does not exist.").into())
    }

    /// The container of a pod of the workload.
    pub fn container(&self, pod: &Value) -> Outcome<Container> {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let found = Container::find(uid, "/workload")?;
        found.ok_or_else(|| format!("No process of the pod {} runs.", pod["metadata"]["name"]).into())
    }

    pub fn kubectl(&self, args: &[&str]) -> Outcome<String> {
        Ok(self.installation.control_plane().kubectl(args)?)
    }

    /// What explains an error: pods, and the operator's last log lines.
    pub fn context(&self) -> String {
        let pods = ["get", "pods", "--all-namespaces", "--output=wide"];
        let selector = "--selector=app.kubernetes.io/instance=redislease";
        let logs = ["logs", "--namespace", SYSTEM, selector, "--prefix", "--tail=25"];
        let show = |args: &[&str]| self.kubectl(args).unwrap_or_else(|error| error.to_string());
        format!("{}\n{}", show(&pods), show(&logs))
    }
}

pub fn holder(lease: &LeaseState) -> String {
    lease.holder().unwrap_or("no pod").to_owned()
}

pub fn token(lease: &LeaseState) -> String {
    lease.token().map_or_else(|| "none".to_owned(), |token| token.to_string())
}

/// Whether both states are of one term, and the lease is held.
pub fn same_term(before: &LeaseState, now: &LeaseState) -> bool {
    let term =
        |lease: &LeaseState| (holder(lease), token(lease), lease.attempt().map(str::to_owned), lease.transitions());
    now.is_active() && term(before) == term(now)
}
