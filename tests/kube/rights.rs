//! The operator's RBAC rules.

use redislease_lab::{LeaseState, Result, SYSTEM};
use serde_json::json;

use crate::holder::held;
use crate::support::{Cluster, FIRST_ELECTION, change_rules, set_rules, shared, the_term_is_kept};

/// What the operator may do and `redislease doctor` does not require: a verb, a resource and a namespace. The tests of `doctor` show that
/// the operator has each right that it requires.
const ALLOWED: [(&str, &str, &str); 2] = [("get", "nodes", ""), ("get", "secrets", SYSTEM)];

/// What it may not do.
const REFUSED: [(&str, &str, &str); 20] = [
    ("get", "secrets", "shop"),
    ("list", "secrets", SYSTEM),
    ("update", "redisleases.redislease.io", "shop"),
    ("deletecollection", "redisleases.redislease.io", "shop"),
    ("get", "redisquorums.redislease.io", "shop"),
    ("update", "redisquorums.redislease.io", SYSTEM),
    ("delete", "pods", "shop"),
    ("create", "pods", "shop"),
    ("create", "pods/exec", "shop"),
    ("patch", "pods/status", "shop"),
    ("patch", "deployments.apps", "shop"),
    ("patch", "cronjobs.batch", "shop"),
    ("delete", "jobs.batch", "shop"),
    ("list", "replicasets.apps", "shop"),
    ("list", "nodes", ""),
    ("patch", "nodes", ""),
    ("patch", "namespaces", "shop"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
    ("impersonate", "serviceaccounts", "shop"),
];

#[test]
fn the_operator_has_exactly_the_permissions_that_it_needs() -> Result<()> {
    let installation = &shared().installation;
    for (verb, resource, namespace) in ALLOWED {
        assert!(installation.operator_may(verb, resource, namespace)?, "{verb} {resource} in {namespace}");
    }
    for (verb, resource, namespace) in REFUSED {
        let may = installation.operator_may(verb, resource, namespace)?;
        assert!(!may, "{verb} {resource} in {namespace} must be refused");
    }
    let misspelled = installation.operator_may("get", "secretz", SYSTEM);
    assert!(misspelled.is_err(), "a refusal of what does not exist would prove nothing: {misspelled:?}");
    Ok(())
}

#[test]
fn a_workload_that_the_operator_may_not_read_is_unknown_and_ends_no_term() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let (lease, first) = held(&installation, "unreadable")?;
    let rules = change_rules(&installation, |rule| {
        if rule["apiGroups"] == json!(["apps"]) {
            rule["verbs"] = json!(["list", "watch"]);
        }
    })?;
    operator.restart()?;
    let forbidden = |now: &LeaseState| {
        let message = now.message("Ready");
        message.contains("no right to read Deployment unreadable/") && message.contains("cannot get resource")
    };
    lease.wait("the missing right is named", FIRST_ELECTION, |now| {
        forbidden(now) && now.reason("Ready") == "Forbidden" && now.is_active()
    })?;
    the_term_is_kept(&installation, "unreadable", first.attempt().unwrap_or_default())?;

    installation.deployment("unreadable", "new", 1)?;
    let new = installation.lease("unreadable", "new", &json!({}))?;
    let unknown = new.wait("unknown", FIRST_ELECTION, forbidden)?;
    let ready = unknown.condition("Ready").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Forbidden"), "{}", ready.message);
    set_rules(&installation, &rules)?;
    // The pauses between two reads have grown.
    new.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    let after = lease.wait("readable again", FIRST_ELECTION * 2, |now| !forbidden(now))?;
    assert_eq!((after.token(), after.is_active()), (first.token(), true));
    Ok(())
}
