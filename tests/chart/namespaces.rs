//! An operator that has rights in some namespaces only.

use std::time::Duration;

use redislease_lab::{Installation, InstallationOptions, LeaseState, Result};
use serde_json::json;

/// Limit for the first election on a new quorum, which waits for maxLeaseDuration (10 s).
const FIRST_ELECTION: Duration = Duration::from_mins(1);
/// Limit for what waits for no lease.
const SOON: Duration = Duration::from_secs(10);
/// Limit for the operator to read the labels of its namespaces, which it does every 10 s.
const LABELS_READ: Duration = Duration::from_secs(30);

const WATCHED: [&str; 2] = ["shop", "billing"];

/// What the operator may do and `redislease doctor` does not require: a verb, a resource and a namespace.
const ALLOWED: [(&str, &str, &str); 2] = [("get", "secrets", "redislease-system"), ("get", "nodes", "")];

/// What it may not do.
const REFUSED: [(&str, &str, &str); 13] = [
    ("list", "pods", "elsewhere"),
    ("patch", "pods", "elsewhere"),
    ("list", "redisleases.redislease.io", "elsewhere"),
    ("create", "redisleases.redislease.io", "elsewhere"),
    ("list", "deployments.apps", "elsewhere"),
    ("update", "redisleases.redislease.io/status", "elsewhere"),
    ("list", "pods", "redislease-system"),
    ("list", "pods", "kube-system"),
    ("delete", "pods", "shop"),
    ("patch", "deployments.apps", "shop"),
    ("patch", "cronjobs.batch", "shop"),
    ("get", "secrets", "shop"),
    ("list", "nodes", ""),
];

fn each_watched_namespace_has_a_holder_and_another(installation: &Installation) -> Result<()> {
    for namespace in WATCHED {
        let lease = installation.find_lease(namespace, "web");
        let first = lease.wait("a holder", FIRST_ELECTION, LeaseState::is_active)?;
        let holder = first.holder().unwrap_or_default();
        installation.control_plane().kubectl(&["delete", "pod", "--namespace", namespace, holder])?;
        lease.wait("another holder", SOON, |lease| {
            lease.is_active() && lease.holder() != first.holder() && lease.token() > first.token()
        })?;
    }
    Ok(())
}

fn annotations_count_in_the_watched_namespaces_only(installation: &Installation) -> Result<()> {
    let cluster = installation.control_plane();
    for namespace in ["elsewhere", "shop"] {
        installation.deployment(namespace, "annotated", 1)?;
        let annotation = "redislease.io/lease=true";
        cluster.kubectl(&["annotate", "deployment", "annotated", annotation, "--namespace", namespace])?;
    }
    let created = ["wait", "redislease/annotated", "--for=create", "--timeout=60s", "--namespace=shop"];
    cluster.kubectl(&created)?;
    let leases = cluster.kubectl(&["get", "redisleases", "--namespace=elsewhere", "--output=name"])?;
    assert_eq!(leases.trim(), "redislease.redislease.io/web");
    Ok(())
}

/// In this mode the operator reads the labels of each namespace every 10 s.
fn labels_of_namespaces_are_read(installation: &Installation) -> Result<()> {
    let cluster = installation.control_plane();
    cluster.kubectl(&["label", "namespace", "shop", "team=shop"])?;
    let allow = r#"{"spec": {"allowedNamespaces": {"matchLabels": {"team": "shop"}}}}"#;
    let quorum = ["patch", "redisquorum", "default", "--namespace=redislease-system", "--type=merge", "--patch", allow];
    cluster.kubectl(&quorum)?;
    let billing = installation.find_lease("billing", "web");
    billing
        .wait("not allowed", LABELS_READ, |lease| !lease.is_active() && lease.reason("Ready") == "InvalidReference")?;
    cluster.kubectl(&["label", "namespace", "billing", "team=shop"])?;
    billing.wait("allowed again", LABELS_READ + FIRST_ELECTION, LeaseState::is_active)?;
    Ok(())
}

fn has_only_its_rights(installation: &Installation) -> Result<()> {
    let cluster = installation.control_plane();
    let kubeconfig = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    cluster.kubectl(&["get", "namespace", "kube-system", &kubeconfig])?;
    for (verb, resource, namespace) in ALLOWED {
        assert!(installation.operator_may(verb, resource, namespace)?, "{verb} {resource} in {namespace}");
    }
    for (verb, resource, namespace) in REFUSED {
        let may = installation.operator_may(verb, resource, namespace)?;
        assert!(!may, "{verb} {resource} in {namespace} must be refused");
    }
    Ok(())
}

#[test]
fn an_operator_with_roles_in_two_namespaces_serves_both_and_no_other() -> Result<()> {
    let options = InstallationOptions {
        watch_namespaces: WATCHED.map(str::to_owned).to_vec(),
        ..InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
    };
    let installation = Installation::start(&options)?;
    for namespace in ["shop", "billing", "elsewhere"] {
        installation.deployment(namespace, "web", 2)?;
    }
    let elsewhere = installation.lease("elsewhere", "web", &json!({}))?;
    for namespace in WATCHED {
        installation.lease(namespace, "web", &json!({}))?;
    }
    let operator = installation.start_operator("operator-0", &[])?;
    operator.wait_ready()?;
    each_watched_namespace_has_a_holder_and_another(&installation)?;
    annotations_count_in_the_watched_namespaces_only(&installation)?;
    let status = elsewhere.state()?.json()["status"].clone();
    assert!(status.is_null(), "a lease in a namespace that is not watched is left alone: {status}");
    labels_of_namespaces_are_read(&installation)?;
    has_only_its_rights(&installation)
}
