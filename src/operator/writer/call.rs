//! How each request is sent to the API server, and its answer taken apart.

use redislease_plan::annotations::decide::Change;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use redislease_plan::api::names::{self, PodRole};
use redislease_plan::api::validated::WorkloadKind;
use redislease_plan::api::{RedisLease, RedisLeaseStatus, RedisQuorum};
use redislease_plan::election::{Candidate, PodObject, Run, WorkloadFacts, is_off};
use redislease_plan::index::ListCount;
use redislease_plan::plan::calls::{
    Answer, Body, CLUSTER_NAMESPACE, LeaseName, Request, Stored, WorkloadFound, WorkloadKey, WorkloadRead,
};
use redislease_plan::plan::{PodChange, Read, RoleWrite, StatusWrite};
use serde_json::{Map, Value, json};

use super::startable::{self, pod_candidate};
use super::{owned, tokens};
use crate::operator::kube_api::{self, CallError, LONGEST_WEBHOOK, QUORUM_STATUS_TIMEOUT, TIMEOUT, call, call_within};

/// The part of a request that its caller keeps until it is sent.
pub(super) enum Payload {
    None,
    Event(Box<Event>),
    Change(Box<Change>),
}

/// Sends a request.
///
/// # Errors
/// [`CallError`].
pub(super) async fn send(client: Client, lists: &ListCount, request: &Request, payload: Payload) -> Answer {
    match request {
        Request::LeaseStatus { object, write, .. } => write_status(client, object, write).await,
        Request::QuorumStatus(object) => {
            let quorums: Api<RedisQuorum> = Api::namespaced(client, &object.namespace().unwrap_or_default());
            let (name, params) = (object.name_any(), PostParams::default());
            let written = call_within(QUORUM_STATUS_TIMEOUT, quorums.replace_status(&name, &params, object)).await;
            written.map(|quorum| Body::Quorum(Box::new(quorum)))
        }
        Request::Role { lease, write, quorum } => {
            if quorum.is_none() && write.role.is_none() {
                is_missing(client.clone(), lease).await?;
            }
            write_role(client, lists, lease, write).await
        }
        Request::Read { lease, read } => read_for(client, lists, lease, read).await,
        Request::Workload(key) => find_workload(client, key).await,
        Request::Quorum { namespace, name } => {
            let quorums: Api<RedisQuorum> = Api::namespaced(client, namespace);
            call(quorums.get(name)).await.map(|quorum| Body::Quorum(Box::new(quorum)))
        }
        Request::Tokens { quorum, namespaces, .. } => tokens::read(client, quorum, namespaces).await.map(Body::Tokens),
        Request::Secret { namespace, name, .. } => {
            let secrets: Api<Secret> = Api::namespaced(client, namespace);
            call(secrets.get(name)).await.map(|secret| Body::Secret(Box::new(secret)))
        }
        Request::ClusterUid | Request::Probe => {
            let namespaces: Api<Namespace> = Api::all(client);
            let read = call(namespaces.get_metadata(CLUSTER_NAMESPACE)).await;
            read.map(|namespace| Body::ClusterUid(namespace.uid().unwrap_or_default()))
        }
        Request::LeaseChange(_) => {
            let Payload::Change(change) = payload else { return Err(without_payload()) };
            owned::make(client, *change).await.map(Body::LeaseChange)
        }
        Request::Event { .. } => {
            // It was dropped meanwhile.
            let Payload::Event(event) = payload else { return Ok(Body::Done) };
            let events: Api<Event> = Api::namespaced(client, &event.namespace().unwrap_or_default());
            call(events.create(&PostParams::default(), &event)).await.map(|_| Body::Done)
        }
    }
}

/// Checks that a lease does not exist: the watch of leases may lag behind that of the marked object.
///
/// # Errors
/// [`CallError::Refused`] if it exists. Then the object is looked at again after a pause.
async fn is_missing(client: Client, lease: &LeaseName) -> Result<(), CallError> {
    let leases: Api<RedisLease> = Api::namespaced(client, &lease.namespace);
    match call(leases.get_metadata(&lease.name)).await {
        Err(CallError::NotFound) => Ok(()),
        Ok(_) => {
            Err(CallError::Refused(format!("RedisLease {} exists, and the watch has not shown it yet", lease.name)))
        }
        Err(error) => Err(error),
    }
}

