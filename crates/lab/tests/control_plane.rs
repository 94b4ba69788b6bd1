//! The local control plane: pods that run and stop as under a kubelet, nodes that are lost, an API server that fails.
//! Needs `make tools`.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use redislease_lab::{Components, ControlPlane, Result, WatchEvent, poll};
use serde_json::Value;

const LOST_NODE: &str = "node-2";

/// One control plane for all tests in this file. A static is never dropped: the watchdog stops it.
fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceLock<ControlPlane> = OnceLock::new();
    SHARED.get_or_init(|| {
        let started = Instant::now();
        let control_plane = ControlPlane::start(Components::Nodes(3)).expect("a control plane");
        // The pods of the other tests must not run on the node that one test loses.
        control_plane.kubectl(&["cordon", LOST_NODE]).expect("a node without pods");
        println!("control plane up in {:.1} s", started.elapsed().as_secs_f32());
        control_plane
    })
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let within = Duration::from_secs(30);
    let probe = || if holds() { Ok(()) } else { Err(format!("not within {within:?}: {what}")) };
    poll(within, probe).unwrap_or_else(|late| panic!("{late}"));
}

/// A namespace with a Deployment whose pods have a plain init container, a sidecar and a main container.
fn deployment(namespace: &str, replicas: usize) -> Result<()> {
    let control_plane = control_plane();
    control_plane.kubectl(&["create", "namespace", namespace])?;
    let started = Instant::now();
    control_plane.apply(&format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: app}}}}
  template:
    metadata: {{labels: {{app: app}}}}
    spec:
      initContainers:
      - {{name: prepare, image: none}}
      - {{name: sidecar, image: none, restartPolicy: Always}}
      containers:
      - {{name: main, image: none}}
"
    ))?;
    control_plane.kubectl(&["rollout", "status", "deployment/app", "-n", namespace, "--timeout=60s"])?;
    println!("{replicas} replicas Ready in {:.1} s", started.elapsed().as_secs_f32());
    Ok(())
}

fn pods(namespace: &str) -> Result<Vec<String>> {
    let names = control_plane().kubectl(&["get", "pods", "-n", namespace, "-o", "name"])?;
    Ok(names.lines().map(|name| name.trim_start_matches("pod/").to_owned()).collect())
}

fn condition(object: &[&str], kind: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
    control_plane().kubectl(&[&["get"], object, &["-o", &path]].concat())
}

