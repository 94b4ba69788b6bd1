//! The calls for the Service of a lease and its EndpointSlices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use redislease_core::op::Token;
use serde_json::{Value, json};

use super::call::{Call, Done};
use super::key::Key;
use super::{Writer, job};
use crate::api::RedisLease;
use crate::api::names::{
    LEASE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL, SLICE_MANAGER, SLICE_MANAGER_LABEL, token_annotation,
};
use crate::metrics::operator::{OperatorMetrics, WriteKind, WriteResult};
use crate::operator::kube_api::{CallError, call};
use crate::plan::calls::Submission;
use crate::plan::{
    ContainerPort, Endpoint, Prepared, RoleOutcome, ServiceFacts, ServicePort, ServiceRequest, SliceChange, SliceFacts,
    SlicePort, SliceWrite, TargetPort, is_managed, new_service_ports, slice_labels,
};

/// The lease that a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub namespace: String,
    pub name: String,
    /// The UID; `None` if the lease does not exist or cannot be read.
    pub uid: Option<String>,
}

/// The outcome of a write of a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceAnswer {
    /// The outcome for the caller.
    pub outcome: RoleOutcome,
    /// The current slice, if the answer contains it.
    pub found: Option<SliceFound>,
}

/// The result of reading a slice.
#[derive(Clone, Debug, PartialEq)]
pub enum SliceFound {
    /// As it is now.
    Here(Box<SliceFacts>),
    /// The slice with this UID does not exist.
    Gone(String),
}

/// What was found for a [`ServiceRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceFound {
    pub prepared: Prepared,
    /// The slices of the lease.
    pub slices: Vec<SliceFacts>,
}

impl Writer {
    /// Writes an EndpointSlice of a lease.
    pub fn write_slice(&self, namespace: &Arc<str>, owner: Owner, write: Box<SliceWrite>, done: Done<SliceAnswer>) {
        // The second is never the UID of a lease, so the key is unique.
        let lease = owner.uid.clone().unwrap_or_else(|| format!("name:{}/{}", owner.namespace, owner.name));
        let key = Key::Slice { lease: lease.into(), name: write.name.as_str().into() };
        let (level, not_after) = (write.priority.into(), write.not_after);
        let call = Call::Slice { owner, write, done };
        self.submit(Submission { not_after, ..job(key, namespace, level, call) });
    }

    /// Withdraws the write of an EndpointSlice of a lease, if it was not sent yet.
    pub fn withdraw_slice(&self, lease: &str, name: &str) {
        self.withdraw(&Key::Slice { lease: lease.into(), name: name.into() });
    }
}

/// Writes one slice, if it still has the version that was read. Otherwise it is read again: another replica may lead
/// meanwhile.
pub(super) async fn write(
    client: Client,
    owner: &Owner,
    write: &SliceWrite,
    metrics: &OperatorMetrics,
) -> (Result<(), CallError>, SliceAnswer) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &owner.namespace);
    let written = match (&write.change, &write.uid) {
        (SliceChange::Remove { with_service }, _) => {
            let may_be_old = *with_service || owner.uid.is_none();
            let wanted = if may_be_old { is_wanted(client.clone(), owner, &write.service).await } else { Ok(false) };
            match wanted {
                Ok(false) => remove(client, owner, write, *with_service, metrics).await.map(|()| None),
                Ok(true) => {
                    return (Err(CallError::Conflict), SliceAnswer { outcome: RoleOutcome::Conflict, found: None });
                }
                Err(error) => Err(error),
            }
        }
        (SliceChange::Put { .. }, None) => match new_slice(owner, write) {
            Ok(slice) => call(slices.create(&PostParams::default(), &slice)).await.map(Some),
            Err(error) => Err(CallError::Refused(error.to_string())),
        },
        (SliceChange::Put { token, endpoint, ports }, Some(_)) => {
            let patch = Patch::Merge(patch(owner, write, *token, endpoint.as_ref(), ports));
            call(slices.patch(&write.name, &PatchParams::default(), &patch)).await.map(Some)
        }
    };
    let here = |slice: &EndpointSlice| SliceFound::Here(Box::new(SliceFacts::from(slice)));
    let gone = || write.uid.clone().map(SliceFound::Gone);
    let error = match written {
        Ok(Some(slice)) if !write.change.is_in(&SliceFacts::from(&slice)) => {
            // Written as before, it would be changed again: as after a refusal, the next write waits.
            let why = format!(
                "the API server stored another content than the operator wrote, probably because of a mutating admission \
                 webhook: exclude EndpointSlices with the label {SLICE_MANAGER_LABEL}={SLICE_MANAGER} from it."
            );
            let outcome = RoleOutcome::Refused(why.clone());
            return (Err(CallError::Refused(why)), SliceAnswer { outcome, found: Some(here(&slice)) });
        }
        Ok(slice) => {
            let found = slice.as_ref().map(here).or_else(gone);
            return (Ok(()), SliceAnswer { outcome: RoleOutcome::Written, found });
        }
        Err(error) => error,
    };
    let refused = |why: String| {
        let outcome = RoleOutcome::Refused(why.clone());
        (Err(CallError::Refused(why)), SliceAnswer { outcome, found: None })
    };
    let (outcome, found) = match &error {
        CallError::Refused(why) => (RoleOutcome::Refused(why.clone()), None),
        CallError::Conflict | CallError::NotFound => match call(slices.get(&write.name)).await {
            // An admission webhook may refuse with any status code.
            Ok(slice) if write.version.is_some() && slice.resource_version() == write.version => {
                return refused(format!(
                    "EndpointSlice {} is unchanged, and the change is refused: {error}",
                    write.name
                ));
            }
            Ok(slice) if !is_managed(&slice) => {
                return refused(format!(
                    "an EndpointSlice of this name exists that the operator does not manage: delete {}.",
                    write.name
                ));
            }
            Ok(slice) => (RoleOutcome::Conflict, Some(here(&slice))),
            Err(CallError::NotFound) if write.uid.is_some() => (RoleOutcome::Gone, gone()),
            // An admission webhook or a missing namespace.
            Err(CallError::NotFound) if matches!(write.change, SliceChange::Put { .. }) => {
                return refused(error.to_string());
            }
            // The last request counts: it is what says whether the API server answers.
            Err(unanswered @ CallError::Unanswered(_)) => {
                return (Err(unanswered), SliceAnswer { outcome: RoleOutcome::Conflict, found: None });
            }
            Err(_) => (RoleOutcome::Conflict, None),
        },
        error => (RoleOutcome::Unanswered(error.unknown().unwrap_or_default()), None),
    };
    (Err(error), SliceAnswer { outcome, found })
}

