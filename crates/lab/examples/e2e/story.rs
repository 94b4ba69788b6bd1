//! The chapters until the chart runs, and what all chapters use.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use redislease_lab::{
    Authority, Condition, Helm, Installation, InstallationOptions, Lease, LeaseState, RELEASE, SYSTEM, Watch,
    WatchEvent,
    node::{Container, Node},
    poll,
};
use serde_json::{Value, json};

use crate::{
    narrator::{Narrator, holder, token},
    setup::{NAMESPACE, Outcome, PASSWORD_SECRET, Parts, REPLICAS, TLS_SECRET, WORKLOAD, inventory},
};

/// The leases on the pods of the workload: that of the annotation, and others.
pub const LEASES: usize = 10;
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
pub const RENEW_INTERVAL: Duration = Duration::from_secs(2);
pub const OPERATOR: &str = "deployment/redislease-operator";

/// Limit for steps that do not wait for a lease. It tolerates a busy machine.
pub const SOON: Duration = Duration::from_mins(2);

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
    /// The start of helm install.
    installed: Instant,
    /// What is printed at the end: a name and a value.
    figures: Vec<(&'static str, String)>,
}

impl<'a> Story<'a> {
    /// Installs the chart.
    pub fn new(nodes: &'a [Node], parts: Parts, mut narrator: Narrator) -> Outcome<Self> {
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
        let installation =
            Installation::install_chart(&options, control_plane, redis, &["--set=rbac.allowSchedulingGate=true"])?;
        narrator.say(&format!("helm install returned after {:.1} s", began.elapsed().as_secs_f32()));
        // kubectl waits while the API server prepares the storage of a new kind; a watch would end.
        installation.control_plane().kubectl(&["get", "redisleases", "--namespace", NAMESPACE])?;
        let watch = installation.control_plane().watch("redisleases", NAMESPACE)?;
        let (installed, figures) = (began, Vec::new());
        Ok(Self { nodes, installation, helm, authority, narrator, watch, inventory, installed, figures })
    }

    pub fn tell(&mut self) -> Outcome {
        self.first_holder()?;
        self.more_leases()?;
        self.helm_test()?;
        self.container_is_killed()?;
        self.holders_pod_is_deleted()?;
        self.only_the_elected_pod_starts()?;
        self.run_is_the_first_process_of_pods()?;
        self.operator_is_rolled_out()?;
        self.certificates_are_rotated()?;
        self.kubelet_is_stopped()?;
        self.chart_is_uninstalled()
    }

    pub fn end(mut self) {
        self.narrator.chapter("Figures");
        let lines = self.figures.iter().map(|(name, value)| format!("{name:58} {value}\n"));
        let lines: String = lines.collect();
        self.narrator.quote(&lines);
        self.narrator.say("Every step succeeded. Everything that was started is being stopped.");
    }

    pub fn figure(&mut self, name: &'static str, value: impl Into<String>) {
        self.figures.push((name, value.into()));
    }

    fn first_holder(&mut self) -> Outcome {
        self.kubectl(&["rollout", "status", OPERATOR, "--namespace", SYSTEM, "--timeout=120s"])?;
        let ready = self.installed.elapsed().as_secs_f32();
        self.narrator.say(&format!("2 operator pods are Ready {ready:.1} s after the start of helm install"));
        self.figure("helm install to 2 operator pods Ready", format!("{ready:.1} s"));
        self.narrator.say(
            "A new Redis node has no vote until the longest lease has passed, 15 s: it could be a server that has\n\
             lost its data, and with them a lease that still runs.",
        );
        let first = self.wait("a first holder", LeaseState::is_active)?;
        let active = self.installed.elapsed().as_secs_f32();
        self.narrator.say(&format!("{} holds the lease, fencing token {}", holder(&first), token(&first)));
        self.narrator.say(&format!("The first lease is Active {active:.1} s after the start of helm install"));
        self.figure("helm install to the first lease Active, 15 s of it waiting", format!("{active:.1} s"));
        self.see_roles(&first)
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
        // Without a result, helm reports that the pod has not succeeded in time.
        let printed = self.helm.run(&["test", RELEASE, "--namespace", SYSTEM, "--logs", "--timeout=120s"])?;
        self.narrator.say(&format!(
            "`redislease doctor` ran as a pod with the operator's service account and succeeded after {:.1} s:",
            began.elapsed().as_secs_f32(),
        ));
        self.figure("helm test", format!("{:.1} s", began.elapsed().as_secs_f32()));
        let logs = printed.split_once("POD LOGS:").map_or(printed.as_str(), |(_, logs)| logs);
        self.narrator.quote(logs.trim());
        Ok(())
    }

