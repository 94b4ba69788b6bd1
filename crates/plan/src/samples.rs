//! Objects for tests.

use std::collections::BTreeSet;

use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::annotations::facts::WorkloadFacts;
use crate::api::names::PodRole;
use crate::api::validated::{Workload, WorkloadKind};
use crate::api::{RedisLease, RedisQuorum, ValidQuorum};
use crate::plan::{OpenQuorum, PodChange, Priority, RoleWrite};

/// A lease with this spec. Unless it has candidates, these are the pods with the label `app: a`.
pub fn lease(namespace: &str, name: &str, spec: &Value) -> RedisLease {
    object("RedisLease", namespace, name, json!({"candidates": {"selector": {"matchLabels": {"app": "a"}}}}), spec)
}

/// The Deployment `name` in the namespace `shop` with these annotations under `redislease.io/`.
pub fn annotated(name: &str, annotations: &[(&str, &str)]) -> WorkloadFacts {
    let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let key = ("shop".into(), Workload { kind: WorkloadKind::Deployment, name: name.into() });
    WorkloadFacts { key, uid: format!("uid-{name}"), annotations, owners: BTreeSet::new(), deleting: false }
}

/// The quorum `default` with this spec, and with three nodes unless it has others.
pub fn quorum(spec: &Value) -> RedisQuorum {
    let nodes = ["a", "b", "c"].map(|name| json!({"name": name, "address": format!("{name}:6379")}));
    object("RedisQuorum", "redislease-system", "default", json!({"nodes": nodes}), spec)
}

/// As [`quorum`], validated.
pub fn valid_quorum(spec: &Value) -> ValidQuorum {
    ValidQuorum::try_from(&quorum(spec)).unwrap()
}

/// The quorum `default` with three nodes, as leases use it.
pub fn open_quorum() -> OpenQuorum {
    OpenQuorum {
        id: 1,
        name: "default".into(),
        fingerprint: "f00d".into(),
        quorum: Quorum::of(3).unwrap(),
        longest_lease: Millis(60_000),
        command_timeout: Millis(500),
    }
}

/// The write of the label `active` to this pod, without a token.
pub fn role_write(pod: &str) -> RoleWrite {
    RoleWrite {
        priority: Priority::Active,
        pod: pod.to_owned(),
        uid: format!("uid-{pod}"),
        version: None,
        role: Some(PodRole::Active),
        token: None,
        change: PodChange::None,
        marks: Vec::new(),
        workload: None,
        waits: false,
        dry_run: false,
        not_after: None,
    }
}

fn object<T: DeserializeOwned>(kind: &str, namespace: &str, name: &str, mut whole: Value, spec: &Value) -> T {
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    let metadata = json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"});
    let object = json!({"apiVersion": "redislease.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": whole});
    serde_json::from_value(object).unwrap()
}