/// Whether the lease still wants the Service, or, for a lease that was not found, whether it exists: the decision may be
/// old.
async fn is_wanted(client: Client, owner: &Owner, service: &str) -> Result<bool, CallError> {
    let leases: Api<RedisLease> = Api::namespaced(client, &owner.namespace);
    Ok(found(call(leases.get(&owner.name)).await)?.is_some_and(|lease| wants(&lease, owner, service)))
}

fn wants(lease: &RedisLease, owner: &Owner, service: &str) -> bool {
    let names_it = lease.spec.active_service.as_ref().is_some_and(|active| active.name == service);
    owner.uid.is_none() || (lease.uid() == owner.uid && lease.metadata.deletion_timestamp.is_none() && names_it)
}

/// Empties the slice, deletes the Service that the operator created for the lease, if that is wanted, and deletes the
/// slice. A late call ends at the first step if the slice has another version, and otherwise before the Service, which is
/// wanted again.
async fn remove(
    client: Client,
    owner: &Owner,
    write: &SliceWrite,
    with_service: bool,
    metrics: &OperatorMetrics,
) -> Result<(), CallError> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &owner.namespace);
    let mut slice = None;
    if let Some(uid) = &write.uid {
        let empty = Patch::Merge(patch(owner, write, None, None, &[]));
        match call(slices.patch(&write.name, &PatchParams::default(), &empty)).await {
            Ok(emptied) => slice = Some((uid, emptied.resource_version())),
            Err(CallError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    if with_service {
        remove_service(client, owner, &write.service, metrics).await?;
    }
    if let Some((uid, version)) = slice {
        found(call(slices.delete(&write.name, &only(Some(uid.clone()), version))).await)?;
    }
    Ok(())
}

async fn remove_service(client: Client, owner: &Owner, name: &str, metrics: &OperatorMetrics) -> Result<(), CallError> {
    let services: Api<Service> = Api::namespaced(client, &owner.namespace);
    let Some(service) = found(call(services.get(name)).await)? else { return Ok(()) };
    if !is_created(&service, owner) {
        return Ok(());
    }
    let deleted = call(services.delete(name, &only(service.uid(), service.resource_version()))).await;
    metrics.wrote(WriteKind::Service, deleted.as_ref().map_or_else(CallError::result, |_| WriteResult::Ok));
    found(deleted).map(drop)
}

/// `None` for an object that does not exist.
fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(CallError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the operator created the Service for this lease, and the user has not taken it over since.
fn is_created(service: &Service, owner: &Owner) -> bool {
    let is = |key: &str, value: &str| service.labels().get(key).is_some_and(|found| found == value);
    let controller = service.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|found| Some(&found.uid) == owner.uid.as_ref())
        && is(MANAGED_BY_LABEL, MANAGED_BY)
        && is(LEASE_LABEL, &owner.name)
        && !ServiceFacts::from(service).has_selector
}

fn only(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    let preconditions = Preconditions { uid, resource_version };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Reads a Service, its slices and a pod. A Service that does not exist is created if the pod has ports. Without a
/// resource version, the API server answers with the newest state.
pub(super) async fn prepare(
    client: Client,
    owner: &Owner,
    request: &ServiceRequest,
    metrics: &OperatorMetrics,
) -> Result<ServiceFound, CallError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &owner.namespace);
    let pod = found(call(pods.get(&request.pod)).await)?.filter(|pod| pod.uid().as_ref() == Some(&request.pod_uid));
    let ports = pod.as_ref().map(ContainerPort::of);
    let services: Api<Service> = Api::namespaced(client.clone(), &owner.namespace);
    let (service, refused) = match found(call(services.get(&request.service)).await)? {
        Some(service) => (Some(service), None),
        // A failed creation is not repeated like an unanswered read: the API server may answer each one with an error. The
        // list below shows whether it answers at all.
        None => match create(&services, owner, request, ports.as_deref(), metrics).await {
            Ok(service) => (service, None),
            Err(error) => (None, Some(error.to_string())),
        },
    };
    let service = service.as_ref().map(ServiceFacts::from);
    let mut prepared = Prepared { service, refused, ports, ..Prepared::default() };
    let of_service = ListParams::default().labels(&format!("{SERVICE_LABEL}={}", request.service));
    let listed = call(Api::<EndpointSlice>::namespaced(client, &owner.namespace).list(&of_service)).await?;
    let slices = prepared.note_slices(&owner.name, &listed.items);
    Ok(ServiceFound { prepared, slices })
}

async fn create(
    services: &Api<Service>,
    owner: &Owner,
    request: &ServiceRequest,
    ports: Option<&[ContainerPort]>,
    metrics: &OperatorMetrics,
) -> Result<Option<Service>, CallError> {
    let ports = ports.map(new_service_ports).unwrap_or_default();
    if ports.is_empty() {
        return Ok(None);
    }
    let service =
        new_service(owner, &request.service, &ports).map_err(|error| CallError::Refused(error.to_string()))?;
    let created = call(services.create(&PostParams::default(), &service)).await;
    metrics.wrote(WriteKind::Service, created.as_ref().map_or_else(CallError::result, |_| WriteResult::Ok));
    match created {
        Err(CallError::Conflict) => call(services.get(&request.service)).await.map(Some),
        created => created.map(Some),
    }
}

fn owner_reference(owner: &Owner) -> Value {
    json!({
        "apiVersion": RedisLease::api_version(&()),
        "kind": RedisLease::kind(&()),
        "name": owner.name,
        "uid": owner.uid,
        "controller": true,
    })
}

fn new_service(owner: &Owner, name: &str, ports: &[ServicePort]) -> serde_json::Result<Service> {
    let ports = ports.iter().map(|ServicePort { port, target }| {
        let target = match target {
            TargetPort::Number(number) => json!(number),
            TargetPort::Name(name) => json!(name),
        };
        json!({"name": port.name, "protocol": port.protocol, "port": port.port, "targetPort": target})
    });
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, LEASE_LABEL: owner.name},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": ports.collect::<Vec<_>>()},
    }))
}

