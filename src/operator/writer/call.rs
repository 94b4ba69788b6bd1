//! The calls that the writer sends, and how their answers are interpreted.

use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Selector};
use kube::{Api, Client, ResourceExt};
use redislease_core::op::Token;
use redislease_core::time::Time;
use serde_json::{Value, json};

use super::events::EventKey;
use super::managers;
use super::outcome::{Finish, Sent, classify, guarded, guarded_with, judge_status, pass_on, pass_on_or_repeat};
use super::owned::{self, Changed};
use super::{startable, tokens};
use crate::api::names::{self, PodRole};
use crate::api::validated::WorkloadKind;
use crate::api::{RedisLease, RedisQuorum};
use crate::election::{Candidate, PodFacts, Run, WorkloadFacts, is_off};
use crate::index::{Asked, ListCount, WorkloadFound, WorkloadKey, WorkloadRead};
use crate::metrics::operator::WriteKind;
use crate::operator::annotations::Change;
use crate::operator::kube_api::{self, CallError, call};
use crate::operator::leadership::Grant;
use crate::plan::{self, Altered, PodChange, RoleOutcome, RoleWrite, StatusOutcome, StatusWrite};

/// Every cluster has this namespace throughout its existence, so its UID identifies the cluster.
pub(super) const CLUSTER_NAMESPACE: &str = "kube-system";

/// The callback for the outcome of a call. It runs on any thread and must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// The result of reading a pod or a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// As it is now.
    Here(Asked, Candidate),
    /// There is no pod, or no workload of this kind, with this UID.
    Gone(Option<WorkloadKind>),
}

/// The outcome of a role write.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleAnswer {
    /// The outcome for the caller.
    pub outcome: RoleOutcome,
    /// The current pod, if the answer contains it.
    pub found: Option<Found>,
}

/// One call.
pub enum Call {
    /// Replace the status of a lease. It is sent only if this process still decides about the quorum's leases.
    LeaseStatus {
        object: Arc<RedisLease>,
        write: Box<StatusWrite>,
        grant: Option<Arc<Grant>>,
        done: Done<StatusOutcome>,
    },
    /// Replace the status of a quorum.
    QuorumStatus { object: Box<RedisQuorum>, done: Done<Result<RedisQuorum, CallError>> },
    /// Write label and token of a lease on a pod. It is sent only if this process still decides about the quorum's leases.
    PodRole { namespace: Arc<str>, lease: String, write: RoleWrite, grant: Option<Arc<Grant>>, done: Done<RoleAnswer> },
    /// Read a lease; `None` if it is deleted or was created again.
    Lease { namespace: Arc<str>, name: String, uid: String, done: Done<Result<Option<Arc<RedisLease>>, String>> },
    /// Read a pod, or the workload of this kind that is a candidate itself.
    Pod {
        namespace: Arc<str>,
        name: String,
        uid: String,
        workload: Option<WorkloadKind>,
        done: Done<Result<Found, String>>,
    },
    /// Read the pods that wait for a node, then those that carry the label of the lease.
    Startable { namespace: Arc<str>, lease: String, done: Done<Result<(Asked, Vec<Candidate>), String>> },
    /// Read whether a Kubernetes node is off.
    Node { name: String, done: Done<Result<bool, String>> },
    /// Read the selector of a workload.
    Workload { key: WorkloadKey, done: Done<WorkloadFound> },
    /// Read a quorum; `None` if it does not exist.
    Quorum { namespace: Arc<str>, name: String, done: Done<Result<Option<Box<RedisQuorum>>, String>> },
    /// Read the highest token in the statuses of the leases on a quorum, as etcd has them now. No namespaces mean all.
    Tokens { quorum: String, namespaces: Arc<[String]>, done: Done<Result<Token, String>> },
    /// Read a secret; the error is definite.
    Secret { namespace: String, name: String, done: Done<Result<Box<Secret>, CallError>> },
    /// Read the UID of the cluster; the error is definite.
    ClusterUid { done: Done<Result<String, String>> },
    /// Create, change or delete the lease of an annotated workload.
    OwnedLease { workload: WorkloadKey, change: Box<Change>, done: Done<Changed> },
    /// Send the pending event with this key.
    Event(EventKey),
}

