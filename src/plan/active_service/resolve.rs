//! Which endpoint and ports the slices of a Service should have, or why they cannot have any.

use super::facts::{ContainerPort, Family, Prepared, ServiceFacts, ServicePort, SlicePort, TargetPort};
use crate::api::names::{self, PodRole};
use crate::plan::effect::ServiceRequest;

/// The content of the slices for one pod, except its addresses and readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// The families of the Service, the primary one first.
    pub families: Vec<Family>,
    pub ports: Vec<SlicePort>,
    /// Whether the endpoint is ready although the pod is not.
    pub always_ready: bool,
    /// What is wrong with the ports: they have been left out.
    pub problem: Option<String>,
}

/// Resolves the Service for the pod.
///
/// # Errors
/// One or two sentences that say why the Service cannot have an endpoint, and what to do.
pub(super) fn resolve(lease: &str, request: &ServiceRequest, prepared: &Prepared) -> Result<Target, String> {
    let ServiceRequest { service: name, pod: pod_name, .. } = request;
    if let Some(other) = &prepared.other_lease {
        return Err(format!(
            "Service {name} already belongs to RedisLease {other}: use another name in activeService."
        ));
    }
    if let Some(why) = &prepared.refused {
        return Err(format!("Service {name} could not be created: {why}."));
    }
    let Some(service) = &prepared.service else {
        return Err(format!(
            "Service {name} does not exist, and pod {pod_name} declares no container port that a new Service could have: \
             declare the ports of the container, or create the Service without a selector."
        ));
    };
    if service.has_selector {
        let (label, role) = (names::role_label(lease), PodRole::Active.as_str());
        return Err(format!(
            "Service {name} has a selector, so Kubernetes chooses its endpoints, and the operator does not change it: \
             remove the selector, or remove activeService and add \"{label}: {role}\" to the selector."
        ));
    }
    if service.is_alias {
        return Err(format!("Service {name} is of type ExternalName, which has no endpoints: use another type."));
    }
    if let Some(slice) = &prepared.foreign_slice {
        return Err(format!(
            "Service {name} has endpoints in EndpointSlice {slice}, which the operator does not manage: delete it, and \
             the Endpoints {name} if there are any."
        ));
    }
    let (ports, missing) = ports(service, prepared.ports.as_deref().unwrap_or_default());
    let problem = (!missing.is_empty()).then(|| {
        format!(
            "Service {name} lacks {} of its ports, because pod {pod_name} has no container port with the name and \
             protocol of the target port: {}.",
            missing.len(),
            missing.join(", ")
        )
    });
    Ok(Target { families: service.families.clone(), ports, always_ready: service.publishes_not_ready, problem })
}

/// The ports of the Service on this pod, and the ports that it does not have.
fn ports(service: &ServiceFacts, containers: &[ContainerPort]) -> (Vec<SlicePort>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for ServicePort { port, target } in &service.ports {
        let number = match target {
            TargetPort::Number(number) => Some(*number),
            TargetPort::Name(name) => {
                let named = containers.iter().find(|of| of.name == *name && of.protocol == port.protocol);
                named.map(|port| port.number)
            }
        };
        match (number, target) {
            (Some(number), _) => found.push(SlicePort { port: number, ..port.clone() }),
            (None, TargetPort::Name(name)) => {
                missing.push(format!("{} (target {name}/{})", title(port), port.protocol));
            }
            (None, TargetPort::Number(_)) => {}
        }
    }
    (found, missing)
}

fn title(port: &SlicePort) -> String {
    if port.name.is_empty() { port.port.to_string() } else { port.name.clone() }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
