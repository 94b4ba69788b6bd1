//! The facts about a pod that elections need.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodCondition, PodSchedulingGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use redislease_core::time::Time;
use serde::Deserialize;

use super::{Annotations, Object};
use crate::api::names;

/// A pod as it is read: only the fields that [`PodFacts`] are made of. Most of a pod describes what its containers run.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[expect(missing_docs, reason = "the fields of a pod")]
pub struct PodObject {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

/// The fields of a pod's spec that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    node_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    #[serde(default)]
    containers: Vec<Container>,
    init_containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    name: String,
}

/// The fields of a pod's status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ContainerStatus {
    name: String,
    state: Option<ContainerState>,
}

impl PodObject {
    /// The Kubernetes node that it is scheduled to.
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// Its condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
    }
}

/// The facts about a pod, taken from one watch event or one read.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the pod")]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct PodFacts {
    pub namespace: String,
    pub name: String,
    /// Its UID. A new pod with the same name is another pod.
    pub uid: String,
    /// Its resourceVersion. A write by the operator names it.
    pub resource_version: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Its annotations that belong to RedisLease; see [`names`].
    pub annotations: Annotations,
    /// Its scheduling gates: Kubernetes does not start it before they are removed.
    pub gates: Box<[String]>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The Kubernetes node that it is scheduled to.
    pub node: Option<String>,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Whether its phase is Running: it has a Kubernetes node, and its containers have started.
    pub running: bool,
    /// Whether its phase is Succeeded or Failed. This alone does not prove that its processes have ended.
    pub finished: bool,
    /// The deletion grace period, if the pod is being deleted.
    pub deletion_grace: Option<Duration>,
    /// Whether the pod's status proves that all its processes have ended.
    pub stopped: bool,
    /// Whether its name is generated, as controllers do, and no controller owns it.
    pub released: bool,
}

#[cfg(test)]
impl PodFacts {
    /// A running and Ready pod in the namespace `n`, for tests.
    pub(crate) fn running(name: &str) -> Self {
        Self {
            namespace: "n".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            node: Some("node-1".into()),
            ready: true,
            running: true,
            ..Self::default()
        }
    }
}

impl From<&PodObject> for PodFacts {
    fn from(pod: &PodObject) -> Self {
        let is_ours = |key: &str| key.starts_with(names::ANNOTATION_PREFIX) || names::lease_of_mark(key).is_some();
        let annotations = pod.annotations().iter().filter(|(key, _)| is_ours(key));
        let PodObject { metadata, spec, status } = pod;
        let mut owners = metadata.owner_references.iter().flatten();
        let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            resource_version: pod.resource_version(),
            labels: pod.labels().clone(),
            annotations: annotations.map(|(key, value)| (key.clone(), names::cut(value))).collect(),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            created: pod.creation_timestamp().map(|time| time.0),
            node: pod.node().map(str::to_owned),
            ready: pod.condition("Ready").is_some_and(|ready| ready.status == "True"),
            running: status.phase.as_deref() == Some("Running"),
            finished: finished(status),
            deletion_grace: metadata.deletion_timestamp.as_ref().map(|_| grace),
            stopped: stopped(pod),
            released: metadata.generate_name.is_some() && !owners.any(|owner| owner.controller == Some(true)),
        }
    }
}

impl PodFacts {
    /// The pod as an object with a role.
    pub fn object(&self) -> Object<'_> {
        let Self { namespace, name, uid, resource_version, labels, annotations, gates, .. } = self;
        Object { workload: None, run: None, namespace, name, uid, resource_version, labels, annotations, gates }
    }

    /// Whether these facts, as the last before the pod's deletion, prove that no process of the pod runs: all its processes
    /// have ended, or none was started because the pod was never scheduled to a node.
    pub const fn proves_stopped_when_deleted(&self) -> bool {
        self.stopped || self.node.is_none()
    }
}

fn finished(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whether the pod's status proves that all its processes have ended.
///
/// Before a gracefully deleted pod is removed, its kubelet writes a final phase and a terminated status for every container.
/// The pod garbage collector writes a final phase too, for pods on lost nodes whose processes may still run. It does not
/// change the container statuses, and it adds a condition with its own reason. Such a pod proves nothing.
fn stopped(pod: &PodObject) -> bool {
    let PodObject { spec, status, .. } = pod;
    let collected =
        pod.condition("DisruptionTarget").is_some_and(|one| one.reason.as_deref() == Some("DeletionByPodGC"));
    let statuses = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let has_terminated = |one: &&ContainerStatus| one.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let statuses = statuses.into_iter().flatten().flatten();
    let terminated: BTreeSet<&str> = statuses.filter(has_terminated).map(|one| one.name.as_str()).collect();
    let others = [&spec.init_containers, &spec.ephemeral_containers].into_iter().flatten().flatten();
    let mut names = spec.containers.iter().chain(others).map(|container| container.name.as_str());
    finished(status) && !collected && !spec.containers.is_empty() && names.all(|name| terminated.contains(name))
}

/// The facts about a pod, and since when this process has observed its current state.
///
/// The times are on this process's clock. Timestamps in the pod are on the clocks of other machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// The latest facts about the pod, shared with the electorates that it belongs to.
    pub facts: Arc<PodFacts>,
    /// Since when this process has observed it as not Ready.
    pub not_ready_since: Option<Time>,
    /// Since when this process has observed it in another phase than Running.
    pub not_running_since: Option<Time>,
    /// Since when this process has observed its deletion.
    pub terminating_since: Option<Time>,
}