impl Call {
    /// The kind of write; `None` for a read.
    pub const fn kind(&self) -> Option<WriteKind> {
        match self {
            Self::LeaseStatus { .. } => Some(WriteKind::LeaseStatus),
            Self::QuorumStatus { .. } => Some(WriteKind::QuorumStatus),
            Self::PodRole { .. } => Some(WriteKind::PodRole),
            Self::OwnedLease { .. } => Some(WriteKind::Lease),
            Self::Event(_) => Some(WriteKind::Event),
            _ => None,
        }
    }

    /// The name of its object, for the log.
    pub fn object(&self) -> String {
        match self {
            Self::LeaseStatus { object, .. } => {
                format!("RedisLease {}/{}", object.namespace().unwrap_or_default(), object.name_any())
            }
            Self::QuorumStatus { object, .. } => format!("RedisQuorum {}", object.name_any()),
            Self::PodRole { namespace, write, .. } => format!("pod {namespace}/{}", write.pod),
            Self::Lease { namespace, name, .. } => format!("RedisLease {namespace}/{name}"),
            Self::Pod { namespace, name, .. } => format!("pod {namespace}/{name}"),
            Self::Startable { namespace, lease, .. } => format!("the pods of RedisLease {namespace}/{lease}"),
            Self::Node { name, .. } => format!("Kubernetes node {name}"),
            Self::Workload { key: (namespace, workload), .. } => {
                format!("{} {namespace}/{}", workload.kind.as_str(), workload.name)
            }
            Self::Quorum { namespace, name, .. } => format!("RedisQuorum {namespace}/{name}"),
            Self::Tokens { quorum, .. } => format!("the RedisLeases on RedisQuorum {quorum}"),
            Self::Secret { namespace, name, .. } => format!("secret {namespace}/{name}"),
            Self::OwnedLease { workload: (namespace, workload), .. } => {
                format!("RedisLease of {} {namespace}/{}", workload.kind.as_str(), workload.name)
            }
            Self::ClusterUid { .. } => format!("namespace {CLUSTER_NAMESPACE}"),
            Self::Event((_, reason)) => format!("event {}", reason.as_str()),
        }
    }

    /// Whether this process may still make this call at `now`.
    pub fn is_allowed(&self, now: Time) -> bool {
        match self {
            Self::LeaseStatus { grant, .. } | Self::PodRole { grant, .. } => {
                grant.as_ref().is_none_or(|grant| grant.decides(now))
            }
            _ => true,
        }
    }

    /// Takes over the caller of an older call of the same key that was not answered: the answer to this one serves both.
    pub fn join(&mut self, older: Self) {
        match (self, older) {
            (Self::Lease { done, .. }, Self::Lease { done: older, .. }) => {
                let newer = std::mem::replace(done, Box::new(|_| ()));
                *done = Box::new(move |read| {
                    older(read.clone());
                    newer(read);
                });
            }
            (_, older) => older.withdrawn(),
        }
    }

    /// Reports to the caller that the call was never sent.
    pub fn withdrawn(self) {
        match self {
            Self::LeaseStatus { done, .. } => done(StatusOutcome::Withdrawn),
            Self::PodRole { done, .. } => done(RoleAnswer { outcome: RoleOutcome::Withdrawn, found: None }),
            Self::OwnedLease { done, .. } => done(Changed::Outdated),
            // A newer read of the same object replaces it.
            _ => {}
        }
    }

