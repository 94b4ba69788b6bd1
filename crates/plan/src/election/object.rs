//! What pods and workloads have in common.

use std::collections::BTreeMap;

use super::Annotations;
use crate::api::validated::WorkloadKind;

/// Whether a workload runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// `spec.replicas` of a Deployment or StatefulSet.
    Replicas(i32),
    /// `spec.suspend` of a `CronJob`.
    Suspended(bool),
}

impl Run {
    /// Whether the workload starts no pods.
    pub const fn is_stopped(self) -> bool {
        matches!(self, Self::Replicas(0) | Self::Suspended(true))
    }
}

/// What a write of a role needs to know about its object.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Object<'a> {
    /// The kind of the workload; `None` for a pod.
    pub workload: Option<WorkloadKind>,
    /// Whether the workload runs, and how.
    pub run: Option<Run>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub resource_version: &'a Option<String>,
    pub labels: &'a BTreeMap<String, String>,
    /// Its annotations that belong to RedisLease.
    pub annotations: &'a Annotations,
    /// The scheduling gates of a pod.
    pub gates: &'a [String],
}