fn without_payload() -> CallError {
    CallError::Panicked("the change of the lease is not known".to_owned())
}

async fn read_for(client: Client, lists: &ListCount, lease: &LeaseName, read: &Read) -> Answer {
    match read {
        Read::Lease => {
            let leases: Api<RedisLease> = Api::namespaced(client, &lease.namespace);
            call(leases.get(&lease.name)).await.map(lease_body)
        }
        Read::Holder { pod, workload: Some(kind), .. } => {
            let asked = lists.ask();
            let workload = call(kube_api::workloads(client, &lease.namespace, *kind).get(pod)).await?;
            let object = workload_candidate(*kind, &workload);
            Ok(Body::Object(Stored { asked, object, managed_fields: Vec::new() }))
        }
        Read::Holder { pod, workload: None, .. } => {
            let asked = lists.ask();
            let pod = call(Api::<PodObject>::namespaced(client, &lease.namespace).get(pod)).await?;
            Ok(Body::Object(Stored { asked, object: Some(pod_candidate(&pod)), managed_fields: Vec::new() }))
        }
        Read::Startable => startable::read(client, lists, &lease.namespace, &lease.name).await.map(Body::Pods),
        Read::Node { node, .. } => {
            let nodes: Api<Node> = Api::all(client);
            call(nodes.get(node)).await.map(|node| Body::Node(is_off(&node)))
        }
    }
}

/// Reads a workload: how it selects pods, and whether it runs.
async fn find_workload(client: Client, (namespace, workload): &WorkloadKey) -> Answer {
    let object = kube_api::workload(client, namespace, workload).await?;
    let read = WorkloadRead::of(kube_api::selector_of(workload.kind, &object)?);
    let object = WorkloadFacts::of(workload.kind, &object).map(Arc::new);
    Ok(Body::Workload(WorkloadFound { read, object }))
}

fn lease_body(mut lease: RedisLease) -> Body {
    lease.metadata.managed_fields = None;
    Body::Lease(Arc::new(lease))
}

async fn write_status(client: Client, object: &RedisLease, write: &StatusWrite) -> Answer {
    let mut next = object.clone();
    next.metadata.resource_version.clone_from(&write.version);
    next.status = Some(RedisLeaseStatus::clone(&write.status));
    let leases: Api<RedisLease> = Api::namespaced(client, &object.namespace().unwrap_or_default());
    call(leases.replace_status(&object.name_any(), &PostParams::default(), &next)).await.map(lease_body)
}

/// Writes label and token of one object, if it still has the version that was read.
async fn write_role(client: Client, lists: &ListCount, lease: &LeaseName, write: &RoleWrite) -> Answer {
    let asked = lists.ask();
    let stored = |object, metadata: ObjectMeta| {
        let managed_fields = metadata.managed_fields.unwrap_or_default();
        Body::Object(Stored { asked, object, managed_fields })
    };
    let pods: Api<PodObject> = Api::namespaced(client.clone(), &lease.namespace);
    let patch = Patch::Merge(role_patch(&lease.name, write));
    let params = PatchParams { dry_run: write.dry_run, ..PatchParams::default() };
    let timeout = if write.waits { LONGEST_WEBHOOK } else { TIMEOUT };
    match (write.workload, write.change) {
        (Some(kind), _) => {
            let workloads = kube_api::workloads(client, &lease.namespace, kind);
            let object = call_within(timeout, workloads.patch(&write.pod, &params, &patch)).await?;
            Ok(stored(workload_candidate(kind, &object), object.metadata))
        }
        (None, PodChange::Delete) => {
            let pod = delete_pod(&pods, write, timeout).await?;
            Ok(stored(pod.as_ref().map(pod_candidate), ObjectMeta::default()))
        }
        (None, PodChange::None | PodChange::Start | PodChange::Fence(_) | PodChange::Run(_)) => {
            let pod = call_within(timeout, pods.patch(&write.pod, &params, &patch)).await?;
            Ok(stored(Some(pod_candidate(&pod)), pod.metadata))
        }
    }
}

