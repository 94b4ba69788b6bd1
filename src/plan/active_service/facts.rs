//! The facts about a Service that follows the holder: its EndpointSlices, the Service itself, and the holder's pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{self, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use redislease_core::op::Token;

use crate::api::names::{
    self, LEASE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL, SLICE_MANAGER, SLICE_MANAGER_LABEL,
};

/// The address family of an EndpointSlice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The `addressType` of an EndpointSlice, and a value of a Service's `ipFamilies`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn of(text: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.as_str() == text)
    }

    /// The family of an address.
    pub const fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The name of the EndpointSlice of a Service for one family.
pub fn slice_name(service: &str, family: Family) -> String {
    format!("{service}-redislease-{}", family.as_str().to_ascii_lowercase())
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The Kubernetes node of the pod.
    pub node: Option<String>,
    /// The addresses; the operator writes one.
    pub addresses: Vec<String>,
    /// The condition `ready`.
    pub ready: bool,
    /// The condition `serving`.
    pub serving: bool,
    /// The condition `terminating`.
    pub terminating: bool,
}

/// A port of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlicePort {
    /// The name of the Service's port; empty if it has none.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
    /// `appProtocol` of the Service's port.
    pub app_protocol: Option<String>,
}

/// The facts about an EndpointSlice that the operator manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion. A write by the operator names it.
    pub version: Option<String>,
    /// The name of the lease that it belongs to.
    pub lease: String,
    /// The UID of the RedisLease that owns it.
    pub owner: Option<String>,
    /// The Service that it belongs to.
    pub service: String,
    /// Its address family.
    pub family: Option<Family>,
    /// The token of the term for which it was written last.
    pub token: Option<Token>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its ports.
    pub ports: Vec<SlicePort>,
}

impl SliceFacts {
    /// A slice of a lease that does not exist yet: it has no UID, token, endpoint or port.
    pub fn new(namespace: &str, lease: &str, owner: &str, service: &str, family: Family) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: slice_name(service, family),
            uid: String::new(),
            version: None,
            lease: lease.to_owned(),
            owner: Some(owner.to_owned()),
            service: service.to_owned(),
            family: Some(family),
            token: None,
            endpoints: Vec::new(),
            ports: Vec::new(),
        }
    }
}

impl From<&EndpointSlice> for SliceFacts {
    fn from(slice: &EndpointSlice) -> Self {
        let label = |key: &str| slice.labels().get(key).cloned().unwrap_or_default();
        let lease = label(LEASE_LABEL);
        let token = slice.annotations().get(&names::token_annotation(&lease));
        let owner = slice.owner_references().iter().find(|owner| owner.controller == Some(true));
        Self {
            namespace: slice.namespace().unwrap_or_default(),
            name: slice.name_any(),
            uid: slice.uid().unwrap_or_default(),
            version: slice.resource_version(),
            owner: owner.map(|owner| owner.uid.clone()),
            service: label(SERVICE_LABEL),
            family: Family::of(&slice.address_type),
            token: token.and_then(|token| token.parse().ok()).map(Token),
            endpoints: slice.endpoints.iter().map(endpoint).collect(),
            ports: slice.ports.iter().flatten().map(slice_port).collect(),
            lease,
        }
    }
}

fn endpoint(endpoint: &v1::Endpoint) -> Endpoint {
    let target = endpoint.target_ref.clone().unwrap_or_default();
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    Endpoint {
        pod: target.name.unwrap_or_default(),
        uid: target.uid.unwrap_or_default(),
        node: endpoint.node_name.clone(),
        addresses: endpoint.addresses.clone(),
        ready: conditions.ready.unwrap_or(true),
        serving: conditions.serving.unwrap_or(true),
        terminating: conditions.terminating.unwrap_or(false),
    }
}

fn slice_port(port: &v1::EndpointPort) -> SlicePort {
    SlicePort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
        port: port.port.unwrap_or_default(),
        app_protocol: port.app_protocol.clone(),
    }
}

/// The target of a Service's port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetPort {
    /// A port number.
    Number(i32),
    /// The name of a container port.
    Name(String),
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The name, protocol and `appProtocol` for the slice.
    pub port: SlicePort,
    /// Its target on the pod.
    pub target: TargetPort,
}

/// The facts about a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceFacts {
    /// Whether it has a selector: Kubernetes then maintains its endpoints.
    pub has_selector: bool,
    /// Whether it is an alias of a DNS name (`type: ExternalName`) and has no endpoints.
    pub is_alias: bool,
    /// Its address families.
    pub families: Vec<Family>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// `publishNotReadyAddresses`: its endpoints count as ready in any case.
    pub publishes_not_ready: bool,
}

