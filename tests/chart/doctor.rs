//! The pod of `helm test`: the API server admits it, and its command succeeds with the rights of its service account.

use std::process::Command;

use redislease_lab::{Components, ControlPlane, Helm, Installation, InstallationOptions, Result, SYSTEM};
use serde_json::{Value, json};

/// Runs the command of the pod as the pod does.
#[test]
fn the_doctor_succeeds_with_rights_in_some_namespaces() -> Result<()> {
    let values = &[
        "--set=watchNamespaces={shop,jobs}",
        "--set=rbac.allowSchedulingGate=true",
        "--set=rbac.allowScale=true",
        "--set=rbac.allowSuspend=true",
    ];
    let options = InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"));
    let control_plane = ControlPlane::start(Components::Nodes(1))?;
    let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for (name, labels) in [(SYSTEM, restricted), ("shop", json!({})), ("jobs", json!({}))] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        control_plane.apply_object(&namespace)?;
    }
    let redis = options.start_redis()?;
    let installation = Installation::install_chart(&options, control_plane, redis, values)?;
    let cluster = installation.control_plane();

    let show = "--show-only=templates/tests/doctor.yaml";
    let pod = Helm::new()?.template(&[&values[..], &[show]].concat())?;
    let shown = ["create", "--filename=-", "--dry-run=server", "--output=json"];
    let pod: Value = serde_json::from_str(&cluster.kubectl_with_input(&shown, &pod)?).expect("JSON");
    assert_eq!(pod["metadata"]["namespace"], SYSTEM, "the restricted namespace admits it");
    assert_eq!(pod["spec"]["serviceAccountName"], "redislease-operator");

    let container = &pod["spec"]["containers"][0];
    let mut command = Command::new(env!("CARGO_BIN_EXE_redislease"));
    command.env("KUBECONFIG", installation.operator_kubeconfig());
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().expect("a name");
        // The only field reference is the namespace of the pod.
        command.env(name, variable["value"].as_str().unwrap_or(SYSTEM));
    }
    let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let output = command.args(args).output().expect("the binary runs");
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("rights that the operator needs"), "{table}");
    for node in 0..3 {
        assert!(table.contains(&format!("node default/redis-{node}")), "{table}");
    }
    assert!(table.contains("0 problems, 0 not checked"), "{table}");
    Ok(())
}
