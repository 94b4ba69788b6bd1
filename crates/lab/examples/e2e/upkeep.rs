//! What administrators do: roll the operator out, rotate certificates, uninstall the chart.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use redislease_lab::{Authority, Error as LabError, RELEASE, SYSTEM};

use crate::{
    setup::{NAMESPACE, Outcome, WORKLOAD, certificates, inventory, server_tls},
    story::{LEASE_DURATION, LEASES, OPERATOR, SOON, Story, container},
};

/// What `helm uninstall` leaves besides the leases. Kubernetes makes the APIService for the definitions.
const KEPT: [&str; 4] = [
    "APIService v1alpha1.redislease.io",
    "CustomResourceDefinition redisleases.redislease.io",
    "CustomResourceDefinition redisquorums.redislease.io",
    "RedisQuorum redislease-system/default",
];

/// The operator reads secrets every 15 s.
const SECRET_READ: Duration = Duration::from_secs(40);

impl Story<'_> {
    pub fn operator_is_rolled_out(&mut self) -> Outcome {
        self.narrator.chapter("kubectl rollout restart of the operator");
        let (held, began) = (self.held()?, Instant::now());
        let leader = self.installation.quorum()?.leader().unwrap_or_default().to_owned();
        self.kubectl(&["rollout", "restart", OPERATOR, "--namespace", SYSTEM])?;
        self.kubectl(&["rollout", "status", OPERATOR, "--namespace", SYSTEM, "--timeout=120s"])?;
        let next = self
            .installation
            .wait_for_quorum("a new pod leads", SOON, |quorum| quorum.leader().is_some_and(|next| next != leader))?;
        self.wait_until("the old pods are gone", SOON, || {
            let pods = self.operator_pods().map_err(|error| error.to_string())?;
            if pods.len() == 2 { Ok(()) } else { Err(format!("{pods:?}")) }
        })?;
        self.narrator.say(&format!(
            "2 new pods have replaced the old ones after {:.1} s; {} leads",
            began.elapsed().as_secs_f32(),
            next.leader().unwrap_or_default(),
        ));
        self.outlive_a_lease(began)?;
        self.none_moved("leases moved by a rollout of the operator", &held, began)
    }

    pub fn certificates_are_rotated(&mut self) -> Outcome {
        self.narrator.chapter("All certificates are replaced, with those of a new authority");
        let (held, began) = (self.held()?, Instant::now());
        let new = Authority::new("redis-new")?;
        let client = new.sign(&["redislease"])?;
        let both = [self.authority.certificate(), new.certificate()].concat();
        self.installation.apply(&certificates(&both, &client))?;
        self.narrator.say("The secret has both authorities and a client certificate of the new one.");
        let servers = self.installation.redis().to_vec();
        for (index, server) in servers.iter().enumerate() {
            let address = server.tls_address().ok_or("The server has no TLS.")?;
            // A client of the old authority is refused from here on.
            server.set_tls(&server_tls(&new, address.ip())?)?;
            self.reconnect(index)?;
            self.narrator.say(&format!(
                "redis-{index} accepts clients of the new authority only; both operator pods are connected again"
            ));
        }
        self.installation.apply(&certificates(&new.certificate(), &client))?;
        self.installation.wait_for_quorum("all nodes vote", SOON, |quorum| quorum.count("Up") == servers.len())?;
        self.narrator.say("The secret has the new authority only.");
        self.authority = new;
        self.outlive_a_lease(began)?;
        self.none_moved("leases moved by a rotation of all certificates", &held, began)
    }

    pub fn chart_is_uninstalled(&mut self) -> Outcome {
        self.narrator.chapter("helm uninstall");
        let before = self.workload_pods()?;
        let began = Instant::now();
        self.helm.run(&["uninstall", RELEASE, "--namespace", SYSTEM])?;
        self.wait_until("the operator's pods have ended", SOON, || {
            let pods = self.operator_pods().map_err(|error| error.to_string())?;
            if pods.is_empty() { Ok(()) } else { Err(format!("{pods:?}")) }
        })?;
        self.narrator.say(&format!("The operator's pods have ended {:.1} s later.", began.elapsed().as_secs_f32()));
        let leases = (1..LEASES).map(|number| format!("RedisLease {NAMESPACE}/{WORKLOAD}-{number}"));
        let mut expected: BTreeSet<String> = leases.chain([format!("RedisLease {NAMESPACE}/{WORKLOAD}")]).collect();
        expected.extend(KEPT.map(str::to_owned));
        self.wait_until("only what is to be kept is left", SOON, || {
            let now = inventory(self.installation.control_plane()).map_err(|error| error.to_string())?;
            let (left, gone) = (now.difference(&self.inventory), self.inventory.difference(&now));
            let left: BTreeSet<String> = left.cloned().collect();
            let gone: Vec<_> = gone.collect();
            if left == expected && gone.is_empty() { Ok(()) } else { Err(format!("added {left:?}, gone {gone:?}")) }
        })?;
        self.narrator.say(&format!("Compared with the time before helm install, {LEASES} RedisLeases are left, and:"));
        self.narrator.quote(&KEPT.join("\n"));
        self.figure("objects left by helm uninstall, leases included", (KEPT.len() + LEASES).to_string());
        let now = self.workload_pods()?;
        if now != before {
            return Err(format!("The workload's pods should be the same.\nbefore: {before:?}\nnow:    {now:?}").into());
        }
        self.narrator.say(&format!("The {} pods of the workload run on: same processes, no restart", now.len()));
        Ok(())
    }

    /// The names of the operator's pods, those that are stopping included.
    fn operator_pods(&self) -> Outcome<Vec<String>> {
        let selector = "--selector=app.kubernetes.io/component=operator";
        let pods = self.kubectl(&["get", "pods", "--namespace", SYSTEM, selector, "--output=name"])?;
        Ok(pods.lines().map(str::to_owned).collect())
    }

    /// The UID, the restarts and the process of each pod of the workload.
    fn workload_pods(&self) -> Outcome<BTreeMap<String, (u64, i32)>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let pods = self.installation.control_plane().get(&path)?.unwrap_or_default();
        let mut found = BTreeMap::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default();
            found.insert(uid, (restarts, container(pod)?.pid()));
        }
        Ok(found)
    }

    /// Waits until a lease that nobody renews since `began` would have ended.
    fn outlive_a_lease(&mut self, began: Instant) -> Outcome {
        let limit = LEASE_DURATION + Duration::from_secs(2);
        self.wait_until("a lease has passed", limit + SOON, || {
            if began.elapsed() > limit { Ok(()) } else { Err("not yet".to_owned()) }
        })
    }

    /// Closes the connections of both operator pods to this server, and waits until each has a new one that works.
    fn reconnect(&self, index: usize) -> Outcome {
        let server = &self.installation.redis()[index];
        let with_tls = format!(" laddr={} ", server.tls_address().ok_or("The server has no TLS.")?);
        // Only after the login a connection runs commands of a lease.
        let in_use = || -> Result<Vec<(String, String)>, LabError> {
            let list = server.command(&["CLIENT", "LIST"])?.text().unwrap_or_default();
            let lines = list.lines().filter(|line| line.contains(&with_tls) && line.contains(" user=redislease "));
            let field = |line: &str, name: &str| {
                line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned)).unwrap_or_default()
            };
            // The port of a client changes; its address is that of the pod.
            let pod =
                |line: &str| field(line, "addr=").rsplit_once(':').map_or_else(String::new, |(pod, _)| pod.to_owned());
            Ok(lines.map(|line| (field(line, "id="), pod(line))).collect())
        };
        let before = in_use()?;
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        self.wait_until(&format!("both pods are connected to redis-{index} again"), SECRET_READ, || {
            let now = in_use().map_err(|error| error.to_string())?;
            let mut pods: Vec<_> =
                now.iter().filter(|(id, _)| before.iter().all(|(old, _)| old != id)).map(|(_, pod)| pod).collect();
            pods.sort();
            pods.dedup();
            if pods.len() >= 2 { Ok(()) } else { Err(format!("before: {before:?}, now: {now:?}")) }
        })
    }
}
