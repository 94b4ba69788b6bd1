//! A release of the chart from its installation to its removal. Its pods are simulated, but run under the real admission of
//! the pod security standard `restricted`. An operator process beside them has the rights of the release.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use redislease_lab::{
    Components, ControlPlane, Helm, Installation, InstallationOptions, Lease, LeaseState, RELEASE, Result, SYSTEM,
    nodes,
};
use serde_json::{Value, json};

const ACCOUNT: &str = "redislease-operator";

/// Limit for an election on nodes that must first wait for maxLeaseDuration (10 s).
const FIRST_ELECTION: Duration = Duration::from_mins(1);
/// Limit for what the controllers of Kubernetes do.
const SOON: Duration = Duration::from_mins(1);

struct Release {
    installation: Installation,
    helm: Helm,
}

impl Release {
    fn install() -> Result<Self> {
        let options = InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"));
        let control_plane = ControlPlane::start(Components::Nodes(3))?;
        let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": restricted},
        });
        control_plane.apply_object(&namespace)?;
        let redis = options.start_redis()?;
        let helm = Helm::with_kubeconfig(control_plane.kubeconfig())?;
        let wait = ["--wait", "--timeout=2m"];
        Ok(Self { installation: Installation::install_chart(&options, control_plane, redis, &wait)?, helm })
    }

    /// Runs a command of Helm on the release.
    fn helm(&self, command: &str, args: &[&str]) -> Result<String> {
        let whole = [&[command, RELEASE][..], args, &["--namespace", SYSTEM]].concat();
        self.helm.run(&whole)
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.installation.control_plane().kubectl(&[args, &["--namespace", SYSTEM]].concat())
    }

    /// Waits until so many operator pods run, and returns the Kubernetes nodes that they run on.
    fn nodes_of_pods(&self, count: usize) -> Result<BTreeSet<String>> {
        self.installation.wait_for("the operator pods run", SOON, || {
            let selector = "--selector=app.kubernetes.io/component=operator";
            let columns = "--output=jsonpath={range .items[*]}{.spec.nodeName} {.status.phase}{\"\\n\"}{end}";
            let pods = self.kubectl(&["get", "pods", selector, columns])?;
            let running: Vec<&str> = pods.lines().filter_map(|line| line.strip_suffix(" Running")).collect();
            if pods.lines().count() == count && running.len() == count {
                Ok(running.into_iter().map(str::to_owned).collect())
            } else {
                Err(pods)
            }
        })
    }

    fn quorum_uid(&self) -> Result<String> {
        self.kubectl(&["get", "redisquorum", "default", "--output=jsonpath={.metadata.uid}"])
    }

    /// All objects with the labels of the release, as `kind/name`. Pods and what belongs to them vanish a little later.
    fn objects(&self) -> Result<BTreeSet<String>> {
        let listable = ["api-resources", "--verbs=list", "--output=name"];
        let kinds = self.installation.control_plane().kubectl(&listable)?;
        // Events have no labels, and Helm's own record is no object of the chart.
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events") && *kind != "secrets").collect();
        let selector = "--selector=app.kubernetes.io/part-of=redislease";
        let args = ["get", &kinds.join(","), "--all-namespaces", "--output=name", selector];
        let found = self.installation.control_plane().kubectl(&args)?;
        Ok(found.lines().map(str::to_owned).collect())
    }

    /// After the removal: waits until only the definitions and the quorum are left, which have the annotation that keeps them.
    fn only_kept_is_left(&self) -> Result<()> {
        let kept = BTreeSet::from([
            "customresourcedefinition.apiextensions.k8s.io/redisleases.redislease.io".to_owned(),
            "customresourcedefinition.apiextensions.k8s.io/redisquorums.redislease.io".to_owned(),
            "redisquorum.redislease.io/default".to_owned(),
        ]);
        self.installation.wait_for("only what is to be kept is left", SOON, || match self.objects() {
            Ok(objects) if objects == kept => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        for object in &kept {
            let policy = "--output=jsonpath={.metadata.annotations.helm\\.sh/resource-policy}";
            assert_eq!(self.kubectl(&["get", object, policy])?, "keep", "{object}");
        }
        Ok(())
    }
}

/// The lease has the holder and the term that it had before.
fn assert_same_term(lease: &Lease<'_>, before: &LeaseState, after: &str) -> Result<()> {
    let now = lease.state()?;
    assert!(now.continues(before) && now.uid() == before.uid(), "{after}: {now}, and before {before}");
    Ok(())
}

#[test]
fn a_release_is_installed_upgraded_rolled_back_and_removed_without_harm_to_leases() -> Result<()> {
    let release = Release::install()?;
    let installation = &release.installation;
    assert_eq!(release.nodes_of_pods(2)?.len(), 2, "each pod runs on a Kubernetes node of its own");
    let mut quorum = release.quorum_uid()?;

    let operator = installation.start_operator("operator-0", &[])?;
    installation.deployment("shop", "billing", 3)?;
    let lease = installation.lease("shop", "billing", &json!({}))?;
    let term = lease.wait("a holder", FIRST_ELECTION, LeaseState::is_active)?;

    // The first upgrade finds the quorum that a hook has created, and takes it over.
    let chart = Helm::chart();
    release
        .helm("upgrade", &[&chart, "--reuse-values", "--set=replicas=3,log.level=debug", "--wait", "--timeout=2m"])?;
    assert_eq!(release.nodes_of_pods(3)?.len(), 3);
    assert_same_term(&lease, &term, "after the upgrade")?;
    assert_eq!(release.quorum_uid()?, quorum, "the quorum is the same object");

    release.helm("rollback", &["1", "--wait", "--timeout=2m"])?;
    assert_eq!(release.nodes_of_pods(2)?.len(), 2);
    assert_same_term(&lease, &term, "after the rollback")?;
    assert_eq!(release.quorum_uid()?, quorum, "the quorum survives the rollback to a revision without it");

    release.helm("upgrade", &[&chart, "--reuse-values", "--wait", "--timeout=2m"])?;
    assert_same_term(&lease, &term, "after the second upgrade")?;
    assert_eq!(release.quorum_uid()?, quorum);

    // A deleted quorum is created again by an upgrade that changes nothing else.
    release.kubectl(&["delete", "redisquorum", "default"])?;
    lease.wait("the quorum is missing", SOON, |now| now.reason("Ready") == "InvalidReference")?;
    assert_same_term(&lease, &term, "without the quorum")?;
    release.helm("upgrade", &[&chart, "--reuse-values", "--wait", "--timeout=2m"])?;
    lease.wait("the quorum is there again", SOON, |now| now.reason("Ready") == "HeldHere")?;
    assert_same_term(&lease, &term, "with the quorum that was created again")?;
    let deleted = std::mem::replace(&mut quorum, release.quorum_uid()?);
    assert_ne!(quorum, deleted, "the quorum is another object");

    operator.stop()?;
    release.helm("uninstall", &["--wait", "--timeout=2m"])?;
    release.only_kept_is_left()?;
    assert_eq!(release.quorum_uid()?, quorum);
    assert_same_term(&lease, &term, "after the removal, in status")?;

    // A new installation takes over what was kept, and continues the leases.
    release.helm("install", &[&chart, "--set=cluster.name=lab", "--wait", "--timeout=2m"])?;
    installation.control_plane().service_account_kubeconfig(SYSTEM, ACCOUNT)?;
    operator.start_again()?;
    operator.wait_ready()?;
    // Until the operator has looked, the status shows the last term, which may have expired on a slow machine.
    installation.wait_for("a holder again, with its label", FIRST_ELECTION, || {
        let again = lease.state()?;
        if again.uid() != term.uid() || !again.is_active() || again.token() < term.token() {
            return Err(again.to_string());
        }
        Ok(lease.wait_for_roles(&again, 3, Duration::from_secs(2))?)
    })
}

/// As docs/install.md says: a hook has created the quorums of revision 1, and no hook runs in a rollback.
#[test]
fn an_upgrade_after_a_rollback_to_the_first_revision_restores_the_quorums() -> Result<()> {
    let cluster = ControlPlane::start(Components::Controllers)?;
    cluster.kubectl(&["create", "namespace", SYSTEM])?;
    let helm = Helm::with_kubeconfig(cluster.kubeconfig())?;
    let chart = Helm::chart();
    let with_port_of_c = |port: u16| {
        let addresses = [7001, 7002, port].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        format!("--set-json=quorums=[{}]", json!({"name": "default", "nodes": nodes(addresses)}))
    };
    let port_of_c = || -> Result<String> {
        let address = "--output=jsonpath={.spec.nodes[2].address}";
        cluster.kubectl(&["get", "redisquorum", "default", "--namespace", SYSTEM, address])
    };
    helm.run(&["install", RELEASE, &chart, "--namespace", SYSTEM, &with_port_of_c(7003)])?;
    helm.run(&["upgrade", RELEASE, &chart, "--namespace", SYSTEM, &with_port_of_c(7004)])?;
    helm.run(&["rollback", RELEASE, "1", "--namespace", SYSTEM])?;
    assert_eq!(port_of_c()?, "127.0.0.1:7004", "the rollback changes no quorum");
    let again = ["upgrade", RELEASE, &chart, "--namespace", SYSTEM, "--reuse-values"];
    helm.run(&again)?;
    assert_eq!(port_of_c()?, "127.0.0.1:7003");

    cluster.kubectl(&["delete", "redisquorum", "default", "--namespace", SYSTEM])?;
    helm.run(&["rollback", RELEASE, "1", "--namespace", SYSTEM])?;
    port_of_c().expect_err("the rollback creates no quorum");
    helm.run(&again)?;
    assert_eq!(port_of_c()?, "127.0.0.1:7003");
    Ok(())
}

/// A lease of the default duration, during which another replica must come back.
const LEASE: Duration = Duration::from_secs(30);

#[test]
fn an_operator_pod_on_a_lost_node_is_replaced_on_another_node_within_a_lease() -> Result<()> {
    let release = Release::install()?;
    let (installation, before) = (&release.installation, release.nodes_of_pods(2)?);
    let lost = before.first().expect("two nodes").clone();
    let began = Instant::now();
    installation.control_plane().lose_node(&lost)?;
    let left: BTreeSet<String> = installation.wait_for("two operator pods are Ready on other nodes", LEASE, || {
        let selector = "--selector=app.kubernetes.io/component=operator";
        let pods = release.kubectl(&["get", "pods", selector, "--output=json"])?;
        let pods: Value = serde_json::from_str(&pods).map_err(|error| error.to_string())?;
        let is_ready = |pod: &&Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        let ready = pods["items"].as_array().into_iter().flatten().filter(is_ready);
        let nodes: BTreeSet<String> =
            ready.filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned)).collect();
        if nodes.len() == 2 && !nodes.contains(&lost) {
            Ok(nodes)
        } else {
            Err(format!("{nodes:?} of {before:?}: {pods}"))
        }
    })?;
    println!("{left:?} instead of {before:?} after {:.1?}", began.elapsed());
    Ok(())
}