    /// Sends the call. `event` is the pending event of an event call.
    pub(super) async fn send(self, client: Client, lists: ListCount, event: Option<Event>) -> Sent {
        match self {
            Self::LeaseStatus { object, write, done, .. } => {
                let written = guarded(write_lease_status(client, &object, *write).boxed()).await;
                let (judged, failure) = judge_status(&written);
                let finish = move || {
                    if let Some(outcome) = failure.or_else(|| written.ok().map(StatusOutcome::Written)) {
                        done(outcome);
                    }
                };
                Sent { judged, finish: Finish::PassOn(Box::new(finish)) }
            }
            Self::QuorumStatus { object, done } => {
                let quorums: Api<RedisQuorum> = Api::namespaced(client, &object.namespace().unwrap_or_default());
                let (name, params) = (object.name_any(), PostParams::default());
                let written = guarded(call(quorums.replace_status(&name, &params, &object)).boxed()).await;
                pass_on(written, done)
            }
            Self::PodRole { namespace, lease, write, done, .. } => {
                let before = write.version.clone();
                let unknown = |why| RoleAnswer { outcome: RoleOutcome::Unanswered(why), found: None };
                let work = write_role(client, &lists, &namespace, &lease, &write);
                let (written, answer) = guarded_with(work.boxed(), unknown).await;
                let judged = classify(&written);
                let now = match &answer.found {
                    Some(Found::Here(_, found)) if written.is_ok() => found.object().resource_version.clone(),
                    _ => None,
                };
                Sent { judged, finish: Finish::Moved(before, now, Box::new(move || done(answer))) }
            }
            Self::Lease { namespace, name, uid, done } => {
                let leases: Api<RedisLease> = Api::namespaced(client, &namespace);
                let read = match guarded(call(leases.get(&name)).boxed()).await {
                    Err(CallError::NotFound) => Ok(None),
                    read => read.map(|lease| (lease.metadata.uid.as_ref() == Some(&uid)).then(|| shared(lease))),
                };
                pass_on_or_repeat(read, done, |done| Self::Lease { namespace, name, uid, done })
            }
            Self::Pod { namespace, name, uid, workload, done } => {
                let read = guarded(read_candidate(client, &lists, &namespace, (&name, &uid), workload).boxed()).await;
                pass_on_or_repeat(read, done, |done| Self::Pod { namespace, name, uid, workload, done })
            }
            Self::Startable { namespace, lease, done } => {
                let read = guarded(startable::read(client, &lists, &namespace, &lease).boxed()).await;
                pass_on_or_repeat(read, done, |done| Self::Startable { namespace, lease, done })
            }
            Self::Node { name, done } => {
                let nodes: Api<Node> = Api::all(client);
                let read = guarded(async { call(nodes.get(&name)).await.map(|node| is_off(&node)) }.boxed()).await;
                pass_on_or_repeat(read, done, |done| Self::Node { name, done })
            }
            Self::Workload { key, done } => find_workload(client, key, done).await,
            Self::Quorum { namespace, name, done } => {
                let quorums: Api<RedisQuorum> = Api::namespaced(client, &namespace);
                let read = match guarded(call(quorums.get(&name)).boxed()).await {
                    Err(CallError::NotFound) => Ok(None),
                    read => read.map(|quorum| Some(Box::new(quorum))),
                };
                pass_on_or_repeat(read, done, |done| Self::Quorum { namespace, name, done })
            }
            Self::Tokens { quorum, namespaces, done } => {
                let read = guarded(tokens::read(client, &quorum, &namespaces).boxed()).await;
                pass_on_or_repeat(read, done, |done| Self::Tokens { quorum, namespaces, done })
            }
            Self::Secret { namespace, name, done } => {
                let secrets: Api<Secret> = Api::namespaced(client, &namespace);
                let read = guarded(call(secrets.get(&name)).boxed()).await.map(Box::new);
                if matches!(read, Err(CallError::Unanswered(_))) {
                    let judged = classify(&read);
                    return Sent { judged, finish: Finish::Again(Self::Secret { namespace, name, done }) };
                }
                pass_on(read, done)
            }
            Self::ClusterUid { done } => {
                let read = probe(client).await.map(|namespace| namespace.uid().unwrap_or_default());
                pass_on_or_repeat(read, done, |done| Self::ClusterUid { done })
            }
            Self::OwnedLease { change, done, .. } => {
                let (made, changed) = guarded_with(owned::make(client, *change).boxed(), |_| Changed::Unanswered).await;
                let judged = classify(&made);
                Sent { judged, finish: Finish::PassOn(Box::new(move || done(changed))) }
            }
            Self::Event(_) => pass_on(guarded(create_event(client, event).boxed()).await, Box::new(|_| {})),
        }
    }
}