impl From<&Service> for ServiceFacts {
    fn from(service: &Service) -> Self {
        let none = ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&none);
        let ports = spec.ports.iter().flatten().map(|port| ServicePort {
            port: SlicePort {
                name: port.name.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port: port.port,
                app_protocol: port.app_protocol.clone(),
            },
            target: match &port.target_port {
                None => TargetPort::Number(port.port),
                Some(IntOrString::Int(number)) => TargetPort::Number(*number),
                Some(IntOrString::String(name)) => TargetPort::Name(name.clone()),
            },
        });
        Self {
            has_selector: spec.selector.as_ref().is_some_and(|selector| !selector.is_empty()),
            is_alias: spec.type_.as_deref() == Some("ExternalName"),
            families: spec.ip_families.iter().flatten().filter_map(|family| Family::of(family)).collect(),
            ports: ports.collect(),
            publishes_not_ready: spec.publish_not_ready_addresses == Some(true),
        }
    }
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerPort {
    /// Its name; empty if it has none.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub number: i32,
}

impl ContainerPort {
    /// The ports of the pod's containers, sidecars included.
    pub fn of(pod: &Pod) -> Vec<Self> {
        let spec = pod.spec.as_ref();
        let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(sidecar);
        let containers = spec.into_iter().flat_map(|spec| &spec.containers).chain(sidecars);
        let ports = containers.flat_map(|container| container.ports.iter().flatten()).map(|port| Self {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            number: port.container_port,
        });
        ports.collect()
    }
}

/// What the API server has for a Service and the pod that is to be its endpoint. If the Service does not exist, it is
/// created with the ports of the pod; see [`new_service_ports`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The Service; `None` if it does not exist and was not created.
    pub service: Option<ServiceFacts>,
    /// Why the Service could not be created; `None` if it exists, or if the pod has no ports to create it with.
    pub refused: Option<String>,
    /// The container ports of the pod; `None` if it does not exist.
    pub ports: Option<Vec<ContainerPort>>,
    /// An EndpointSlice of the Service that has endpoints and that the operator does not manage: its name.
    pub foreign_slice: Option<String>,
    /// Another RedisLease that has an EndpointSlice of the Service.
    pub other_lease: Option<String>,
}

impl Prepared {
    /// Records the EndpointSlices of the Service. Returns those of this lease.
    pub fn note_slices(&mut self, lease: &str, slices: &[EndpointSlice]) -> Vec<SliceFacts> {
        let mut own = Vec::new();
        for slice in slices {
            if is_managed(slice) {
                let facts = SliceFacts::from(slice);
                if facts.lease == lease {
                    own.push(facts);
                } else {
                    self.other_lease = Some(facts.lease);
                }
            } else if !slice.endpoints.is_empty() {
                self.foreign_slice = Some(slice.name_any());
            }
        }
        own
    }
}

/// Whether the operator manages the slice: its labels name the operator and a lease. It never changes another one.
pub fn is_managed(slice: &EndpointSlice) -> bool {
    let label = |key: &str| slice.labels().get(key).map(String::as_str).unwrap_or_default();
    label(SLICE_MANAGER_LABEL) == SLICE_MANAGER && !label(LEASE_LABEL).is_empty()
}

/// The ports of a new Service for this pod: each container port under its own number. A port without a name gets the name
/// of its protocol and number, because a Service with several ports needs names.
pub fn new_service_ports(containers: &[ContainerPort]) -> Vec<ServicePort> {
    let mut ports: BTreeMap<(i32, &str), ServicePort> = BTreeMap::new();
    for ContainerPort { name, protocol, number } in containers {
        let (name, target) = if name.is_empty() {
            (format!("{}-{number}", protocol.to_ascii_lowercase()), TargetPort::Number(*number))
        } else {
            (name.clone(), TargetPort::Name(name.clone()))
        };
        if ports.values().all(|other| other.port.name != name) {
            let port = SlicePort { name, protocol: protocol.clone(), port: *number, app_protocol: None };
            ports.entry((*number, protocol)).or_insert(ServicePort { port, target });
        }
    }
    ports.into_values().collect()
}

/// The labels of an EndpointSlice that the operator creates.
pub fn slice_labels(lease: &str, service: &str) -> BTreeMap<String, String> {
    let labels = [
        (SERVICE_LABEL, service),
        (SLICE_MANAGER_LABEL, SLICE_MANAGER),
        (MANAGED_BY_LABEL, MANAGED_BY),
        (LEASE_LABEL, lease),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
