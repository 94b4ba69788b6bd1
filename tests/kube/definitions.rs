//! The CustomResourceDefinitions are older than the operator.

use std::time::Duration;

use redislease_lab::{Installation, LeaseState, Operator, Result, SYSTEM};
use serde_json::{Value, json};

use crate::doctor::findings;
use crate::granularity::{replicas, scaled, switching, workload};
use crate::holder::held;
use crate::support::{
    Cluster, FIRST_ELECTION, SOON, installation_on, options, shared_redis, the_term_is_kept, throughout,
};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/redisleases.redislease.io";
const GRANULARITY: &str = "/properties/spec/properties/granularity";
/// Limit for a comparison of a process that decides.
const COMPARED_AGAIN: Duration = Duration::from_mins(1);

fn versions(installation: &Installation) -> Result<Value> {
    Ok(installation.control_plane().get(PATH)?.expect("the definition")["spec"]["versions"].take())
}

/// The versions without the fields of leases that a cluster holds.
fn older(mut versions: Value) -> Value {
    let schema = &mut versions[0]["schema"]["openAPIV3Schema"];
    // Rules name the fields.
    let rules = "x-kubernetes-validations";
    schema.as_object_mut().expect("a schema").remove(rules);
    let spec = schema["properties"]["spec"].as_object_mut().expect("a spec");
    spec.remove(rules);
    for field in ["granularity", "activation"] {
        spec["properties"].as_object_mut().expect("fields").remove(field).expect("the field");
    }
    versions
}

/// Replaces the versions, and waits until the API server serves leases with or without the field.
fn replace(installation: &Installation, versions: &Value, field: &str, keeps: bool) -> Result<()> {
    let patch = json!([{"op": "replace", "path": "/spec/versions", "value": versions}]).to_string();
    installation.control_plane().kubectl(&[
        "patch",
        "crd",
        "redisleases.redislease.io",
        "--type=json",
        "-p",
        &patch,
    ])?;
    installation.wait_for("the changed definition is served", SOON * 4, || {
        let document = installation.control_plane().get("/openapi/v3/apis/redislease.io/v1alpha1")?;
        let document = document.ok_or("no document")?;
        let schema = &document["components"]["schemas"]["io.redislease.v1alpha1.RedisLease"];
        if schema.pointer(field).is_some() == keeps { Ok(()) } else { Err(schema.to_string()) }
    })
}

/// Checks for a while that the operator is not ready, and that none leads.
fn nothing_is_decided(installation: &Installation, operator: &Operator) -> Result<()> {
    throughout(SOON, |after| {
        let (code, _) = operator.get("/readyz")?;
        let leader = installation.quorum()?.leader().map(str::to_owned);
        assert_eq!((code, leader), (503, None), "after {after:?}");
        Ok(())
    })
}

fn wait_until_not_ready(installation: &Installation, operator: &Operator, within: Duration) -> Result<()> {
    installation.wait_for("/readyz says what the definition lacks", within, || {
        let (code, page) = operator.get("/readyz")?;
        let lacks = "that of RedisLease lacks spec.activation, spec.granularity: run `redislease crds | kubectl apply";
        if code == 503 && page.contains(lacks) { Ok(()) } else { Err(page) }
    })
}

#[test]
fn an_operator_decides_nothing_before_the_definitions_have_every_field() -> Result<()> {
    let installation = installation_on(&switching(), shared_redis().to_vec())?;
    installation.control_plane().not_again();
    let lease = scaled(&installation, "definitions", "Deployment", 2)?;
    let current = versions(&installation)?;
    let older = older(current.clone());
    replace(&installation, &older, GRANULARITY, false)?;

    let operator = installation.start_operator("operator-0", &[])?;
    wait_until_not_ready(&installation, &operator, SOON)?;
    nothing_is_decided(&installation, &operator)?;
    assert_eq!(workload(&installation, "definitions", "Deployment")?["spec"]["replicas"], 2, "{}", lease.state()?);

    // Without a restart.
    replace(&installation, &current, GRANULARITY, true)?;
    operator.wait_ready()?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(held.holder(), Some("billing"), "the workload");
    replicas(&installation, "definitions", "active", 3)?;

    // The operator says so, and keeps the terms.
    replace(&installation, &older, GRANULARITY, false)?;
    wait_until_not_ready(&installation, &operator, COMPARED_AGAIN)?;
    let attempt = held.attempt().unwrap_or_default();
    the_term_is_kept(&installation, "definitions", attempt)?;
    replicas(&installation, "definitions", "active", 3)?;
    replace(&installation, &current, GRANULARITY, true)?;
    operator.wait_ready()?;
    the_term_is_kept(&installation, "definitions", attempt)?;
    replicas(&installation, "definitions", "active", 3).map(drop)
}

