//! The operator's RBAC rules.

use std::collections::BTreeMap;

use redislease_lab::{ControlPlane, LeaseState, Result};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{Cluster, FIRST_ELECTION, change_rules, set_rules, shared, the_term_is_kept};

/// `users` can be impersonated, but the API server does not list them as a resource.
const UNLISTED: (&str, &str) = ("impersonate", "users");

/// Every resource that the API server lists (`deployments.apps`, `pods/exec`), with its group and verbs.
fn listed(cluster: &ControlPlane) -> Result<BTreeMap<String, (String, Vec<Value>)>> {
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

#[test]
fn the_operator_has_exactly_the_permissions_that_it_needs() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    let kubeconfig = format!("--kubeconfig={}", installation.operator_kubeconfig().display());
    let listed = listed(cluster)?;
    // The API server also rejects a misspelled verb or resource, which would prove nothing.
    let may = |verb: &str, what: &str, namespace: &str| -> Result<String> {
        let (name, sub) = split(what);
        let group = if (verb, what) == UNLISTED {
            ""
        } else {
            let (group, verbs) =
                listed.get(what).unwrap_or_else(|| panic!("{what} is not a resource of the API server"));
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
        let answer = "--output=jsonpath={.status.allowed}/{.status.evaluationError}";
        // With validation kubectl reads CRDs, for which the operator has no permission.
        let args = ["create", "--filename=-", "--validate=false", answer, &kubeconfig];
        cluster.kubectl_with_input(&args, &question.to_string())
    };
    let system = "redislease-system";
    for (verb, resource, namespace) in [
        ("list", "redisleases.redislease.io", "shop"),
        ("update", "redisleases.redislease.io/status", "shop"),
        ("patch", "pods", "shop"),
        ("watch", "pods", "shop"),
        ("get", "deployments.apps", "shop"),
        ("get", "replicasets.apps", "shop"),
        ("list", "deployments.apps", "shop"),
        ("watch", "statefulsets.apps", "shop"),
        ("watch", "daemonsets.apps", "shop"),
        ("watch", "cronjobs.batch", "shop"),
        ("watch", "jobs.batch", "shop"),
        ("create", "redisleases.redislease.io", "shop"),
        ("patch", "redisleases.redislease.io", "shop"),
        ("delete", "redisleases.redislease.io", "shop"),
        ("create", "events.events.k8s.io", "shop"),
        ("get", "nodes", ""),
        ("get", "namespaces", "kube-system"),
        ("watch", "namespaces", ""),
        ("get", "secrets", system),
        ("update", "redisquorums.redislease.io/status", system),
    ] {
        assert_eq!(may(verb, resource, namespace)?, "true/", "{verb} {resource} in {namespace}");
    }
    for (verb, resource, namespace) in [
        ("get", "secrets", "shop"),
        ("list", "secrets", system),
        ("update", "redisleases.redislease.io", "shop"),
        ("deletecollection", "redisleases.redislease.io", "shop"),
        ("get", "redisquorums.redislease.io", "shop"),
        ("update", "redisquorums.redislease.io", system),
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
    ] {
        assert_eq!(may(verb, resource, namespace)?, "false/", "{verb} {resource} in {namespace} must be refused");
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
