//! A RedisQuorum that allows the leases of some namespaces only.

use redislease_lab::{Installation, InstallationOptions, LeaseState, Result};
use serde_json::json;

use crate::holder::held;
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, change_rules, keys, no_pod_is_active, options, set_rules,
    the_term_is_kept, throughout,
};

fn label(installation: &Installation, namespace: &str, label: &str) -> Result<()> {
    installation.control_plane().kubectl(&["label", "namespace", namespace, label, "--overwrite"]).map(drop)
}

fn only_team_shop() -> InstallationOptions {
    let quorum = json!({"allowedNamespaces": {"matchLabels": {"team": "shop"}}});
    InstallationOptions { quorum, password: Some("secret".into()), ..options() }
}

/// The message of the condition Ready.
fn message(lease: &LeaseState) -> String {
    lease.condition("Ready").map(|ready| ready.message).unwrap_or_default()
}

#[test]
fn a_namespace_that_is_not_allowed_gets_no_lease_and_learns_nothing() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&only_team_shop())?;
    installation.deployment("other", "billing", 2)?;
    let refused = installation.lease("other", "billing", &json!({}))?;
    let missing = installation.lease("other", "missing", &json!({"quorumRef": {"name": "nowhere"}}))?;
    let refused = refused.wait("refused", FIRST_ELECTION, |now| now.reason("Ready") == "InvalidReference")?;
    let missing = missing.wait("missing", SOON, |now| now.reason("Ready") == "InvalidReference")?;
    assert_eq!(message(&refused).replace("/default,", "/nowhere,"), message(&missing));
    let events = installation.control_plane().get("/apis/events.k8s.io/v1/namespaces/other/events")?;
    let known = format!("{} {}", refused.json(), events.unwrap_or_default());
    let secrets = installation.redis().iter().map(|server| server.address().to_string());
    for secret in secrets.chain(["redis-password".to_owned(), "fingerprint".to_owned(), "redis-0".to_owned()]) {
        assert!(!known.contains(&secret), "{secret} is in {known}");
    }
    assert!(keys(&installation, "other", "billing").iter().all(Option::is_none));
    // The name of a quorum that a tenant invents is a label of its own lease, and makes no series of a quorum.
    operator.wait_for_metrics(SOON, |page| {
        let named: Vec<&str> = page.text().lines().filter(|line| line.contains("nowhere")).collect();
        let (of_lease, of_quorum): (Vec<&str>, _) = named.iter().partition(|line| line.contains("lease=\"missing\""));
        assert_eq!(of_quorum, Vec::<&str>::new());
        if of_lease.is_empty() { Err("no series of the lease".to_owned()) } else { Ok(()) }
    })?;
    label(&installation, "other", "team=shop")?;
    installation.find_lease("other", "billing").wait("allowed", FIRST_ELECTION, LeaseState::is_active)?;

    // The quorum denies it again.
    let spec = json!({"spec": {"allowedNamespaces": {"matchLabels": {"team": "none"}}}}).to_string();
    let quorum = ["patch", "redisquorum", "default", "-n", "redislease-system", "--type=merge", "--patch", &spec];
    installation.control_plane().kubectl(&quorum)?;
    installation
        .find_lease("other", "billing")
        .wait("denied", AFTER_ONE_LEASE, |now| !now.is_active() && now.reason("Ready") == "InvalidReference")?;
    Ok(())
}

#[test]
fn the_term_of_a_namespace_that_loses_its_label_is_sealed_and_expires() -> Result<()> {
    let Cluster { operator: _operator, installation } = Cluster::with_own_redis(&only_team_shop())?;
    installation.deployment("shop", "billing", 1)?;
    label(&installation, "shop", "team=shop")?;
    let (lease, first) = held(&installation, "shop")?;
    label(&installation, "shop", "team=none")?;
    let ended = lease.wait("the term has ended", SOON, |now| !now.is_active())?;
    assert_eq!(ended.reason("Ready"), "InvalidReference");
    let sealed = keys(&installation, "shop", "billing").into_iter().flatten().filter(|key| key.stage() == "s").count();
    assert_eq!(sealed, 3, "it is not released: the pod may still run");
    no_pod_is_active(&installation, &lease)?;
    installation.wait_for("the keys expire", AFTER_ONE_LEASE, || {
        let left = keys(&installation, "shop", "billing");
        if left.iter().all(Option::is_none) { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    throughout(SOON, |after| {
        assert!(!lease.state()?.is_active(), "no term begins; after {after:?}");
        Ok(())
    })?;
    let history = lease.state()?.json()["status"]["history"][0].clone();
    assert_eq!(history["reason"], json!("NamespaceNotAllowed"), "{history}");
    label(&installation, "shop", "team=shop")?;
    let second = lease.wait("held again", AFTER_ONE_LEASE, LeaseState::is_active)?;
    assert!(second.token() > first.token());
    Ok(())
}

#[test]
fn while_labels_are_unknown_terms_continue_and_none_begins() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&only_team_shop())?;
    installation.deployment("unknown", "billing", 1)?;
    label(&installation, "unknown", "team=shop")?;
    let (lease, first) = held(&installation, "unknown")?;
    let whole = change_rules(&installation, |rule| {
        if rule["resources"] == json!(["namespaces"]) {
            rule["resourceNames"] = json!(["kube-system"]);
            rule["verbs"] = json!(["get"]);
        }
    })?;
    operator.restart()?;
    let attempt = first.attempt().unwrap_or_default();
    the_term_is_kept(&installation, "unknown", attempt)?;
    assert!(lease.state()?.is_active());
    let new = installation.lease(
        "unknown",
        "new",
        &json!({"candidates": {"selector": {"matchLabels": {"app": "billing"}}}, "keys": ["new"]}),
    )?;
    let waiting = new.wait("it waits", FIRST_ELECTION, |now| now.reason("Ready") == "QuorumUnavailable")?;
    assert!(message(&waiting).contains("has not read the labels of this namespace"), "{}", message(&waiting));
    set_rules(&installation, &whole)?;
    new.wait("held", FIRST_ELECTION * 2, LeaseState::is_active)?;
    assert_eq!(lease.state()?.token(), first.token());
    Ok(())
}
