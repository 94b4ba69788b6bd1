//! The committed CRDs on a real API server: every rule admits and rejects the right objects, with its exact message.

use std::collections::BTreeSet;
use std::error::Error;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::response::StatusCause;
use redislease_lab::{Components, ControlPlane};
use redislease_plan::api::{RedisLease, RedisQuorum};
use serde_json::{Value, json};

use crate::cases::{self, Case, Judge};

/// The API server adds this to a schema error when the object is too malformed to evaluate the rules.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::test]
async fn the_crds_on_a_real_api_server() -> Outcome {
    let control_plane = ControlPlane::start(Components::ApiServer)?;
    control_plane.define()?;
    let client = control_plane.client().await?;

    every_case_is_judged(&client).await?;
    no_kind_of_write_removes_the_status(&client).await?;
    kubectl_columns(&control_plane, &client).await?;
    the_manifests_of_the_pages_are_admitted(&control_plane)
}

async fn every_case_is_judged(client: &Client) -> Outcome {
    let mut surprises = Vec::new();
    for (index, case) in cases::all().iter().enumerate() {
        let complaints =
            judge(client, &format!("case-{index}"), case).await.map_err(|error| format!("{}: {error}", case.what))?;
        if !as_expected(case, &complaints) {
            surprises.push(format!("{}: expected {:?}, got {complaints:#?}", case.what, case.refused));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    Ok(())
}

fn as_expected(case: &Case, complaints: &[StatusCause]) -> bool {
    let complaints: Vec<_> = complaints.iter().filter(|cause| !cause.message.ends_with(RULES_NOT_CHECKED)).collect();
    match (&case.refused, complaints.as_slice()) {
        (None, []) => true,
        (Some(refusal), [only]) => {
            // The API server puts `Invalid value: "…": ` before the message.
            let sentence = match refusal.by {
                Judge::Rule => format!(": {}", refusal.says),
                Judge::Schema => refusal.says.clone(),
            };
            only.field == on_server(refusal.field) && only.message.ends_with(&sentence)
        }
        _ => false,
    }
}

/// The API server reports the root of an object as `<nil>`.
fn on_server(field: &str) -> &str {
    if field.is_empty() { "<nil>" } else { field }
}

/// The errors that the API server reports; none if it admits the object. The old object is stored; the new one is only checked.
async fn judge(client: &Client, name: &str, case: &Case) -> Outcome<Vec<StatusCause>> {
    let api = api_of(client, &case.new);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut new: DynamicObject = serde_json::from_value(case.new.clone())?;
    let answer = match &case.old {
        None => api.create(&dry_run, &new).await,
        Some(old) => {
            let stored = store(&api, name, old).await?;
            new.metadata = stored.metadata;
            if case.status {
                api.replace_status(name, &dry_run, &new).await
            } else {
                api.replace(name, &dry_run, &new).await
            }
        }
    };
    complaints(answer)
}

fn complaints<T>(answer: kube::Result<T>) -> Outcome<Vec<StatusCause>> {
    match answer {
        Ok(_) => Ok(Vec::new()),
        Err(kube::Error::Api(status)) if status.code == 422 => {
            Ok(status.details.map(|details| details.causes).unwrap_or_default())
        }
        Err(error) => Err(error.into()),
    }
}

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let resource = if object["kind"] == "RedisLease" {
        ApiResource::erase::<RedisLease>(&())
    } else {
        ApiResource::erase::<RedisQuorum>(&())
    };
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Creates the object, and writes its status if it has one.
async fn store(api: &Api<DynamicObject>, name: &str, object: &Value) -> Outcome<DynamicObject> {
    let mut object: DynamicObject = serde_json::from_value(object.clone())?;
    object.metadata.name = Some(name.to_owned());
    let mut stored = api.create(&PostParams::default(), &object).await?;
    if object.data.get("status").is_some() {
        object.metadata = stored.metadata;
        stored = api.replace_status(name, &PostParams::default(), &object).await?;
    }
    Ok(stored)
}

/// The cases replace whole objects. Patches, and writes without the status subresource, must have the same result.
async fn no_kind_of_write_removes_the_status(client: &Client) -> Outcome {
    const TOKEN: &str = "status.fencingToken cannot decrease or be removed";
    const STATUS: &str = "status cannot be removed";
    let merge = PatchParams::default();
    let api = api_of(client, &cases::lease(json!({})));
    let name = "kept";
    let lease = cases::lease(json!({"status": {"fencingToken": 7, "transitions": 1}}));
    let stored = store(&api, name, &lease).await?;

    for (patch, says) in [
        (json!({"status": null}), STATUS),
        (json!({"status": {"fencingToken": null}}), TOKEN),
        (json!({"status": {"fencingToken": 6}}), TOKEN),
    ] {
        let refused = complaints(api.patch_status(name, &merge, &Patch::Merge(&patch)).await)?;
        assert_eq!(refused.len(), 1, "{patch}: {refused:?}");
        assert!(refused[0].message.contains(says), "{patch}: {refused:?}");
    }

    // A field manager that applied the token and now applies a status without it removes the token.
    let apply = PatchParams::apply("test").force();
    let applied =
        |status: Value| json!({"apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "status": status});
    let other = "applied";
    store(&api, other, &cases::lease(json!({}))).await?;
    let first = applied(json!({"fencingToken": 7, "transitions": 1}));
    api.patch_status(other, &apply, &Patch::Apply(&first)).await?;
    let second = applied(json!({"transitions": 2}));
    let refused = complaints(api.patch_status(other, &apply, &Patch::Apply(&second)).await)?;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].message.contains(TOKEN), "{refused:?}");

    // A write without the status subresource changes only the spec.
    let mut bare = stored;
    bare.data["spec"]["suspend"] = json!(true);
    bare.data["status"] = Value::Null;
    let written = api.replace(name, &PostParams::default(), &bare).await?;
    assert_eq!(written.data["spec"]["suspend"], true);
    assert_eq!(written.data["status"]["fencingToken"], 7);
    Ok(())
}

async fn kubectl_columns(control_plane: &ControlPlane, client: &Client) -> Outcome {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-11-21T07:00:00Z"});
    let lease = cases::lease(json!({"status": {
        "holder": {"cluster": "eu-west-1", "namespace": "default", "pod": "billing-x2x8k", "podUID": "1-2", "node": "node-7"},
        "attempt": "0123456789abcdef0123456789abcdef",
        "fencingToken": 1_795_238_400_000_042_i64, "acquireTime": "2026-11-21T07:00:00Z", "transitions": 3,
        "candidates": {"total": 3, "eligible": 2},
        "conditions": [condition("Ready", "HeldHere"), condition("Active", "HeldHere")],
    }}));
    store(&api_of(client, &lease), "shown", &lease).await?;
    let quorum = cases::quorum(json!({"status": {
        "nodes": [{"name": "a", "state": "Up"}, {"name": "b", "state": "Down"}, {"name": "c", "state": "Quarantined"}],
        "conditions": [condition("Ready", "QuorumAvailable"), condition("QuorumHealthy", "Degraded")],
    }}));
    store(&api_of(client, &quorum), "shown", &quorum).await?;

    let columns = |args: &[&str]| -> Outcome<(String, String)> {
        let shown = control_plane.kubectl(args)?;
        let mut lines = shown.lines().map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            cells.join(" ")
        });
        match (lines.next(), lines.next(), lines.next()) {
            (Some(head), Some(row), None) => Ok((head, row)),
            _ => Err(format!("not a header and one row:\n{shown}").into()),
        }
    };
    let (head, row) = columns(&["get", "rl", "shown"])?;
    assert_eq!(head, "NAME ACTIVE HOLDER CLUSTER TOKEN SINCE READY AGE");
    assert!(row.starts_with("shown True billing-x2x8k eu-west-1 1795238400000042 "), "{row}");

    let selected = &["get", "rl", "-o", "wide", "--field-selector=status.holder.pod=billing-x2x8k"];
    let (head, row) = columns(selected)?;
    assert_eq!(
        head,
        "NAME ACTIVE HOLDER CLUSTER TOKEN SINCE READY REASON LAST END QUORUM CANDIDATES TRANSITIONS NODE MESSAGE AGE"
    );
    assert!(row.contains(" True HeldHere default 2 3 node-7 "), "{row}");

    let (head, row) = columns(&["get", "rq", "shown"])?;
    assert_eq!(head, "NAME READY HEALTH VOTES LONGEST LEADER AGE");
    assert!(row.starts_with("shown True Degraded "), "{row}");
    assert!(row.contains(" 60s "), "{row}");

    let category = control_plane.kubectl(&["get", "redis-lease", "-o", "name"])?;
    assert!(category.contains("redislease.redislease.io/shown\n"), "{category}");
    assert!(category.contains("redisquorum.redislease.io/shown\n"), "{category}");
    control_plane.kubectl(&["wait", "rl/shown", "--for=condition=Active", "--timeout=5s"])?;
    Ok(())
}

fn the_manifests_of_the_pages_are_admitted(control_plane: &ControlPlane) -> Outcome {
    let mut pages = std::fs::read_to_string("README.md")?;
    for entry in std::fs::read_dir("docs")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages += &std::fs::read_to_string(path)?;
        }
    }
    let blocks = pages.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    // The others are parts of manifests, or values for Helm, which the tests of the chart check.
    let manifests = blocks.filter(|block| block.starts_with("apiVersion:"));
    let shown = manifests.collect::<Vec<_>>().join("---\n");
    let namespaced = shown.split("namespace: ").skip(1).filter_map(|rest| rest.split(['}', '\n']).next());
    for namespace in namespaced.collect::<BTreeSet<_>>() {
        control_plane.kubectl(&["create", "namespace", namespace])?;
    }
    let applied = control_plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &shown)?;
    for kind in ["redisquorum", "redislease"] {
        assert!(applied.contains(&format!("{kind}.redislease.io/")), "{kind} is not shown: {applied}");
    }
    Ok(())
}