impl Sighting {
    /// Records facts observed now. `before` is the previous sighting of the same pod.
    pub fn now(facts: impl Into<Arc<PodFacts>>, now: Time, before: Option<&Self>) -> Self {
        let facts = facts.into();
        let since = |observed: bool, before: Option<Time>| observed.then(|| before.unwrap_or(now));
        // A pod with a scheduling gate cannot become Ready: its time begins when it may start.
        let not_ready = !facts.ready && facts.gates.is_empty();
        let not_running = !facts.running && facts.gates.is_empty();
        Self {
            not_running_since: since(not_running, before.and_then(|before| before.not_running_since)),
            not_ready_since: since(not_ready, before.and_then(|before| before.not_ready_since)),
            terminating_since: since(
                facts.deletion_grace.is_some(),
                before.and_then(|before| before.terminating_since),
            ),
            facts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: &Value, status: &Value) -> PodObject {
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn spec() -> Value {
        json!({"nodeName": "node-1", "containers": [{"name": "app"}], "initContainers": [{"name": "sidecar"}]})
    }

    #[test]
    fn proof_needs_a_final_phase_and_all_containers_terminated() {
        let (ended, runs) = (json!({"terminated": {"exitCode": 0}}), json!({"running": {}}));
        let of = |phase: &str, app: &Value, sidecar: &Value| {
            json!({"phase": phase, "containerStatuses": [{"name": "app", "state": app}],
                "initContainerStatuses": [{"name": "sidecar", "state": sidecar}]})
        };
        let disrupted = |reason: &str| {
            let mut status = of("Failed", &ended, &ended);
            status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
            status
        };
        let without = json!({"phase": "Failed", "containerStatuses": [{"name": "app", "state": ended}]});
        let table = [
            ("the kubelet reports all containers as terminated", of("Succeeded", &ended, &ended), true),
            ("phase Failed is final too", of("Failed", &ended, &ended), true),
            ("the pod is running", of("Running", &ended, &ended), false),
            ("a sidecar is still running", of("Failed", &ended, &runs), false),
            ("a container has no status", without, false),
            ("the pod garbage collector wrote the phase", disrupted("DeletionByPodGC"), false),
            ("the kubelet completed an eviction", disrupted("EvictionByEvictionAPI"), true),
            ("garbage-collected with old container statuses", of("Failed", &runs, &ended), false),
            ("the pod has no status", json!({}), false),
        ];
        for (what, status, proof) in table {
            let facts = PodFacts::from(&pod(&spec(), &status));
            assert_eq!(facts.stopped, proof, "{what}");
            assert_eq!(facts.proves_stopped_when_deleted(), proof, "{what}, deleted");
        }
    }

    #[test]
    fn deleted_pod_without_a_node_is_proof() {
        let unbound = PodFacts::from(&pod(&json!({"containers": [{"name": "app"}]}), &json!({"phase": "Pending"})));
        assert!(!unbound.stopped && unbound.proves_stopped_when_deleted());
    }

    #[test]
    fn since_times_are_kept_while_the_state_is_unchanged() {
        let ready = |ready: bool| {
            let status = json!({"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]});
            PodFacts::from(&pod(&spec(), &status))
        };
        let first = Sighting::now(ready(false), Time(10), None);
        let second = Sighting::now(ready(false), Time(20), Some(&first));
        assert_eq!(second.not_ready_since, Some(Time(10)));
        let third = Sighting::now(ready(true), Time(30), Some(&second));
        assert_eq!(third.not_ready_since, None);
        assert_eq!(Sighting::now(ready(false), Time(40), Some(&third)).not_ready_since, Some(Time(40)));
        let gated = Sighting::now(PodFacts { gates: ["g".to_owned()].into(), ..ready(false) }, Time(50), None);
        assert_eq!(gated.not_ready_since, None);
        assert_eq!(Sighting::now(ready(false), Time(60), Some(&gated)).not_ready_since, Some(Time(60)));
    }

    #[test]
    fn deletion_grace_period_is_read() {
        let mut deleted = pod(&spec(), &json!({}));
        assert_eq!(PodFacts::from(&deleted).deletion_grace, None);
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        deleted.metadata.deletion_grace_period_seconds = Some(30);
        assert_eq!(PodFacts::from(&deleted).deletion_grace, Some(Duration::from_secs(30)));
    }
}