/// The states of all containers of the spec, init containers first.
fn states(pod: &Value) -> Vec<String> {
    ["initContainerStatuses", "containerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .filter_map(|status| status["state"].as_object()?.keys().next().cloned())
        .collect()
}

#[test]
fn a_graceful_deletion_shows_the_end_of_every_container_and_a_forced_one_does_not() -> Result<()> {
    let control_plane = control_plane();
    deployment("deletions", 3)?;
    let pods = pods("deletions")?;
    assert_eq!(pods.len(), 3);

    let mut watch = control_plane.watch("pods", "deletions")?;
    let mut seen = |pod: &str| -> Vec<WatchEvent> {
        watch.so_far().iter().filter(|event| event.object["metadata"]["name"] == pod).cloned().collect()
    };
    let running = ["terminated", "running", "running"];
    eventually("the watch shows both pods running", || {
        pods[..2].iter().all(|pod| seen(pod).iter().any(|event| states(&event.object) == running))
    });

    control_plane.kubectl(&["delete", "pod", &pods[0], "-n", "deletions"])?;
    control_plane.kubectl(&["delete", "pod", &pods[1], "-n", "deletions", "--force", "--grace-period=0"])?;
    for pod in &pods[..2] {
        eventually("the watch shows the pod's removal", || seen(pod).iter().any(|event| event.kind == "DELETED"));
    }

    let graceful = seen(&pods[0]);
    let first_end = graceful.iter().position(|event| event.object["status"]["phase"] == "Succeeded");
    let WatchEvent { kind, object: pod, .. } = &graceful[first_end.expect("a final phase")];
    assert_eq!(kind, "MODIFIED", "the end is written before the pod is removed");
    assert!(!pod["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(states(pod), ["terminated", "terminated", "terminated"]);
    let WatchEvent { kind, object: pod, .. } = &graceful[graceful.len() - 1];
    assert_eq!((kind.as_str(), states(pod)), ("DELETED", vec!["terminated".to_owned(); 3]));

    for WatchEvent { kind, object: pod, .. } in seen(&pods[1]) {
        assert_ne!(pod["status"]["phase"], "Succeeded", "{kind}: no status shows the end of the forced pod");
        assert!(states(&pod) != ["terminated"; 3], "{kind}: no status shows the end of its containers");
    }
    Ok(())
}

#[test]
fn a_pod_turns_not_ready_and_back_and_may_take_its_time_to_stop() -> Result<()> {
    let control_plane = control_plane();
    deployment("readiness", 1)?;
    let pod = &pods("readiness")?[0];
    let object = ["pod", pod.as_str(), "-n", "readiness"];

    control_plane.set_pod_ready("readiness", pod, false)?;
    assert_eq!(condition(&object, "Ready")?, "False");
    eventually("the Deployment reports the pod", || {
        condition(&["deployment", "app", "-n", "readiness"], "Available").is_ok_and(|status| status == "False")
    });
    assert_eq!(condition(&object, "Ready")?, "False", "the condition does not change back");
    control_plane.set_pod_ready("readiness", pod, true)?;
    assert_eq!(condition(&object, "Ready")?, "True");

    let slow = "lab.redislease.io/stops-after=3s";
    control_plane.kubectl(&["annotate", "pod", pod, "-n", "readiness", slow])?;
    let started = Instant::now();
    control_plane.kubectl(&["delete", "pod", pod, "-n", "readiness"])?;
    assert!(started.elapsed() >= Duration::from_secs(3), "it stopped after {:?}", started.elapsed());
    Ok(())
}

#[test]
fn pods_of_a_lost_node_hang() -> Result<()> {
    let control_plane = control_plane();
    control_plane.kubectl(&["create", "namespace", "lost"])?;
    eventually("the service account is there", || {
        control_plane.kubectl(&["get", "serviceaccount", "default", "-n", "lost"]).is_ok()
    });
    control_plane.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: app, namespace: lost}},
          spec: {{nodeName: {LOST_NODE}, containers: [{{name: main, image: none}}]}}}}"
    ))?;
    let pod = ["pod", "app", "-n", "lost"];
    eventually("the pod is Ready", || condition(&pod, "Ready").is_ok_and(|status| status == "True"));

    control_plane.lose_node(LOST_NODE)?;
    assert_eq!(condition(&pod, "Ready")?, "False");
    eventually("the node is tainted", || {
        let taints = ["get", "node", LOST_NODE, "-o", "jsonpath={.spec.taints[*].key}"];
        control_plane.kubectl(&taints).is_ok_and(|keys| keys.contains("node.kubernetes.io/unreachable"))
    });
    control_plane.kubectl(&["delete", "pod", "app", "-n", "lost", "--wait=false", "--grace-period=1"])?;
    let error = control_plane
        .kubectl(&["wait", "--for=delete", "pod/app", "-n", "lost", "--timeout=3s"])
        .expect_err("the pod is not stopped");
    assert!(error.to_string().contains("timed out waiting"), "{error}");
    assert_eq!(condition(&["node", LOST_NODE], "Ready")?, "Unknown", "the condition does not change back");
    let phase = control_plane.kubectl(&["get", "pod", "app", "-n", "lost", "-o", "jsonpath={.status.phase}"])?;
    assert_eq!(phase, "Running");
    Ok(())
}

#[test]
fn an_api_server_is_killed_and_hung_and_comes_back_with_what_it_knew() -> Result<()> {
    // A separate control plane: its outage would fail the other tests.
    let control_plane = ControlPlane::start(Components::Nodes(1))?;
    let api_server = control_plane.api_server();
    control_plane.kubectl(&["create", "configmap", "memory"])?;
    control_plane.kubectl(&["create", "serviceaccount", "guest"])?;
    let guest = control_plane.service_account_kubeconfig("default", "guest")?;
    let as_guest = format!("--kubeconfig={}", guest.display());
    let whoami = control_plane.kubectl(&[&as_guest, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])?;
    assert_eq!(whoami, "system:serviceaccount:default:guest");

    api_server.kill()?;
    let error = control_plane.kubectl(&["get", "configmap", "memory"]).expect_err("the server is dead");
    assert!(error.to_string().contains("refused"), "{error}");
    api_server.start()?;
    control_plane.wait_ready()?;
    control_plane.kubectl(&["get", "configmap", "memory"])?;

    control_plane.kubectl(&["run", "later", "--image=none"])?;
    control_plane.kubectl(&["wait", "--for=condition=Ready", "pod/later", "--timeout=30s"])?;

    api_server.pause()?;
    let error = control_plane.kubectl(&["get", "configmap", "memory", "--request-timeout=1s"]).expect_err("it hangs");
    assert!(error.to_string().to_lowercase().contains("timeout"), "{error}");
    api_server.resume()?;
    control_plane.wait_ready()?;

    let error = control_plane
        .kubectl(&[&as_guest, "get", "configmap", "memory"])
        .expect_err("RBAC is on, and the token outlived the restart");
    assert!(error.to_string().contains("configmaps \"memory\" is forbidden"), "{error}");
    Ok(())
}
