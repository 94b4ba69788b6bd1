//! The calls for the Service of a lease and its EndpointSlices.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::api::RedisLease;
use crate::api::names::{LEASE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL, token_annotation};
use crate::operator::kube_api::{CallError, call};
use crate::plan::{
    Endpoint, PodNetwork, Prepared, RoleOutcome, ServiceFacts, ServicePort, ServiceRequest, SliceChange, SliceFacts,
    SlicePort, SliceWrite, TargetPort, new_service_ports, slice_labels,
};

/// The lease that a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub namespace: String,
    pub name: String,
    pub uid: String,
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
    /// It does not exist.
    Gone,
}

/// What was found for a [`ServiceRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceFound {
    pub prepared: Prepared,
    /// The slices of the lease.
    pub slices: Vec<SliceFacts>,
}

/// Writes one slice, if it still has the version that was read. Otherwise it is read again: another replica may lead
/// meanwhile.
pub(super) async fn write(client: Client, owner: &Owner, write: &SliceWrite) -> (Result<(), CallError>, SliceAnswer) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &owner.namespace);
    let written = match (&write.change, &write.uid) {
        (SliceChange::Remove { with_service }, Some(uid)) => remove(client, owner, write, uid, *with_service).await,
        (SliceChange::Remove { .. }, None) => Ok(None),
        (SliceChange::Put { .. }, None) => match new_slice(owner, write) {
            Ok(slice) => call(slices.create(&PostParams::default(), &slice)).await.map(Some),
            Err(error) => Err(CallError::Refused(error.to_string())),
        },
        (SliceChange::Put { .. }, Some(_)) => {
            let patch = Patch::Merge(patch(owner, write));
            call(slices.patch(&write.name, &PatchParams::default(), &patch)).await.map(Some)
        }
    };
    let here = |slice: &EndpointSlice| SliceFound::Here(Box::new(SliceFacts::from(slice)));
    let error = match written {
        Ok(slice) => {
            let found = slice.as_ref().map_or(SliceFound::Gone, here);
            return (Ok(()), SliceAnswer { outcome: RoleOutcome::Written, found: Some(found) });
        }
        Err(error) => error,
    };
    let (outcome, found) = match &error {
        CallError::Unanswered(why) | CallError::Unreadable(why) => (RoleOutcome::Unanswered(why.clone()), None),
        CallError::Refused(why) => (RoleOutcome::Refused(why.clone()), None),
        CallError::Conflict | CallError::NotFound => match call(slices.get(&write.name)).await {
            // An admission webhook may refuse with any status code.
            Ok(slice) if write.version.is_some() && slice.resource_version() == write.version => {
                let why = format!("EndpointSlice {} is unchanged, and the change is refused: {error}", write.name);
                let outcome = RoleOutcome::Refused(why.clone());
                return (Err(CallError::Refused(why)), SliceAnswer { outcome, found: None });
            }
            Ok(slice) => (RoleOutcome::Conflict, Some(here(&slice))),
            Err(CallError::NotFound) => (RoleOutcome::Gone, Some(SliceFound::Gone)),
            Err(_) => (RoleOutcome::Conflict, None),
        },
    };
    (Err(error), SliceAnswer { outcome, found })
}

