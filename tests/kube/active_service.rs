//! The Service whose only endpoint is the holder.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use redislease_lab::{Components, ControlPlane, Installation, Lease, LeaseState, Result, Watch};
use serde_json::{Value, json};

use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, STOP_BUDGET, options, shared, shared_redis};

/// Limit for a removal. On a busy machine the quorum can be lost meanwhile.
const REMOVED: Duration = Duration::from_mins(1);

fn read(installation: &Installation, path: &str) -> std::result::Result<Option<Value>, String> {
    installation.control_plane().get(path).map_err(|error| error.to_string())
}

fn service(installation: &Installation, namespace: &str, name: &str) -> std::result::Result<Option<Value>, String> {
    read(installation, &format!("/api/v1/namespaces/{namespace}/services/{name}"))
}

/// The EndpointSlices of a Service that the operator manages.
fn slices(installation: &Installation, namespace: &str, service: &str) -> std::result::Result<Vec<Value>, String> {
    let list = read(installation, &format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"))?;
    let mut items = list.and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default();
    items.retain(|slice| {
        let label = |key: &str| slice["metadata"]["labels"][key].as_str();
        label("kubernetes.io/service-name") == Some(service)
            && label("endpointslice.kubernetes.io/managed-by") == Some("redislease.io")
    });
    Ok(items)
}

/// The pods of the endpoints in a slice.
fn pods(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits until the holder is the only endpoint, and returns the slice.
fn wait_for_endpoint(installation: &Installation, namespace: &str, name: &str, holder: &str) -> Result<Value> {
    installation.wait_for("the holder is the only endpoint", AFTER_ONE_LEASE, || {
        match &slices(installation, namespace, name)?[..] {
            [slice] if pods(slice) == [holder] && slice["endpoints"][0]["conditions"]["ready"] == true => {
                Ok(slice.clone())
            }
            other => Err(format!("the holder is {holder}: {other:?}")),
        }
    })
}

/// After no event had the Service more than one endpoint. Returns how often a slice had one.
fn never_two_endpoints(watch: &mut Watch) -> usize {
    let mut now: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen = 0;
    for event in watch.so_far() {
        let name = event.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        now.insert(name, if event.kind == "DELETED" { Vec::new() } else { pods(&event.object) });
        let endpoints: usize = now.values().map(Vec::len).sum();
        assert!(endpoints <= 1, "{now:?}");
        seen += endpoints;
    }
    seen
}

fn create_namespace(installation: &Installation, name: &str) -> Result<()> {
    installation.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}

/// A Deployment whose container has ports, with a lease that fits the quorum of the lab.
fn annotated(installation: &Installation, namespace: &str, service: &str) -> Result<()> {
    create_namespace(installation, namespace)?;
    let labels = json!({"app": "billing"});
    let ports = json!([{"name": "http", "containerPort": 8080}, {"containerPort": 9090}]);
    installation.apply(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "billing", "namespace": namespace, "annotations": {
            "redislease.io/lease": "true",
            "redislease.io/lease-duration": "10s",
            "redislease.io/renew-interval": "2s",
            "redislease.io/grace-period": "3s",
            "redislease.io/active-service": service,
        }},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "none", "ports": ports}]},
            },
        },
    }))?;
    let rollout = ["rollout", "status", "deployment/billing", "--namespace", namespace, "--timeout=60s"];
    installation.control_plane().kubectl(&rollout).map(drop)
}

/// Gives the pods of the Deployment an address of each family.
fn dual_stack(installation: &Installation, namespace: &str) -> Result<()> {
    let annotations = json!({"lab.redislease.io/dual-stack": "yes"});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}).to_string();
    let deployment = "deployment/billing";
    let cluster = installation.control_plane();
    cluster.kubectl(&["patch", deployment, "--namespace", namespace, "--type=merge", "--patch", &patch])?;
    cluster.kubectl(&["rollout", "status", deployment, "--namespace", namespace, "--timeout=60s"]).map(drop)
}

