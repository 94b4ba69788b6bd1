//! The objects of watches, read without their managed fields.
//!
//! `DeserializeGuard` of kube reads each object into a generic tree, copies the tree, and reads the object from it. The
//! managed fields are most of that tree, and the operator does not use them. With 3,000 leases and pods, this was most of
//! the time and memory of a start.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use kube::Resource;
use redislease_plan::api::{
    RedisLease, RedisLeaseSpec, RedisLeaseStatus, RedisQuorum, RedisQuorumSpec, RedisQuorumStatus,
};
use redislease_plan::election::{PodObject, PodSpec, PodStatus};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A kind of object that a watch reads.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {
    /// What is parsed of the object; the rest is not kept in memory.
    type Fields: DeserializeOwned;

    fn new(fields: Self::Fields) -> Self;
}

#[derive(Deserialize)]
pub struct SpecAndStatus<S, T> {
    #[serde(default, with = "Metadata")]
    metadata: ObjectMeta,
    spec: S,
    status: Option<T>,
}

impl Object for RedisLease {
    type Fields = SpecAndStatus<RedisLeaseSpec, RedisLeaseStatus>;

    fn new(SpecAndStatus { metadata, spec, status }: Self::Fields) -> Self {
        Self { metadata, spec, status }
    }
}

impl Object for RedisQuorum {
    type Fields = SpecAndStatus<RedisQuorumSpec, RedisQuorumStatus>;

    fn new(SpecAndStatus { metadata, spec, status }: Self::Fields) -> Self {
        Self { metadata, spec, status }
    }
}

impl Object for PodObject {
    type Fields = SpecAndStatus<PodSpec, PodStatus>;

    fn new(SpecAndStatus { metadata, spec, status }: Self::Fields) -> Self {
        Self { metadata, spec, status: status.unwrap_or_default() }
    }
}

/// An object without managed fields. A malformed object keeps its metadata, so that it does not fail the whole list.
#[derive(Clone, Debug)]
pub struct Trimmed<K>(pub Result<K, Malformed>);

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Malformed {
    pub metadata: ObjectMeta,
    /// Which field has which problem.
    pub error: String,
}

impl<'de, K: Object> Deserialize<'de> for Trimmed<K> {
    /// Works on text only, as the answers of the API server are read.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let error = match serde_json::from_str(text) {
            Ok(fields) => return Ok(Self(Ok(K::new(fields)))),
            Err(error) => problem(&error, text),
        };
        let OnlyMetadata { metadata } = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Self(Err(Malformed { metadata, error })))
    }
}

/// What is wrong with the text, after the name of its innermost field, which the error does not always name.
fn problem(error: &serde_json::Error, text: &str) -> String {
    let whole = error.to_string();
    let what = whole.rsplit_once(" at line ").map_or(&*whole, |(what, _)| what);
    let before = text.get(..error.column()).filter(|_| error.line() == 1 && !what.starts_with("missing field"));
    let field = before.and_then(|before| before.rsplit_once("\":")?.0.rsplit('"').next());
    field.map_or_else(|| what.to_owned(), |field| format!("{field}: {what}"))
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default, with = "Metadata")]
    metadata: ObjectMeta,
}

/// Reads [`ObjectMeta`] without the managed fields. Deserialization skips unknown fields without allocating.
#[derive(Deserialize)]
#[serde(remote = "ObjectMeta", rename_all = "camelCase")]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(skip)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    #[serde(skip)]
    self_link: Option<String>,
    uid: Option<String>,
}

