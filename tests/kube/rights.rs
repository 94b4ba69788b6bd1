//! The operator's RBAC rules.

use std::collections::BTreeMap;

use redislease_lab::{ControlPlane, Installation, LeaseState, Result, SYSTEM};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{Cluster, FIRST_ELECTION, change_rules, set_rules, shared, the_term_is_kept};

/// `users` can be impersonated, but the API server does not list them as a resource.
const UNLISTED: (&str, &str) = ("impersonate", "users");

/// Resources (`deployments.apps`, `pods/exec`) with their groups and verbs.
type Resources = BTreeMap<String, (String, Vec<Value>)>;

/// Every resource that the API server lists.
fn listed(cluster: &ControlPlane) -> Result<Resources> {
    let groups = cluster.get("/apis")?.unwrap_or_default();
    let groups = groups["groups"].as_array().into_iter().flatten();
    let versions =
        groups.filter_map(|group| Some(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str()?)));
    let mut listed = BTreeMap::new();
    for path in versions.chain(["/api/v1".to_owned()]) {
        let list = cluster.get(&path)?.unwrap_or_default();
        let version = list["groupVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        for resource in list["resources"].as_array().into_iter().flatten() {
            let (name, sub) = split(resource["name"].as_str().unwrap_or_default());
            let name = [name, group].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(".");
            let name = if sub.is_empty() { name } else { format!("{name}/{sub}") };
            listed.insert(name, (group.to_owned(), resource["verbs"].as_array().cloned().unwrap_or_default()));
        }
    }
    Ok(listed)
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

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
    (UNLISTED.0, UNLISTED.1, ""),
];

/// The API server's answer to the operator's question whether it may do something: `true/` or `false/`, and an error. `listed` is
/// what the API server lists: it also rejects a misspelled verb or resource, which would prove nothing.
fn may(installation: &Installation, listed: &Resources, (verb, what, namespace): (&str, &str, &str)) -> Result<String> {
    let (name, sub) = split(what);
    let group = if (verb, what) == UNLISTED {
        ""
    } else {
        let (group, verbs) = listed.get(what).unwrap_or_else(|| panic!("{what} is not a resource of the API server"));
        assert!(verbs.contains(&json!(verb)), "{what} does not support {verb}: {verbs:?}");
        group
    };
    let resource = name.split('.').next();
    let mut attributes =
        json!({"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace});
    if what == "namespaces" {
        attributes["name"] = json!(namespace);
    }
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let kubeconfig = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    let answer = "--output=jsonpath={.status.allowed}/{.status.evaluationError}";
    // With validation kubectl reads CRDs, for which the operator has no permission.
    let args = ["create", "--filename=-", "--validate=false", answer, &kubeconfig];
    installation.control_plane().kubectl_with_input(&args, &question.to_string())
}

#[test]
fn the_operator_has_exactly_the_permissions_that_it_needs() -> Result<()> {
    let installation = &shared().installation;
    let listed = listed(installation.control_plane())?;
    for (verb, resource, namespace) in ALLOWED {
        let answer = may(installation, &listed, (verb, resource, namespace))?;
        assert_eq!(answer, "true/", "{verb} {resource} in {namespace}");
    }
    for (verb, resource, namespace) in REFUSED {
        let answer = may(installation, &listed, (verb, resource, namespace))?;
        assert_eq!(answer, "false/", "{verb} {resource} in {namespace} must be refused");
    }
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
