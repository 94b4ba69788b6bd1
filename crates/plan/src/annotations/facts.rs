//! The facts about annotated workloads, and about the leases that were created for workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::lease::{ActivationSpec, ElectionSpec, RetrySpec};
use crate::api::names::{self, ANNOTATION_PREFIX, cut};
use crate::api::spelling::WORKLOAD_ANNOTATIONS;
use crate::api::validated::{Workload, WorkloadKind};
use crate::api::{RedisLease, RedisLeaseSpec};
use crate::index::WorkloadKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How many unknown annotations of an object are kept or reported.
pub(super) const MOST_UNKNOWN: usize = 16;

/// The facts about a workload, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// Its namespace, kind and name.
    pub key: WorkloadKey,
    /// Its UID.
    pub uid: String,
    /// Its annotations under `redislease.io/`, by the part of the key after the slash.
    pub annotations: BTreeMap<String, String>,
    /// The leases for which the operator has written it.
    pub owners: BTreeSet<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl WorkloadFacts {
    /// Reads the facts from the metadata of a workload of this kind.
    pub fn of(kind: WorkloadKind, metadata: ObjectMeta) -> Self {
        let mut unknown = 0;
        let key = key_of(kind, &metadata);
        let annotations = metadata.annotations.unwrap_or_default();
        let owners =
            annotations.keys().filter_map(|key| names::lease_of_workload_mark(key)).map(str::to_owned).collect();
        let ours = |(key, value): (String, String)| {
            let name = key.strip_prefix(ANNOTATION_PREFIX)?;
            unknown += usize::from(!WORKLOAD_ANNOTATIONS.contains(&name));
            (WORKLOAD_ANNOTATIONS.contains(&name) || unknown <= MOST_UNKNOWN).then(|| (name.to_owned(), cut(&value)))
        };
        Self {
            key,
            uid: metadata.uid.unwrap_or_default(),
            annotations: annotations.into_iter().filter_map(ours).collect(),
            owners,
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The facts about a lease.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct LeaseFacts {
    pub namespace: Arc<str>,
    pub name: String,
    pub uid: String,
    /// Its resourceVersion.
    pub version: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The workload for which this operator created it, such as `Deployment/billing`. `None` for all other leases, which
    /// the operator neither changes nor deletes.
    pub created_for: Option<String>,
    /// The UID of its managing owner.
    pub controller: Option<String>,
    /// Whether it has any owner.
    pub has_owner: bool,
    /// Its spec, as far as annotations set it: the other fields have their defaults.
    pub spec: RedisLeaseSpec,
}

impl From<&RedisLease> for LeaseFacts {
    fn from(lease: &RedisLease) -> Self {
        let RedisLease { metadata, spec, .. } = lease;
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone());
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone(),
            deleting: metadata.deletion_timestamp.is_some(),
            created_for: names::created_for(metadata).cloned(),
            controller,
            has_owner: !owners.is_empty(),
            // Each field is named, so that a new one must be decided about: `decide::patch` writes what is compared.
            spec: RedisLeaseSpec {
                quorum_ref: spec.quorum_ref.clone(),
                candidates: spec.candidates.clone(),
                lease_duration: spec.lease_duration.clone(),
                renew_interval: spec.renew_interval.clone(),
                grace_period: spec.grace_period.clone(),
                granularity: spec.granularity,
                keys: None,
                retry: RetrySpec::default(),
                election: ElectionSpec::default(),
                activation: spec.activation.filter(|activation| *activation != ActivationSpec::default()),
                suspend: false,
            },
        }
    }
}

impl LeaseFacts {
    /// Whether this operator created it for this workload, and the workload still owns it.
    pub fn is_owned_by(&self, workload: &WorkloadFacts) -> bool {
        self.is_created_for(&workload.key.1) && self.controller.as_ref() == Some(&workload.uid)
    }

    /// Whether this operator created it for a workload of this kind and name.
    pub fn is_created_for(&self, workload: &Workload) -> bool {
        self.created_for.as_deref() == Some(title(workload).as_str())
    }

    /// The workload for which this operator created it. It creates none for a workload that it does not watch, and no decision would
    /// remove what is known about that one.
    pub fn workload(&self) -> Option<WorkloadKey> {
        let (kind, name) = self.created_for.as_deref()?.split_once('/')?;
        let kind = WorkloadKind::ALL.into_iter().find(|known| known.gets_leases() && known.as_str() == kind)?;
        Some((self.namespace.clone(), Workload { kind, name: name.to_owned() }))
    }
}

/// Namespace, kind and name of the workload of this kind with this metadata.
pub fn key_of(kind: WorkloadKind, metadata: &ObjectMeta) -> WorkloadKey {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    (namespace.into(), Workload { kind, name: metadata.name.clone().unwrap_or_default() })
}

/// Kind and name of a workload, such as `Deployment/billing`.
pub fn title(workload: &Workload) -> String {
    format!("{}/{}", workload.kind.as_str(), workload.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process has written them. A pod's mark was copied from one.
    #[test]
    fn the_leases_for_which_a_workload_was_written_are_read() {
        let marks = ["owner", "token", "withdrawn", "started"];
        let annotations = marks.map(|mark| (format!("{mark}.redislease.io/of-{mark}"), "x".to_owned()));
        let metadata = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        let facts = WorkloadFacts::of(WorkloadKind::Deployment, metadata);
        assert_eq!(facts.owners, ["of-owner", "of-token", "of-withdrawn"].map(str::to_owned).into());
    }

    #[test]
    fn long_values_and_many_annotations_are_cut() {
        let mut annotations: BTreeMap<String, String> =
            (0..100).map(|number| (format!("{ANNOTATION_PREFIX}x{number}"), String::new())).collect();
        annotations.insert(format!("{ANNOTATION_PREFIX}lease-duration"), "ä".repeat(200_000));
        annotations.insert("other/lease".into(), "true".into());
        let metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        let facts = WorkloadFacts::of(WorkloadKind::Deployment, metadata);
        assert_eq!(facts.annotations.len(), MOST_UNKNOWN + 1);
        let value = &facts.annotations["lease-duration"];
        assert!(value.ends_with("ä…") && value.len() <= names::LONGEST_VALUE + "…".len(), "{}", value.len());
    }
}
