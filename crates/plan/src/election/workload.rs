//! The facts about a workload that is the only candidate of its cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::DynamicObject;

use super::{Annotations, Object, PodFacts, Run};
use crate::api::names;
use crate::api::validated::WorkloadKind;

/// The facts about a workload, taken from one read. It is never a candidate beside pods.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct WorkloadFacts {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    /// Its UID. A new workload with the same name is another one.
    pub uid: String,
    /// Its resourceVersion. A write by the operator names it.
    pub resource_version: Option<String>,
    /// Its labels that belong to RedisLease.
    pub labels: BTreeMap<String, String>,
    /// Its annotations that belong to RedisLease; see [`names`].
    pub annotations: Annotations,
    /// Whether it runs, and how.
    pub run: Run,
    /// Whether Kubernetes deletes volumes of its pods when it is scaled down.
    pub deletes_volumes: bool,
    /// Whether Kubernetes stops its pods one after the other, and none while a later one is not Ready.
    pub stops_in_order: bool,
    /// Whether it is being deleted: its controller ignores it, so its pods end and no other start.
    pub deleting: bool,
}

impl WorkloadFacts {
    /// The facts about a workload, from its object. `None` if the operator cannot switch workloads of this kind.
    pub fn of(kind: WorkloadKind, object: &DynamicObject) -> Option<Self> {
        let spec = &object.data["spec"];
        let run = match kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
                // The API server writes the default, 1.
                Run::Replicas(
                    spec["replicas"].as_i64().map_or(1, |replicas| i32::try_from(replicas).unwrap_or(i32::MAX)),
                )
            }
            WorkloadKind::CronJob => Run::Suspended(spec["suspend"].as_bool().unwrap_or(false)),
            WorkloadKind::DaemonSet | WorkloadKind::ReplicaSet | WorkloadKind::Job => return None,
        };
        let metadata = &object.metadata;
        let roles = metadata.labels.iter().flatten().filter(|(key, _)| names::lease_of_role_label(key).is_some());
        let ours = metadata.annotations.iter().flatten().filter(|(key, _)| names::is_ours(key));
        let pair = |(key, value): (&String, &String)| (key.clone(), names::cut(value));
        Some(Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
            labels: roles.map(pair).collect(),
            annotations: ours.map(pair).collect(),
            run,
            // Other kinds do not have this field.
            deletes_volumes: spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete",
            // The API server writes the default.
            stops_in_order: spec["podManagementPolicy"] == "OrderedReady",
            deleting: metadata.deletion_timestamp.is_some(),
        })
    }

    /// The workload as an object with a role.
    pub fn object(&self) -> Object<'_> {
        let Self { kind, namespace, name, uid, resource_version, labels, annotations, run, .. } = self;
        let (workload, run, gates) = (Some(*kind), Some(*run), &[][..]);
        Object { workload, run, namespace, name, uid, resource_version, labels, annotations, gates }
    }

    /// The leases whose label or annotations the workload carries.
    pub fn marked_by(&self) -> impl Iterator<Item = &str> {
        let of_labels = self.labels.keys().filter_map(|key| names::lease_of_role_label(key));
        of_labels.chain(self.annotations.iter().filter_map(|(key, _)| names::lease_of_workload_mark(key)))
    }
}

/// A pod or a workload.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Candidate {
    Pod(Arc<PodFacts>),
    Workload(Arc<WorkloadFacts>),
}

impl Candidate {
    /// It as an object with a role.
    pub fn object(&self) -> Object<'_> {
        match self {
            Self::Pod(pod) => pod.object(),
            Self::Workload(workload) => workload.object(),
        }
    }
}
