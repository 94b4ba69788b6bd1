use super::*;

fn service(ports: Vec<(&str, TargetPort)>) -> ServiceFacts {
    let of = |(name, target): (&str, TargetPort)| ServicePort {
        port: SlicePort { name: name.into(), protocol: "TCP".into(), port: 80, app_protocol: Some("h2c".into()) },
        target,
    };
    let ports = ports.into_iter().map(of).collect();
    ServiceFacts { families: vec![Family::V4, Family::V6], ports, ..ServiceFacts::default() }
}

fn containers(ports: &[(&str, &str, i32)]) -> Vec<ContainerPort> {
    let of = |(name, protocol, number): &(&str, &str, i32)| ContainerPort {
        name: (*name).into(),
        protocol: (*protocol).into(),
        number: *number,
    };
    ports.iter().map(of).collect()
}

fn of(service: ServiceFacts, ports: Vec<ContainerPort>) -> Prepared {
    Prepared { service: Some(service), ports: Some(ports), ..Prepared::default() }
}

fn result(prepared: &Prepared) -> Result<Target, String> {
    let request = ServiceRequest { service: "active".into(), pod: "billing-0".into(), pod_uid: "u".into() };
    resolve("billing", &request, prepared)
}

#[test]
fn ports_are_found_by_number_or_by_name_and_protocol() {
    let name = |name: &str| TargetPort::Name(name.into());
    let service =
        service(vec![("a", TargetPort::Number(9000)), ("b", name("web")), ("c", name("dns")), ("d", name("x"))]);
    let target = result(&of(service, containers(&[("web", "TCP", 8080), ("dns", "UDP", 53)]))).unwrap();
    let ports: Vec<_> = target.ports.iter().map(|port| (port.name.as_str(), port.port)).collect();
    assert_eq!(ports, [("a", 9000), ("b", 8080)]);
    assert!(target.ports.iter().all(|port| port.app_protocol.as_deref() == Some("h2c")));
    assert_eq!(target.families, [Family::V4, Family::V6]);
    let problem = target.problem.unwrap();
    assert!(
        problem.contains("lacks 2 of its ports") && problem.contains("c (target dns/TCP), d (target x/TCP)"),
        "{problem}"
    );
}

#[test]
fn a_service_that_cannot_have_the_endpoint_says_what_to_do() {
    let usable = || of(service(Vec::new()), Vec::new());
    let with = |change: fn(&mut ServiceFacts)| {
        let mut prepared = usable();
        prepared.service.as_mut().map(change);
        prepared
    };
    let table = [
        (with(|service| service.has_selector = true), "add \"lease.redislease.io/billing: active\" to the selector"),
        (with(|service| service.is_alias = true), "is of type ExternalName"),
        (Prepared { service: None, refused: Some("a webhook".into()), ..usable() }, "could not be created: a webhook"),
        (Prepared { service: None, ..usable() }, "declare the ports of the container"),
        (
            Prepared { foreign_slice: Some("active-x".into()), ..usable() },
            "EndpointSlice active-x, which the operator does not",
        ),
        (Prepared { other_lease: Some("other".into()), ..usable() }, "RedisLease other"),
    ];
    for (prepared, expected) in table {
        let problem = result(&prepared).unwrap_err();
        assert!(problem.starts_with("Service active ") && problem.contains(expected), "{problem}");
    }
}

#[test]
fn a_slice_without_the_name_of_a_lease_is_not_managed() {
    use crate::plan::{is_managed, slice_labels};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    let slice = |lease: Option<&str>| {
        let mut labels = slice_labels(lease.unwrap_or_default(), "active");
        labels.retain(|_, value| lease.is_some() || !value.is_empty());
        let mut slice = EndpointSlice::default();
        slice.metadata.labels = Some(labels);
        slice
    };
    assert_eq!([Some("billing"), Some(""), None].map(|lease| is_managed(&slice(lease))), [true, false, false]);
}
