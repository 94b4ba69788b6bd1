//! The CustomResourceDefinitions are older than the operator.

use std::time::Duration;

use redislease_lab::{Installation, LeaseState, Operator, Result, SYSTEM};
use serde_json::{Value, json};

use crate::granularity::{replicas, scaled, switching, workload};
use crate::support::{FIRST_ELECTION, SOON, installation_on, shared_redis, the_term_is_kept, throughout};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/redisleases.redislease.io";
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
fn replace(installation: &Installation, versions: &Value, keeps: bool) -> Result<()> {
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
        let document = installation.control_plane().get("/openapi/v3/apis/redislease.io/v1alpha1");
        let document = document.map_err(|error| error.to_string())?.ok_or("no document")?;
        let spec = &document["components"]["schemas"]["io.redislease.v1alpha1.RedisLease"]["properties"]["spec"];
        if spec["properties"]["granularity"].is_object() == keeps { Ok(()) } else { Err(spec.to_string()) }
    })
}

fn wait_until_not_ready(installation: &Installation, operator: &Operator, within: Duration) -> Result<()> {
    installation.wait_for("/readyz says what the definition lacks", within, || {
        let (code, page) = operator.get("/readyz").map_err(|error| error.to_string())?;
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
    replace(&installation, &older, false)?;

    let operator = installation.start_operator("operator-0", &[])?;
    wait_until_not_ready(&installation, &operator, SOON)?;
    throughout(SOON, |after| {
        let (code, _) = operator.get("/readyz")?;
        let quorum = installation
            .control_plane()
            .get(&format!("/apis/redislease.io/v1alpha1/namespaces/{SYSTEM}/redisquorums/default"))?;
        let leader = quorum.map(|quorum| quorum["status"]["leader"].clone()).filter(|leader| !leader.is_null());
        assert_eq!((code, leader), (503, None), "{after:?}: {}", lease.state()?);
        assert_eq!(workload(&installation, "definitions", "Deployment")?["spec"]["replicas"], 2);
        Ok(())
    })?;

    // Without a restart.
    replace(&installation, &current, true)?;
    operator.wait_ready()?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(held.holder(), Some("billing"), "the workload");
    replicas(&installation, "definitions", "active", 3)?;

    // The operator says so, and keeps the terms.
    replace(&installation, &older, false)?;
    wait_until_not_ready(&installation, &operator, COMPARED_AGAIN)?;
    let attempt = held.attempt().unwrap_or_default();
    the_term_is_kept(&installation, "definitions", attempt)?;
    replicas(&installation, "definitions", "active", 3)?;
    replace(&installation, &current, true)?;
    operator.wait_ready()?;
    the_term_is_kept(&installation, "definitions", attempt)?;
    replicas(&installation, "definitions", "active", 3).map(drop)
}