    /// The lease that the annotation creates.
    pub fn lease(&self) -> Lease<'_> {
        self.installation.find_lease(NAMESPACE, WORKLOAD)
    }

    /// Waits until the workload's lease is as wanted.
    fn wait(&self, what: &str, mut wanted: impl FnMut(&LeaseState) -> bool) -> Outcome<LeaseState> {
        let wanted = |lease: &LeaseState| {
            self.narrator.tick();
            wanted(lease)
        };
        Ok(self.lease().wait(what, SOON, wanted)?)
    }

    /// Waits for an event of the workload's lease that names another holder than before.
    pub fn next_holder(&mut self, before: &LeaseState, since: Instant, within: Duration) -> Outcome<Instant> {
        let (watch, narrator) = (&mut self.watch, &self.narrator);
        let next = poll(within, || {
            narrator.tick();
            let mut events = watch.so_far().iter().filter(|event| event.at >= since && is_next(event, before));
            events.next().map(|event| event.at).ok_or_else(|| format!("before: {before}"))
        });
        next.map_err(|last| format!("No other holder within {} s; {last}", within.as_secs()).into())
    }

    /// Waits until all leases are held and returns them by name.
    pub fn held(&self) -> Outcome<BTreeMap<String, LeaseState>> {
        self.held_by(|_| true)
    }

    /// Waits until all leases are held by pods that `wanted` accepts.
    pub fn held_by(&self, wanted: impl Fn(&str) -> bool) -> Outcome<BTreeMap<String, LeaseState>> {
        let names = (1..LEASES).map(|number| format!("{WORKLOAD}-{number}")).chain([WORKLOAD.to_owned()]);
        let held = |name: String| {
            let lease = self.installation.find_lease(NAMESPACE, &name);
            let is_held = |lease: &LeaseState| lease.is_active() && lease.holder().is_some_and(&wanted);
            Ok((name, lease.wait("held", SOON, is_held)?))
        };
        names.map(held).collect()
    }

    /// Waits until the watch shows a change that is made now, so that it has shown all changes before.
    fn catch_up(&mut self, leases: &BTreeMap<String, LeaseState>) -> Outcome {
        const MARK: &str = "example.com/seen";
        let mark = format!("{:?}", Instant::now());
        // Not the lease that the operator keeps like the annotations of its workload.
        let name = leases.keys().find(|name| *name != WORKLOAD).ok_or("There is no other lease.")?;
        let lease = self.installation.find_lease(NAMESPACE, name);
        lease.patch(&json!({"metadata": {"annotations": {MARK: mark}}}))?;
        let watch = &mut self.watch;
        let shown = poll(SOON, || {
            let mut events = watch.so_far().iter().rev();
            let found = events.find(|event| event.object["metadata"]["annotations"][MARK] == mark.as_str());
            found.map(drop).ok_or_else(|| "The watch of the leases does not show a change.".to_owned())
        });
        Ok(shown?)
    }

    /// Compares all leases with what they were, and every event since: the names of those that were not held all the time,
    /// or whose term changed.
    pub fn moved(&mut self, before: &BTreeMap<String, LeaseState>, since: Instant) -> Outcome<Vec<String>> {
        self.catch_up(before)?;
        let mut moved: Vec<String> = Vec::new();
        for event in self.watch.so_far().iter().filter(|event| event.at >= since) {
            let name = event.object["metadata"]["name"].as_str().unwrap_or_default();
            let Some(before) = before.get(name) else { continue };
            let attempt = event.object["status"]["attempt"].as_str();
            let is_active = Condition::is_true(&event.object, "Active");
            if !is_active || attempt != before.attempt() || event.kind == "DELETED" {
                moved.push(name.to_owned());
            }
        }
        for (name, before) in before {
            let now = self.installation.find_lease(NAMESPACE, name).state()?;
            if !now.continues(before) {
                moved.push(name.clone());
            }
        }
        moved.sort();
        moved.dedup();
        Ok(moved)
    }

    /// Checks that no lease has moved since `what` began.
    pub fn none_moved(&mut self, what: &'static str, before: &BTreeMap<String, LeaseState>, since: Instant) -> Outcome {
        let moved = self.moved(before, since)?;
        if !moved.is_empty() {
            return Err(format!("These leases should not have moved: {}.", moved.join(", ")).into());
        }
        let count = format!("0 of {}", before.len());
        self.narrator
            .say(&format!("{count} leases moved: the holders and the tokens are the same, no event shows a gap"));
        self.figure(what, count);
        Ok(())
    }

    pub fn see_roles(&mut self, lease: &LeaseState) -> Outcome {
        self.lease().wait_for_roles(lease, REPLICAS, SOON)?;
        self.narrator.say("Only its pod is labelled lease.redislease.io/billing: active");
        Ok(())
    }

    pub fn wait_until<T>(
        &self,
        what: &str,
        within: Duration,
        mut probe: impl FnMut() -> Result<T, String>,
    ) -> Outcome<T> {
        let probe = || {
            self.narrator.tick();
            probe()
        };
        Ok(self.installation.wait_for(what, within, probe)?)
    }

    /// A pod of the workload.
    pub fn pod(&self, name: &str) -> Outcome<Value> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
        self.installation.control_plane().get(&path)?.ok_or_else(|| format!("The pod {name} does not exist.").into())
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

/// Whether this event shows another holder of the workload's lease.
fn is_next(event: &WatchEvent, before: &LeaseState) -> bool {
    let status = &event.object["status"];
    let is_lease = event.object["metadata"]["name"] == WORKLOAD;
    let other = status["holder"]["pod"].as_str().is_some_and(|pod| Some(pod) != before.holder());
    is_lease && other && status["attempt"].is_string()
}

/// The container of a pod of the workload. The kubelet says that a container runs before its process has become that of the workload.
pub fn container(pod: &Value) -> Outcome<Container> {
    let none = || format!("No process of the pod {} runs.", pod["metadata"]["name"]);
    Ok(poll(Duration::from_secs(10), || running(pod).map_err(|error| error.to_string())?.ok_or_else(none))?)
}

/// The same, if it runs now.
pub fn running(pod: &Value) -> Outcome<Option<Container>> {
    Ok(Container::find(pod["metadata"]["uid"].as_str().unwrap_or_default(), "/workload")?)
}