/// Reads a workload: how it selects pods, and whether it runs.
async fn find_workload(client: Client, key: WorkloadKey, done: Done<WorkloadFound>) -> Sent {
    let (namespace, workload) = &key;
    let read = guarded(
        async {
            let object = kube_api::workload(client, namespace, workload).await?;
            let labels = kube_api::selector_of(workload.kind, &object)?;
            Ok((labels, WorkloadFacts::of(workload.kind, &object).map(Arc::new)))
        }
        .boxed(),
    )
    .await;
    let judged = classify(&read);
    let found = match read {
        Err(CallError::Unanswered(_)) => {
            return Sent { judged, finish: Finish::Again(Call::Workload { key, done }) };
        }
        Ok((labels, object)) => {
            let selector = labels.and_then(|labels| Selector::try_from(labels).ok());
            let selector = selector.filter(|selector| !selector.selects_all());
            let read = selector.map_or(WorkloadRead::SelectsNothing, WorkloadRead::Selects);
            WorkloadFound { read, object }
        }
        Err(CallError::NotFound) => WorkloadRead::Missing.into(),
        Err(error) => WorkloadRead::Refused(error.to_string()).into(),
    };
    Sent { judged, finish: Finish::PassOn(Box::new(move || done(found))) }
}

async fn create_event(client: Client, event: Option<Event>) -> Result<(), CallError> {
    let Some(event) = event else { return Ok(()) };
    let events: Api<Event> = Api::namespaced(client, &event.namespace().unwrap_or_default());
    call(events.create(&PostParams::default(), &event)).await.map(drop)
}

/// A call that only tests whether the API server answers: it reads a small object from etcd.
pub(super) async fn probe(client: Client) -> Result<kube::core::PartialObjectMeta<Namespace>, CallError> {
    let namespaces: Api<Namespace> = Api::all(client);
    call(namespaces.get_metadata(CLUSTER_NAMESPACE)).await
}

fn shared(mut lease: RedisLease) -> Arc<RedisLease> {
    lease.metadata.managed_fields = None;
    Arc::new(lease)
}

async fn write_lease_status(
    client: Client,
    object: &RedisLease,
    write: StatusWrite,
) -> Result<Arc<RedisLease>, CallError> {
    let mut next = object.clone();
    next.metadata.resource_version = write.version;
    next.status = Some(Arc::unwrap_or_clone(write.status));
    let leases: Api<RedisLease> = Api::namespaced(client, &object.namespace().unwrap_or_default());
    call(leases.replace_status(&object.name_any(), &PostParams::default(), &next)).await.map(shared)
}