/// Deletes the pod in the version that was read, with its own grace period. Returns the pod while it stops. A pod that was never
/// scheduled is deleted at once: then the event of the watch says that nothing of it runs.
async fn delete_pod(
    pods: &Api<PodObject>,
    write: &RoleWrite,
    timeout: Duration,
) -> Result<Option<PodObject>, CallError> {
    let preconditions = Preconditions { uid: Some(write.uid.clone()), resource_version: write.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), dry_run: write.dry_run, ..DeleteParams::default() };
    let stops = |pod: &PodObject| pod.metadata.deletion_timestamp.is_some() && pod.node().is_some();
    Ok(call_within(timeout, pods.delete(&write.pod, &params)).await?.left().filter(stops))
}

/// A merge patch that sets or removes one label and one annotation of the pod at the version that was read, and lets the pod
/// start if that is wanted.
fn role_patch(lease: &str, write: &RoleWrite) -> Value {
    let annotations: Map<String, Value> =
        write.annotations(lease).into_iter().map(|(key, value)| (key, json!(value))).collect();
    let mut patch = json!({"metadata": {
        "uid": write.uid,
        "resourceVersion": write.version,
        "labels": {names::role_label(lease): write.role.map(PodRole::as_str)},
        "annotations": annotations,
    }});
    match write.change {
        PodChange::Start => patch["spec"] = json!({"schedulingGates": null}),
        PodChange::Run(Run::Replicas(replicas)) => patch["spec"] = json!({"replicas": replicas}),
        PodChange::Run(Run::Suspended(suspended)) => patch["spec"] = json!({"suspend": suspended}),
        PodChange::Fence(_) | PodChange::None | PodChange::Delete => {}
    }
    patch
}

fn workload_candidate(kind: WorkloadKind, object: &DynamicObject) -> Option<Candidate> {
    WorkloadFacts::of(kind, object).map(|facts| Candidate::Workload(Arc::new(facts)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::http::{Method, StatusCode, header};
    use redislease_plan::plan::Priority;

    use super::*;

    fn removal() -> RoleWrite {
        RoleWrite {
            priority: Priority::Active,
            pod: "billing-0".into(),
            uid: "u".into(),
            version: Some("7".into()),
            role: None,
            token: None,
            change: PodChange::None,
            marks: Vec::new(),
            workload: None,
            waits: false,
            dry_run: false,
            not_after: None,
        }
    }

    /// A fake API server, because a real one shows its watches at once. Returns the requests that a removal of marks sends.
    async fn removes(exists: bool) -> (Answer, Vec<String>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let answer = move |method: Method, uri: axum::http::Uri| async move {
            seen.lock().unwrap().push(format!("{method} {}", uri.path()));
            let metadata = json!({"name": "billing", "namespace": "n", "uid": "u"});
            let (code, body) = if method == Method::PATCH || exists {
                let kind = "PartialObjectMetadata";
                (200, json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": {}}))
            } else {
                (
                    404,
                    json!({"kind": "Status", "code": 404, "status": "Failure", "reason": "NotFound", "message": "no"}),
                )
            };
            let code = StatusCode::from_u16(code).unwrap();
            (code, [(header::CONTENT_TYPE, "application/json")], body.to_string())
        };
        let client = Client::new(Router::new().fallback(answer), "default");
        let lease = LeaseName { namespace: "n".into(), name: "billing".into(), uid: "name:billing".into() };
        let request = Request::Role { lease, write: Box::new(removal()), quorum: None };
        let answer = send(client, &ListCount::default(), &request, Payload::None).await;
        let requests = std::mem::take(&mut *requests.lock().unwrap());
        (answer, requests)
    }

    #[tokio::test]
    async fn the_marks_of_a_lease_that_the_watch_has_not_shown_yet_stay() {
        let read = "GET /apis/redislease.io/v1alpha1/namespaces/n/redisleases/billing";
        let (answer, requests) = removes(true).await;
        let Err(CallError::Refused(why)) = answer else { panic!("{answer:?}") };
        assert_eq!(
            (why.as_str(), requests),
            ("RedisLease billing exists, and the watch has not shown it yet", vec![read.to_owned()])
        );
        let (answer, requests) = removes(false).await;
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(requests, [read, "PATCH /api/v1/namespaces/n/pods/billing-0"]);
    }

    #[test]
    fn a_role_patch_names_uid_and_version_and_removes_what_is_absent() {
        let mut write = RoleWrite { role: Some(PodRole::Active), token: Some("9".into()), ..removal() };
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
        started["metadata"]["annotations"]["started.redislease.io/billing"] = json!("9.u");
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