/// Waits until the slice of each family has the address of the holder as its only endpoint.
fn wait_for_both_families(installation: &Installation, namespace: &str, name: &str, lease: &Lease<'_>) -> Result<()> {
    installation.wait_for("each family has the holder as its only endpoint", AFTER_ONE_LEASE * 2, || {
        let state = lease.state()?;
        let holder = state.holder().unwrap_or_default().to_owned();
        let pod = read(installation, &format!("/api/v1/namespaces/{namespace}/pods/{holder}"))?.unwrap_or_default();
        let addresses: Vec<String> =
            pod["status"]["podIPs"].as_array().into_iter().flatten().map(|ip| text(&ip["ip"])).collect();
        let slices = slices(installation, namespace, name)?;
        let has = |family: &str, is_ours: fn(IpAddr) -> bool| {
            let of_family = slices.iter().filter(|slice| slice["addressType"] == family);
            let address = |text: &String| text.parse::<IpAddr>().ok();
            let of_pod: Vec<IpAddr> = addresses.iter().filter_map(address).filter(|ip| is_ours(*ip)).collect();
            let mut ready = of_family.filter(|slice| pods(slice) == [holder.as_str()]);
            let shown = ready.next().and_then(|slice| slice["endpoints"][0]["addresses"].as_array().cloned());
            let shown: Vec<IpAddr> = shown.iter().flatten().filter_map(|ip| text(ip).parse().ok()).collect();
            of_pod.len() == 1 && shown == of_pod
        };
        let both = has("IPv4", |ip| ip.is_ipv4()) && has("IPv6", |ip| ip.is_ipv6());
        if both && slices.len() == 2 && state.is_active() {
            Ok(())
        } else {
            Err(format!("{state}; {addresses:?}: {slices:?}"))
        }
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn next(lease: &Lease<'_>, before: &LeaseState) -> Result<LeaseState> {
    lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > before.token())
}

#[test]
fn a_service_follows_the_holder_and_is_removed_with_the_annotation() -> Result<()> {
    let installation = &shared().installation;
    let (cluster, namespace, name) = (installation.control_plane(), "routed", "billing-active");
    annotated(installation, namespace, name)?;
    let lease = installation.find_lease(namespace, "billing");
    let mut held = lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    let slice = wait_for_endpoint(installation, namespace, name, held.holder().unwrap_or_default())?;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/{}", held.holder().unwrap_or_default());
    let pod = read(installation, &pod).expect("the pod is read").unwrap_or_default();
    assert_eq!(slice["endpoints"][0]["addresses"], json!([pod["status"]["podIP"]]), "{pod}");
    let mut ports: Vec<_> = slice["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| (port["name"].clone(), port["port"].clone()))
        .collect();
    ports.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(ports, [(json!("http"), json!(8080)), (json!("tcp-9090"), json!(9090))]);
    let created = service(installation, namespace, name).expect("the Service is read").unwrap_or_default();
    assert!(created["spec"]["selector"].is_null(), "{created}");
    for object in [&created, &slice] {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((owner["kind"].as_str(), owner["uid"].as_str()), (Some("RedisLease"), Some(held.uid())), "{object}");
    }

    let mut watch = cluster.watch("endpointslices", namespace)?;
    for force in [false, true, false] {
        let holder = held.holder().unwrap_or_default();
        let mut args = vec!["delete", "pod", "--namespace", namespace, holder];
        if force {
            args.extend(["--force", "--grace-period=0"]);
        }
        cluster.kubectl(&args)?;
        held = next(&lease, &held)?;
        wait_for_endpoint(installation, namespace, name, held.holder().unwrap_or_default())?;
    }
    // The old holder keeps running.
    let holder = held.holder().unwrap_or_default().to_owned();
    cluster.kubectl(&["annotate", "pod", "--namespace", namespace, &holder, "redislease.io/exclude=true"])?;
    held = next(&lease, &held)?;
    let slice = wait_for_endpoint(installation, namespace, name, held.holder().unwrap_or_default())?;
    assert_eq!(slice["metadata"]["annotations"]["token.redislease.io/billing"], held.token().unwrap_or(0).to_string());
    assert!(never_two_endpoints(&mut watch) >= 4, "the watch shows the changes");

    let remove = ["annotate", "--namespace", namespace, "deployment/billing", "redislease.io/active-service-"];
    cluster.kubectl(&remove)?;
    installation.wait_for("the Service and its slices are removed", REMOVED, || {
        let left = (service(installation, namespace, name)?, slices(installation, namespace, name)?);
        if left == (None, Vec::new()) { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    assert_eq!(lease.state()?.token(), held.token(), "the lease stays");
    Ok(())
}

#[test]
fn a_service_of_the_user_is_used_without_a_selector_and_left_alone_with_one() -> Result<()> {
    let installation = &shared().installation;
    let (cluster, namespace, name) = (installation.control_plane(), "own-service", "mine");
    create_namespace(installation, namespace)?;
    let make = |selector: &Value| {
        installation.apply(&json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": selector, "ports": [
                {"name": "api", "port": 80, "targetPort": "http"},
                {"name": "admin", "port": 81, "targetPort": "absent"},
                {"name": "metrics", "port": 9090},
            ]},
        }))
    };
    make(&json!({"app": "nothing"}))?;
    let before = service(installation, namespace, name).expect("the Service is read");
    annotated(installation, namespace, name)?;
    let lease = installation.find_lease(namespace, "billing");
    let held = lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    let on = ("RedisLease", "billing");
    let says = "Service mine has a selector";
    let event = installation.wait_for_event(namespace, on, "ActiveServiceProblem", says, AFTER_ONE_LEASE)?;
    assert_eq!(event.kind, "Warning");
    assert_eq!(slices(installation, namespace, name).expect("slices are read"), [json!(null); 0]);
    assert_eq!(service(installation, namespace, name).expect("the Service is read"), before, "it is unchanged");

    // Without a selector it is used. The operator looks again within 30 s.
    cluster.kubectl(&["delete", "service", "--namespace", namespace, name])?;
    make(&Value::Null)?;
    let before = service(installation, namespace, name).expect("the Service is read");
    let held = lease.wait("active", FIRST_ELECTION, |now| now.is_active() && now.token() >= held.token())?;
    let holder = held.holder().unwrap_or_default().to_owned();
    let slice = installation.wait_for("the holder is the endpoint", REMOVED, || {
        let slices = slices(installation, namespace, name)?;
        slices.into_iter().find(|slice| pods(slice) == [holder.as_str()]).ok_or_else(|| "none".to_owned())
    })?;
    let port = |port: &Value| (port["name"].as_str().unwrap_or_default().to_owned(), port["port"].as_i64());
    let ports: BTreeMap<String, Option<i64>> = slice["ports"].as_array().into_iter().flatten().map(port).collect();
    assert_eq!(ports, BTreeMap::from([("api".to_owned(), Some(8080)), ("metrics".to_owned(), Some(9090))]));
    let says = "lacks 1 of its ports";
    installation.wait_for_event(namespace, on, "ActiveServiceProblem", says, SOON)?;
    cluster.kubectl(&["annotate", "--namespace", namespace, "deployment/billing", "redislease.io/lease-"])?;
    installation.wait_for("the slices are removed", REMOVED, || {
        let left = slices(installation, namespace, name)?;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    assert_eq!(
        service(installation, namespace, name).expect("the Service is read"),
        before,
        "it is not the operator's"
    );
    Ok(())
}

#[test]
fn a_dual_stack_service_has_a_slice_for_each_family_that_follows_the_holder() -> Result<()> {
    let options = options();
    let control_plane = ControlPlane::start_dual_stack(Components::Nodes(options.nodes))?;
    let installation = Installation::install(&options, control_plane, shared_redis().to_vec())?;
    let operator = installation.start_operator("operator-0", &[])?;
    let (namespace, name) = ("dual-stack", "billing-active");
    annotated(&installation, namespace, name)?;
    dual_stack(&installation, namespace)?;
    let lease = installation.find_lease(namespace, "billing");
    lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    wait_for_both_families(&installation, namespace, name, &lease)?;
    let created = service(&installation, namespace, name).expect("the Service is read").unwrap_or_default();
    assert_eq!(created["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]), "{created}");

    let held = lease.state()?;
    let holder = held.holder().unwrap_or_default();
    installation.control_plane().kubectl(&["delete", "pod", "--namespace", namespace, holder])?;
    next(&lease, &held)?;
    wait_for_both_families(&installation, namespace, name, &lease)?;
    operator.stop().map(drop)
}

#[test]
fn the_endpoint_is_removed_before_a_lost_lease_ends() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&options())?;
    let (namespace, name) = ("lost-route", "billing-active");
    annotated(&installation, namespace, name)?;
    let lease = installation.find_lease(namespace, "billing");
    let held = lease.wait("active", FIRST_ELECTION * 2, LeaseState::is_active)?;
    wait_for_endpoint(&installation, namespace, name, held.holder().unwrap_or_default())?;
    let mut watch = installation.control_plane().watch("endpointslices", namespace)?;
    watch.wait("the endpoint", SOON, |event| !pods(&event.object).is_empty())?;
    for server in &installation.redis()[..2] {
        server.process().kill()?;
    }
    // A renewal that was under way has been answered or not; from now on there is none.
    std::thread::sleep(Duration::from_millis(100));
    let deadline = operator.metrics()?.deadline(&lease, STOP_BUDGET).expect("the lease is held");
    let removed = watch.wait("the endpoint is removed", AFTER_ONE_LEASE, |event| pods(&event.object).is_empty())?;
    let left = deadline.left(removed.at);
    assert!(left > 0.0, "the endpoint was removed {:.2} s after the lease had ended", -left);
    println!("the endpoint was removed {left:.2} s before the lease ended");
    never_two_endpoints(&mut watch);
    operator.stop().map(drop)
}
