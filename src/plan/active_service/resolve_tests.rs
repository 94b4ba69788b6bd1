use super::super::facts::ContainerPort;
use super::*;

fn service(ports: Vec<(&str, TargetPort)>) -> ServiceFacts {
    let of = |(name, target): (&str, TargetPort)| ServicePort {
        port: SlicePort { name: name.into(), protocol: "TCP".into(), port: 80, app_protocol: Some("h2c".into()) },
        target,
    };
    let ports = ports.into_iter().map(of).collect();
    ServiceFacts { families: vec![Family::V4, Family::V6], ports, ..ServiceFacts::default() }
}

fn pod(ports: &[(&str, &str, i32)], addresses: &[&str]) -> PodNetwork {
    let ports = ports.iter().map(|(name, protocol, number)| ContainerPort {
        name: (*name).into(),
        protocol: (*protocol).into(),
        number: *number,
    });
    PodNetwork { addresses: addresses.iter().map(|address| (*address).to_owned()).collect(), ports: ports.collect() }
}

fn of(service: ServiceFacts, pod: PodNetwork) -> Prepared {
    Prepared { service: Some(service), pod: Some(pod), ..Prepared::default() }
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
    let target =
        result(&of(service, pod(&[("web", "TCP", 8080), ("dns", "UDP", 53)], &["fd00::1", "10.0.0.1"]))).unwrap();
    let ports: Vec<_> = target.ports.iter().map(|port| (port.name.as_str(), port.port)).collect();
    assert_eq!(ports, [("a", 9000), ("b", 8080)]);
    assert!(target.ports.iter().all(|port| port.app_protocol.as_deref() == Some("h2c")));
    let addresses = [(Family::V4, Some("10.0.0.1".to_owned())), (Family::V6, Some("fd00::1".to_owned()))];
    assert_eq!(target.addresses, addresses);
    let problem = target.problem.unwrap();
    assert!(
        problem.contains("lacks 2 of its ports") && problem.contains("c (target dns/TCP), d (target x/TCP)"),
        "{problem}"
    );
}

#[test]
fn a_family_that_the_pod_lacks_has_no_address() {
    let target = result(&of(service(Vec::new()), pod(&[], &["10.0.0.1"]))).unwrap();
    assert_eq!(target.addresses, [(Family::V4, Some("10.0.0.1".to_owned())), (Family::V6, None)]);
    assert_eq!((target.ports, target.problem), (Vec::new(), None));
}

#[test]
fn a_service_that_cannot_have_the_endpoint_says_what_to_do() {
    let usable = || of(service(Vec::new()), pod(&[], &["10.0.0.1"]));
    let with = |change: fn(&mut ServiceFacts)| {
        let mut prepared = usable();
        prepared.service.as_mut().map(change);
        prepared
    };
    let table = [
        (with(|service| service.has_selector = true), "add \"lease.redislease.io/billing: active\" to the selector"),
        (with(|service| service.is_alias = true), "is of type ExternalName"),
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
