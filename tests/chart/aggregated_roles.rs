//! The rights that the chart adds to the ClusterRoles `view`, `edit` and `admin` of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redislease_lab::{Helm, Result};
use serde_json::json;

use crate::cluster::shared;

const NAMESPACE: &str = "aggregated";
/// The controller of Kubernetes collects the rules within moments.
const SOON: Duration = Duration::from_secs(30);
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// What a user may do with the kinds of RedisLease in the namespace: the verbs, by resource.
fn rights(user: &str, namespace: &str) -> std::result::Result<BTreeMap<String, BTreeSet<String>>, String> {
    let list = ["auth", "can-i", "--list", "--no-headers", "--as", user, "--namespace", namespace];
    let list = shared().control_plane().kubectl(&list)?;
    let mut rights: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in list.lines() {
        // The resource, URLs, names of objects, and the verbs in the last brackets.
        let verbs = line.rsplit_once('[').and_then(|(_, verbs)| verbs.strip_suffix(']'));
        let resource = line.split(' ').next().unwrap_or_default();
        if let (Some(verbs), true) = (verbs, resource.contains("redislease") || resource.contains('*')) {
            rights.entry(resource.to_owned()).or_default().extend(verbs.split_whitespace().map(str::to_owned));
        }
    }
    Ok(rights)
}

#[test]
fn users_of_view_edit_and_admin_get_the_documented_rights() -> Result<()> {
    let installation = shared();
    let cluster = installation.control_plane();
    cluster.apply(&Helm::new()?.template(&["--show-only=templates/aggregated-roles.yaml"])?)?;
    installation.namespace(NAMESPACE)?;
    for role in ["view", "edit", "admin"] {
        installation.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("user-{role}")}],
        }))?;
    }
    let all: Vec<&str> = READ.into_iter().chain(WRITE).collect();
    for (role, leases, quorums) in
        [("view", &READ[..], &READ[..]), ("edit", &all[..], &READ[..]), ("admin", &all[..], &all[..])]
    {
        let user = format!("user-{role}");
        let set = |verbs: &[&str]| verbs.iter().map(|&verb| verb.to_owned()).collect::<BTreeSet<_>>();
        // Nothing else: the status is the operator's.
        let expected = BTreeMap::from([
            ("redisleases.redislease.io".to_owned(), set(leases)),
            ("redisquorums.redislease.io".to_owned(), set(quorums)),
        ]);
        installation.wait_for(&format!("{role} has exactly its rights"), SOON, || match rights(&user, NAMESPACE)? {
            rights if rights == expected => Ok(()),
            rights => Err(format!("{rights:?}")),
        })?;
        assert_eq!(rights(&user, "default"), Ok(BTreeMap::new()), "{role}: in another namespace");
    }
    assert_eq!(rights("nobody", NAMESPACE), Ok(BTreeMap::new()), "a user without a role");
    Ok(())
}