/// A new slice has no endpoint, so that a late creation adds none.
fn new_slice(owner: &Owner, write: &SliceWrite) -> serde_json::Result<EndpointSlice> {
    let SliceChange::Put { token, .. } = &write.change else { return Ok(EndpointSlice::default()) };
    serde_json::from_value(json!({
        "metadata": {
            "name": write.name,
            "namespace": owner.namespace,
            "labels": slice_labels(&owner.name, &write.service),
            "annotations": token.map(|token| json!({token_annotation(&owner.name): token.to_string()})),
            "ownerReferences": [owner_reference(owner)],
        },
        "addressType": write.family.as_str(),
        "endpoints": [],
    }))
}

/// A merge patch that replaces token, endpoints and ports of the slice at the version that was read.
fn patch(
    owner: &Owner,
    write: &SliceWrite,
    token: Option<Token>,
    endpoint: Option<&Endpoint>,
    ports: &[SlicePort],
) -> Value {
    let metadata = json!({
        "uid": write.uid,
        "resourceVersion": write.version,
        "annotations": {token_annotation(&owner.name): token.map(|token| token.to_string())},
    });
    let endpoints = endpoint.iter().map(|endpoint| {
        let Endpoint { pod, uid, node, addresses, ready, serving, terminating } = endpoint;
        json!({
            "addresses": addresses,
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            "targetRef": {"kind": "Pod", "namespace": owner.namespace, "name": pod, "uid": uid},
            "nodeName": node,
        })
    });
    let ports = ports.iter().map(|SlicePort { name, protocol, port, app_protocol }| {
        json!({"name": name, "protocol": protocol, "port": port, "appProtocol": app_protocol})
    });
    json!({
        "metadata": metadata,
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
