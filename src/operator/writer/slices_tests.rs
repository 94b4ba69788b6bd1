#[path = "slices_calls_tests.rs"]
mod calls;

use super::*;
use crate::plan::{Family, Priority};

fn owner() -> Owner {
    Owner { namespace: "shop".into(), name: "billing".into(), uid: Some("l".into()) }
}

/// The lease that [`owner`] describes, with the Service `active`.
fn lease() -> Value {
    json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": "billing", "namespace": "shop", "uid": "l"},
        "spec": {
            "quorumRef": {"name": "default"},
            "candidates": {"selector": {"matchLabels": {"app": "a"}}},
            "activeService": {"name": "active"},
        },
    })
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
    let SliceChange::Put { token, endpoint, ports } = &write.change else { panic!("it is one") };
    let patch = patch(&owner(), &write, *token, endpoint.as_ref(), ports);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let mut whole = serde_json::to_value(&new).unwrap();
    whole["endpoints"] = patch["endpoints"].clone();
    whole["ports"] = patch["ports"].clone();
    let patched: EndpointSlice = serde_json::from_value(whole).unwrap();
    assert!(write.change.is_in(&SliceFacts::from(&patched)), "{patched:?}");
}

#[test]
fn a_withdrawal_without_a_token_removes_the_annotation() {
    let annotations = json!({"token.redislease.io/billing": null});
    let metadata = json!({"uid": "s", "resourceVersion": "7", "annotations": annotations});
    assert_eq!(
        patch(&owner(), &put(None, Some("s")), None, None, &[]),
        json!({"metadata": metadata, "endpoints": [], "ports": []})
    );
}

#[test]
fn a_new_service_has_the_ports_of_the_pod_and_no_selector() {
    let ports = |name: &str, number| ContainerPort { name: name.into(), protocol: "TCP".into(), number };
    let containers = [ports("http", 8080), ports("", 9090)];
    let service = new_service(&owner(), "active", &new_service_ports(&containers)).unwrap();
    let facts = ServiceFacts::from(&service);
    assert!(!facts.has_selector && !facts.is_alias);
    let ports: Vec<_> = facts.ports.iter().map(|of| (of.port.name.as_str(), of.port.port, &of.target)).collect();
    let (http, metrics) = (TargetPort::Name("http".into()), TargetPort::Number(9090));
    assert_eq!(ports, [("http", 8080, &http), ("tcp-9090", 9090, &metrics)]);
    assert!(is_created(&service, &owner()));
}

#[test]
fn a_service_that_the_user_took_over_is_not_the_operators() {
    let ports = ContainerPort { name: "http".into(), protocol: "TCP".into(), number: 8080 };
    let service = new_service(&owner(), "active", &new_service_ports(&[ports])).unwrap();
    let changed = |change: fn(&mut Service)| {
        let mut service = service.clone();
        change(&mut service);
        service
    };
    let not_controlled = |service: &mut Service| {
        let owners = service.metadata.owner_references.iter_mut().flatten();
        owners.for_each(|owner| owner.controller = None);
    };
    let with_selector = |service: &mut Service| {
        service.spec.as_mut().unwrap().selector = Some([("app".to_owned(), "billing".to_owned())].into());
    };
    for service in [
        changed(|service| service.metadata.owner_references = None),
        changed(not_controlled),
        changed(|service| service.metadata.labels = None),
        changed(with_selector),
    ] {
        assert!(!is_created(&service, &owner()), "{service:?}");
    }
    for other in [
        Owner { name: "invoices".into(), ..owner() },
        Owner { uid: Some("an earlier lease".into()), ..owner() },
        Owner { uid: None, ..owner() },
    ] {
        assert!(!is_created(&service, &other), "{other:?}");
    }
}

#[test]
fn a_lease_wants_a_service_until_it_names_another_or_is_deleted() {
    let lease: RedisLease = serde_json::from_value(lease()).unwrap();
    assert!(wants(&lease, &owner(), "active") && !wants(&lease, &owner(), "another"));
    assert!(!wants(&lease, &Owner { uid: Some("an earlier lease".into()), ..owner() }, "active"));
    assert!(wants(&lease, &Owner { uid: None, ..owner() }, "another"), "it exists");
    let mut deleted = lease;
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    assert!(!wants(&deleted, &owner(), "active"));
}