/// Writes label and token of one pod, if it still has the version that was read. Otherwise the pod is read again: another
/// replica may lead meanwhile.
async fn write_role(
    client: Client,
    lists: &ListCount,
    namespace: &str,
    lease: &str,
    write: &RoleWrite,
) -> (Result<(), CallError>, RoleAnswer) {
    let asked = lists.ask();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(role_patch(lease, write));
    let params = PatchParams::default();
    let written = match (write.workload, write.change) {
        (Some(kind), _) => {
            let workloads = kube_api::workloads(client.clone(), namespace, kind);
            let written = call(workloads.patch(&write.pod, &params, &patch)).await;
            written.map(|object| (workload_candidate(kind, &object), object.metadata))
        }
        (None, PodChange::Delete) => {
            let facts = |pod: Option<Pod>| (pod.as_ref().map(pod_candidate), ObjectMeta::default());
            delete_pod(&pods, write).await.map(facts)
        }
        (None, PodChange::None | PodChange::Start | PodChange::Fence(_) | PodChange::Run(_)) => {
            call(pods.patch(&write.pod, &params, &patch)).await.map(|pod| (Some(pod_candidate(&pod)), pod.metadata))
        }
    };
    let error = match written {
        Ok((facts, metadata)) => {
            let altered = facts.as_ref().and_then(|facts| write.altered_in(lease, facts.object()));
            let outcome = altered.map_or(RoleOutcome::Written, |altered| {
                let manager = managers::manager_of(&metadata, &altered.path);
                RoleOutcome::Altered(Box::new(Altered { manager, ..altered }))
            });
            let found = facts.map(|facts| Found::Here(asked, facts));
            return (Ok(()), RoleAnswer { outcome, found });
        }
        Err(error) => error,
    };
    let (outcome, found) = match &error {
        CallError::Refused(why) => (RoleOutcome::Refused(why.clone()), None),
        CallError::Conflict | CallError::NotFound => {
            match read_candidate(client, lists, namespace, (&write.pod, &write.uid), write.workload).await {
                // An admission webhook may refuse with any status code.
                Ok(Found::Here(_, found)) if *found.object().resource_version == write.version => {
                    let why = format!(
                        "pod {} is unchanged although its resource version matches, and the API server refuses the change: {error}",
                        write.pod
                    );
                    let outcome = RoleOutcome::Refused(why.clone());
                    return (Err(CallError::Refused(why)), RoleAnswer { outcome, found: None });
                }
                Ok(gone @ Found::Gone(_)) => (RoleOutcome::Gone, Some(gone)),
                Ok(found) => (RoleOutcome::Conflict, Some(found)),
                // The last request counts: it is what says whether the API server answers.
                Err(unanswered @ CallError::Unanswered(_)) => {
                    return (Err(unanswered), RoleAnswer { outcome: RoleOutcome::Conflict, found: None });
                }
                Err(_) => (RoleOutcome::Conflict, None),
            }
        }
        error => (RoleOutcome::Unanswered(error.unknown().unwrap_or_default()), None),
    };
    (Err(error), RoleAnswer { outcome, found })
}

/// Deletes the pod in the version that was read, with its own grace period. Returns the pod while it stops. A pod that was never
/// scheduled is deleted at once: then the event of the watch says that nothing of it runs.
async fn delete_pod(pods: &Api<Pod>, write: &RoleWrite) -> Result<Option<Pod>, CallError> {
    let preconditions = Preconditions { uid: Some(write.uid.clone()), resource_version: write.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let stops = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_some() && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
    };
    Ok(call(pods.delete(&write.pod, &params)).await?.left().filter(stops))
}

/// A merge patch that sets or removes one label and one annotation of the pod at the version that was read, and lets the pod
/// start if that is wanted.
fn role_patch(lease: &str, write: &RoleWrite) -> Value {
    let mut patch = json!({"metadata": {
        "uid": write.uid,
        "resourceVersion": write.version,
        "labels": {names::role_label(lease): write.role.map(PodRole::as_str)},
        "annotations": {names::token_annotation(lease): write.token},
    }});
    if write.role.is_none() {
        patch["metadata"]["annotations"][names::withdrawn_annotation(lease)] = Value::Null;
    }
    for (key, value) in &write.marks {
        patch["metadata"]["annotations"][key] = json!(value);
    }
    match write.change {
        PodChange::Start => {
            patch["metadata"]["annotations"][names::started_annotation(lease)] = json!(write.token);
            patch["spec"] = json!({"schedulingGates": null});
        }
        PodChange::Run(Run::Replicas(replicas)) => patch["spec"] = json!({"replicas": replicas}),
        PodChange::Run(Run::Suspended(suspended)) => patch["spec"] = json!({"suspend": suspended}),
        PodChange::Fence(number) => {
            let withdrawn = plan::withdrawal(write.token.as_deref(), number);
            patch["metadata"]["annotations"][names::withdrawn_annotation(lease)] = json!(withdrawn);
        }
        PodChange::None | PodChange::Delete => {}
    }
    patch
}