/// As `helm upgrade` and GitOps tools may do it: the operator first, then older definitions, then the current ones.
#[test]
fn an_operator_that_starts_without_definitions_waits_for_current_ones() -> Result<()> {
    let installation = installation_on(&options(), shared_redis().to_vec())?;
    let cluster = installation.control_plane();
    cluster.not_again();
    let stored = |path: &str| -> Result<Value> {
        let mut object = cluster.get(path)?.expect("an object");
        let metadata = &object["metadata"];
        object["metadata"] = json!({"name": metadata["name"], "namespace": metadata["namespace"]});
        object.as_object_mut().expect("an object").remove("status");
        Ok(object)
    };
    let quorum = stored(&format!("/apis/redislease.io/v1alpha1/namespaces/{SYSTEM}/redisquorums/default"))?;
    let [leases, quorums] = [PATH.to_owned(), PATH.replace("redisleases", "redisquorums")].map(|path| stored(&path));
    let (leases, quorums) = (leases?, quorums?);
    cluster.kubectl(&["delete", "crd", "redisleases.redislease.io", "redisquorums.redislease.io"])?;

    let operator = installation.start_operator("operator-0", &[])?;
    // Longer than an operator waits for an answer about definitions that it may not read.
    throughout(Duration::from_secs(15), |after| {
        let (code, page) = operator.get("/readyz").unwrap_or((503, String::new()));
        assert_eq!(code, 503, "after {after:?}: {page}");
        Ok(())
    })?;
    let mut early = leases.clone();
    early["spec"]["versions"] = older(leases["spec"]["versions"].clone());
    for definition in [&early, &quorums] {
        installation.apply(definition)?;
    }
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
    installation.wait_for("the quorum is stored", FIRST_ELECTION, || Ok(installation.apply(&quorum)?))?;
    wait_until_not_ready(&installation, &operator, FIRST_ELECTION)?;
    nothing_is_decided(&installation, &operator)?;

    replace(&installation, &leases["spec"]["versions"], GRANULARITY, true)?;
    operator.wait_ready()?;
    held(&installation, "late").map(drop)
}

#[test]
fn a_lease_that_cannot_be_read_is_reported_and_goes_on_as_it_was() -> Result<()> {
    const GRANULARITIES: &str = "/properties/spec/properties/granularity/enum";
    let Cluster { operator: _operator, installation } = &Cluster::start()?;
    installation.control_plane().not_again();
    let (lease, held) = held(installation, "newer")?;
    let mut newer = versions(installation)?;
    let schema = &mut newer[0]["schema"]["openAPIV3Schema"];
    schema.pointer_mut(GRANULARITIES).and_then(Value::as_array_mut).expect("the values").push(json!("Zone"));
    replace(installation, &newer, &format!("{GRANULARITIES}/2"), true)?;
    lease.patch(&json!({"spec": {"granularity": "Zone"}}))?;

    let problem = "granularity: unknown variant `Zone`, expected `Pod` or `Cluster`";
    installation.wait_for_event("newer", ("RedisLease", "billing"), "InvalidSpec", problem, SOON)?;
    let (_, findings) = findings(installation.control_plane().kubeconfig(), &[]);
    let is_named = |one: &Value| one["verdict"] == "Problem" && one["subject"] == "lease newer/billing";
    let found = findings.iter().find(|one| is_named(one)).unwrap_or_else(|| panic!("{findings:?}"));
    assert!(found["message"].to_string().contains(problem), "{found}");
    the_term_is_kept(installation, "newer", held.attempt().unwrap_or_default())
}