impl<K: Object> Resource for Trimmed<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|malformed| &malformed.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|malformed| &mut malformed.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{ObjectList, WatchEvent};
    use redislease_plan::election::PodFacts;
    use serde_json::{Value, json};

    fn lease(spec: &Value) -> Value {
        let metadata = json!({"name": "billing", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["redislease.io/release"],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "deletionGracePeriodSeconds": 5,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing", "uid": "o"}],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]});
        json!({"apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "metadata": metadata, "spec": spec,
            "status": {"fencingToken": 7}})
    }

    fn valid() -> Value {
        lease(&json!({"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": "x"}}}}))
    }

    #[test]
    fn everything_but_the_managed_fields_is_read() {
        let Trimmed(read) = serde_json::from_str::<Trimmed<RedisLease>>(&valid().to_string()).unwrap();
        let mut expected: RedisLease = serde_json::from_value(valid()).unwrap();
        assert!(expected.metadata.managed_fields.take().is_some());
        assert_eq!(serde_json::to_value(read.unwrap()).unwrap(), serde_json::to_value(expected).unwrap());
    }

    #[test]
    fn a_pod_is_read_with_all_its_facts() {
        let container = |name: &str| json!({"name": name, "image": "i", "env": [{"name": "A", "value": "b"}]});
        let ended = |name: &str| {
            let terminated = json!({"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"});
            json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 1, "state": {"terminated": terminated}})
        };
        let whole = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {"redislease.io/priority": "5", "other": "x"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30},
            "spec": {"nodeName": "node-1", "volumes": [{"name": "v", "emptyDir": {}}], "containers": [container("main")],
                "initContainers": [container("init")], "ephemeralContainers": [container("debug")]},
            "status": {"phase": "Failed",
                "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [ended("main")],
                "initContainerStatuses": [ended("init")], "ephemeralContainerStatuses": [ended("debug")]},
        });
        let facts = |pod: &Value| {
            let Trimmed(read) = serde_json::from_str::<Trimmed<PodObject>>(&pod.to_string()).unwrap();
            PodFacts::from(&read.unwrap())
        };
        let all = facts(&whole);
        assert!(all.stopped && all.ready && all.finished, "{all:?}");
        assert_eq!(all.created.map(|created| created.to_string()).as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(all.annotations.priority(), Some(5));
        // Each part of the proof that the pod has stopped is read.
        for part in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "phase"] {
            let mut pod = whole.clone();
            pod["status"].as_object_mut().unwrap().remove(part);
            assert!(!facts(&pod).stopped, "without {part}");
        }
        let mut collected = whole.clone();
        collected["status"]["conditions"] =
            json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]);
        assert!(!facts(&collected).stopped);
        for part in ["initContainers", "ephemeralContainers"] {
            let mut pod = whole.clone();
            pod["spec"].as_object_mut().unwrap().remove(part);
            assert!(facts(&pod).stopped, "without {part}");
        }
    }

    #[test]
    fn the_problem_of_a_malformed_object_names_the_field() {
        let problem = |field: &str, value: Value| {
            let mut lease = valid();
            lease["spec"][field] = value;
            let Trimmed(read) = serde_json::from_str::<Trimmed<RedisLease>>(&lease.to_string()).unwrap();
            read.unwrap_err().error
        };
        assert_eq!(
            problem("granularity", json!("Zone")),
            "granularity: unknown variant `Zone`, expected `Pod` or `Cluster`"
        );
        assert_eq!(
            problem("election", json!({"requireReady": 1})),
            "requireReady: invalid type: integer `1`, expected a boolean"
        );
        let of_deployment = json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment"}});
        assert_eq!(problem("candidates", of_deployment), "missing field `name`");
    }

    #[test]
    fn a_malformed_object_keeps_its_metadata_and_does_not_fail_a_list_or_a_watch() {
        let broken = lease(&json!({"quorumRef": 7}));
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [valid(), broken]});
        let list: ObjectList<Trimmed<RedisLease>> = serde_json::from_str(&list.to_string()).unwrap();
        let [good, bad] = list.items.as_slice() else { panic!("two items") };
        assert!(good.0.is_ok());
        let malformed = bad.0.as_ref().unwrap_err();
        assert!(malformed.error.starts_with("quorumRef: invalid type: integer `7`, expected "), "{}", malformed.error);
        assert!(!malformed.error.contains("line"), "{}", malformed.error);
        assert_eq!(bad.meta().name.as_deref(), Some("billing"));

        // The API server sends the type first, and nothing buffers the object.
        let event = format!(r#"{{"type":"MODIFIED","object":{broken}}}"#);
        let event: WatchEvent<Trimmed<RedisLease>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(Trimmed(Err(_)))));
    }
}