pub(super) fn pod_candidate(pod: &Pod) -> Candidate {
    Candidate::Pod(Arc::new(PodFacts::from(pod)))
}

fn workload_candidate(kind: WorkloadKind, object: &DynamicObject) -> Option<Candidate> {
    WorkloadFacts::of(kind, object).map(|facts| Candidate::Workload(Arc::new(facts)))
}

async fn read_candidate(
    client: Client,
    lists: &ListCount,
    namespace: &str,
    (name, uid): (&str, &str),
    workload: Option<WorkloadKind>,
) -> Result<Found, CallError> {
    let asked = lists.ask();
    let found = match workload {
        Some(kind) => {
            let object = call(kube_api::workloads(client, namespace, kind).get(name)).await;
            object.map(|object| workload_candidate(kind, &object))
        }
        None => call(Api::<Pod>::namespaced(client, namespace).get(name)).await.map(|pod| Some(pod_candidate(&pod))),
    };
    match found {
        Ok(Some(found)) if found.object().uid == uid => Ok(Found::Here(asked, found)),
        Ok(_) | Err(CallError::NotFound) => Ok(Found::Gone(workload)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Priority;

    #[test]
    fn the_answer_to_a_read_serves_each_caller_whose_read_it_replaced() {
        let answers = Arc::new(std::sync::Mutex::new(Vec::new()));
        let read = |number: u32| {
            let answers = answers.clone();
            let done: Done<Result<Option<Arc<RedisLease>>, String>> =
                Box::new(move |read| answers.lock().unwrap().push((number, read.is_ok())));
            Call::Lease { namespace: "n".into(), name: "l".into(), uid: "u".into(), done }
        };
        let mut third = read(3);
        let mut second = read(2);
        second.join(read(1));
        third.join(second);
        let Call::Lease { done, .. } = third else { unreachable!("it is a read") };
        done(Ok(None));
        assert_eq!(*answers.lock().unwrap(), [(1, true), (2, true), (3, true)]);
    }

    #[test]
    fn a_role_patch_names_uid_and_version_and_removes_what_is_absent() {
        let mut write = RoleWrite {
            priority: Priority::Active,
            pod: "billing-0".into(),
            uid: "u".into(),
            version: Some("7".into()),
            role: Some(PodRole::Active),
            token: Some("9".into()),
            change: PodChange::None,
            marks: Vec::new(),
            workload: None,
            not_after: None,
        };
        let labels = |value| json!({"lease.redislease.io/billing": value});
        let annotations = |value| json!({"token.redislease.io/billing": value});
        let metadata = |role, token| {
            json!({"metadata": {
                "uid": "u", "resourceVersion": "7", "labels": labels(role), "annotations": annotations(token),
            }})
        };
        assert_eq!(role_patch("billing", &write), metadata(json!("active"), json!("9")));
        write.change = PodChange::Start;
        let mut started = metadata(json!("active"), json!("9"));
        started["metadata"]["annotations"]["started.redislease.io/billing"] = json!("9");
        started["spec"] = json!({"schedulingGates": null});
        assert_eq!(role_patch("billing", &write), started);
        write.change = PodChange::Fence(3);
        let mut fenced = metadata(json!("active"), json!("9"));
        fenced["metadata"]["annotations"]["withdrawn.redislease.io/billing"] = json!("9.3");
        assert_eq!(role_patch("billing", &write), fenced);
        write.change = PodChange::None;
        (write.role, write.token) = (None, None);
        let mut removed = metadata(json!(null), json!(null));
        removed["metadata"]["annotations"]["withdrawn.redislease.io/billing"] = json!(null);
        assert_eq!(role_patch("billing", &write), removed);
    }
}