/// Deletes the Service that the operator created for the lease, if that is wanted, and then the slice.
async fn remove(
    client: Client,
    owner: &Owner,
    write: &SliceWrite,
    uid: &str,
    with_service: bool,
) -> Result<Option<EndpointSlice>, CallError> {
    if with_service {
        let services: Api<Service> = Api::namespaced(client.clone(), &owner.namespace);
        let created = match call(services.get_metadata(&write.service)).await {
            Ok(service) => is_created(&service.metadata.labels.unwrap_or_default(), owner)
                .then_some(service.metadata.uid)
                .flatten(),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(error),
        };
        if let Some(uid) = created {
            let deleted = call(services.delete(&write.service, &only(&uid, None))).await.map(drop);
            deleted.or_else(|error| if matches!(error, CallError::NotFound) { Ok(()) } else { Err(error) })?;
        }
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client, &owner.namespace);
    match call(slices.delete(&write.name, &only(uid, write.version.clone()))).await {
        Ok(_) | Err(CallError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the operator created the Service for a lease of this name.
fn is_created(labels: &std::collections::BTreeMap<String, String>, owner: &Owner) -> bool {
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    is(MANAGED_BY_LABEL, MANAGED_BY) && is(LEASE_LABEL, &owner.name)
}

fn only(uid: &str, resource_version: Option<String>) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Reads a Service, its slices and a pod. A Service that does not exist is created if the pod has ports. Without a
/// resource version, the API server answers with the newest state.
pub(super) async fn prepare(
    client: Client,
    owner: &Owner,
    request: &ServiceRequest,
) -> Result<ServiceFound, CallError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &owner.namespace);
    let pod = match call(pods.get(&request.pod)).await {
        Ok(pod) => (pod.uid().as_ref() == Some(&request.pod_uid)).then(|| PodNetwork::from(&pod)),
        Err(CallError::NotFound) => None,
        Err(error) => return Err(error),
    };
    let services: Api<Service> = Api::namespaced(client.clone(), &owner.namespace);
    let service = match call(services.get(&request.service)).await {
        Err(CallError::NotFound) => create(&services, owner, request, pod.as_ref()).await?,
        found => Some(found?),
    };
    let mut prepared = Prepared { service: service.as_ref().map(ServiceFacts::from), pod, ..Prepared::default() };
    let of_service = ListParams::default().labels(&format!("{SERVICE_LABEL}={}", request.service));
    let listed = call(Api::<EndpointSlice>::namespaced(client, &owner.namespace).list(&of_service)).await?;
    let slices = prepared.note_slices(&owner.name, &listed.items);
    Ok(ServiceFound { prepared, slices })
}

async fn create(
    services: &Api<Service>,
    owner: &Owner,
    request: &ServiceRequest,
    pod: Option<&PodNetwork>,
) -> Result<Option<Service>, CallError> {
    let ports = pod.map(new_service_ports).unwrap_or_default();
    if ports.is_empty() {
        return Ok(None);
    }
    let service =
        new_service(owner, &request.service, &ports).map_err(|error| CallError::Refused(error.to_string()))?;
    match call(services.create(&PostParams::default(), &service)).await {
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

/// A merge patch that replaces endpoints and ports of the slice at the version that was read.
fn patch(owner: &Owner, write: &SliceWrite) -> Value {
    let SliceChange::Put { token, endpoint, ports } = &write.change else { return json!({}) };
    let mut metadata = json!({"uid": write.uid, "resourceVersion": write.version});
    if let Some(token) = token {
        metadata["annotations"] = json!({token_annotation(&owner.name): token.to_string()});
    }
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
mod tests {
    use super::*;
    use crate::plan::{Family, Priority};
    use redislease_core::op::Token;

    fn owner() -> Owner {
        Owner { namespace: "shop".into(), name: "billing".into(), uid: "l".into() }
    }

    fn put(endpoint: Option<Endpoint>, uid: Option<&str>) -> SliceWrite {
        let ports = vec![SlicePort { name: "http".into(), protocol: "TCP".into(), port: 8080, app_protocol: None }];
        SliceWrite {
            priority: Priority::Active,
            name: "active-redislease-ipv4".into(),
            uid: uid.map(str::to_owned),
            version: uid.map(|_| "7".to_owned()),
            service: "active".into(),
            family: Family::V4,
            change: SliceChange::Put { token: Some(Token(9)), endpoint, ports },
            not_after: None,
        }
    }

    fn endpoint() -> Endpoint {
        Endpoint {
            pod: "billing-0".into(),
            uid: "p".into(),
            node: Some("node-1".into()),
            addresses: vec!["10.0.0.7".into()],
            ready: false,
            serving: true,
            terminating: true,
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let new = new_slice(&owner(), &put(Some(endpoint()), None)).unwrap();
        let facts = SliceFacts::from(&new);
        assert_eq!((facts.endpoints, facts.token, facts.family), (Vec::new(), Some(Token(9)), Some(Family::V4)));
        assert_eq!((facts.lease.as_str(), facts.service.as_str()), ("billing", "active"));
        assert_eq!(facts.owner.as_deref(), Some("l"));
        let write = put(Some(endpoint()), Some("s"));
        let patch = patch(&owner(), &write);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let mut whole = serde_json::to_value(&new).unwrap();
        whole["endpoints"] = patch["endpoints"].clone();
        whole["ports"] = patch["ports"].clone();
        let patched: EndpointSlice = serde_json::from_value(whole).unwrap();
        assert!(write.change.is_in(&SliceFacts::from(&patched)), "{patched:?}");
    }

    #[test]
    fn a_withdrawal_without_a_token_keeps_the_annotation() {
        let mut write = put(None, Some("s"));
        write.change = SliceChange::empty(None);
        assert_eq!(
            patch(&owner(), &write),
            json!({"metadata": {"uid": "s", "resourceVersion": "7"}, "endpoints": [], "ports": []})
        );
    }

    #[test]
    fn a_new_service_has_the_ports_of_the_pod_and_no_selector() {
        let ports =
            |name: &str, number| crate::plan::ContainerPort { name: name.into(), protocol: "TCP".into(), number };
        let pod = PodNetwork { addresses: Vec::new(), ports: vec![ports("http", 8080), ports("", 9090)] };
        let service = new_service(&owner(), "active", &new_service_ports(&pod)).unwrap();
        let facts = ServiceFacts::from(&service);
        assert!(!facts.has_selector && !facts.is_alias);
        let ports: Vec<_> = facts.ports.iter().map(|of| (of.port.name.as_str(), of.port.port, &of.target)).collect();
        let (http, metrics) = (TargetPort::Name("http".into()), TargetPort::Number(9090));
        assert_eq!(ports, [("http", 8080, &http), ("tcp-9090", 9090, &metrics)]);
        assert!(is_created(service.labels(), &owner()));
        let others = Owner { name: "invoices".into(), ..owner() };
        assert!(!is_created(service.labels(), &others));
    }
}
