//! The operator's RBAC rules.

use redislease_lab::{Result, SYSTEM};

use crate::support::shared;

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
