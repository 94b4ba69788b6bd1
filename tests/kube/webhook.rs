//! An admission webhook of another team that hangs.

use std::net::TcpListener;

use redislease_lab::{Installation, Result};
use serde_json::{Value, json};

use crate::holder::{another, held};
use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON};

const NAME: &str = "redislease-hangs";

/// Lets every change of pods and of the status of leases in a namespace wait for a server that never answers.
fn hang(installation: &Installation, namespace: &str, server: &TcpListener) -> Result<()> {
    let port = server.local_addr().expect("an address").port();
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]});
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "hangs.example.com",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [rule("", "pods"), rule("redislease.io", "redisleases/status")],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }],
    }))?;
    let pods: Value = installation.control_plane().get(&format!("/api/v1/namespaces/{namespace}/pods"))?.expect("pods");
    let pod = pods["items"][0]["metadata"]["name"].as_str().expect("a pod");
    let write = ["annotate", "pod", pod, "-n", namespace, "example.com/try=yes", "--overwrite", "--dry-run=server"];
    installation.wait_for("the webhook hangs", FIRST_ELECTION, || {
        let written = installation.control_plane().kubectl(&[&write[..], &["--request-timeout=2s"]].concat());
        written.map_or(Ok(()), Err)
    })
}

#[test]
fn a_webhook_that_hangs_holds_up_only_its_own_namespace() -> Result<()> {
    let Cluster { installation, operator: _operator } = Cluster::start()?;
    let cluster = installation.control_plane();
    cluster.not_again();
    let (hung, first) = held(&installation, "hung")?;
    let (beside, mut term) = held(&installation, "beside")?;
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    hang(&installation, "hung", &server)?;

    let holder = first.holder().unwrap_or_default();
    cluster.kubectl(&["delete", "pod", holder, "-n", "hung", "--wait=false"])?;
    for _ in 0..3 {
        let holder = term.holder().unwrap_or_default();
        cluster.kubectl(&["delete", "pod", holder, "-n", "beside", "--wait=false"])?;
        // A write waits 5 s for its answer at most, and then leaves its place to others.
        term = beside.wait("another holder", SOON * 2, another(&term))?;
        assert_eq!(hung.state()?.token(), first.token(), "nothing can be published");
    }
    let roles = hung.roles()?;
    assert!(roles.values().all(|role| role.label.as_deref() != Some("active")), "{roles:?}");

    cluster.kubectl(&["delete", "validatingwebhookconfiguration", NAME])?;
    let next = hung.wait("another holder", FIRST_ELECTION + AFTER_ONE_LEASE, another(&first))?;
    hung.wait_for_roles(&next, 3, SOON)
}
