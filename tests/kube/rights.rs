//! What the operator may do, and what it is refused.

use crate::world::shared;

#[test]
fn the_operator_may_do_what_it_needs_and_nothing_else() {
    let installation = &shared().installation;
    let kubeconfig = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    let may = |verb: &str, resource: &str, namespace: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let subresource = format!("--subresource={subresource}");
        let args = ["auth", "can-i", verb, resource, &subresource, "-n", namespace, &kubeconfig];
        // `no` is an exit code, and the answer stands in the error.
        match installation.control_plane().kubectl(&args) {
            Ok(answer) => answer.trim() == "yes",
            Err(_) => false,
        }
    };
    let system = "redislease-system";
    for (verb, resource, namespace) in [
        ("list", "redisleases.redislease.io", "shop"),
        ("update", "redisleases.redislease.io/status", "shop"),
        ("patch", "pods", "shop"),
        ("watch", "pods", "shop"),
        ("get", "deployments.apps", "shop"),
        ("create", "events.events.k8s.io", "shop"),
        ("get", "secrets", system),
        ("update", "redisquorums.redislease.io/status", system),
    ] {
        assert!(may(verb, resource, namespace), "{verb} {resource} in {namespace}");
    }
    for (verb, resource, namespace) in [
        ("get", "secrets", "shop"),
        ("list", "secrets", system),
        ("create", "redisleases.redislease.io", "shop"),
        ("update", "redisleases.redislease.io", "shop"),
        ("delete", "redisleases.redislease.io", "shop"),
        ("get", "redisquorums.redislease.io", "shop"),
        ("update", "redisquorums.redislease.io", system),
        ("delete", "pods", "shop"),
        ("create", "pods", "shop"),
        ("create", "pods/exec", "shop"),
        ("patch", "pods/status", "shop"),
        ("patch", "deployments.apps", "shop"),
        ("list", "deployments.apps", "shop"),
        ("get", "nodes", ""),
        ("patch", "customresourcedefinitions.apiextensions.k8s.io", ""),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
        ("impersonate", "users", ""),
    ] {
        assert!(!may(verb, resource, namespace), "{verb} {resource} in {namespace} must be refused");
    }
}
