//! Admission of another team: a webhook that hangs, and a policy that refuses every status of its leases.

use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{Installation, InstallationOptions, Operator, Result, refuse_statuses};
use serde_json::{Value, json};

use crate::holder::{another, held};
use crate::support::{AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, options, throughout};
use crate::tenants::create_many;

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

/// The writes of statuses that the API server has answered or not.
fn status_writes(operator: &Operator) -> Result<f64> {
    let page = operator.metrics()?;
    let of = |result| page.value("redislease_api_writes_total", &[("kind", "lease_status"), ("result", result)]);
    Ok(["ok", "conflict", "error", "timeout"].into_iter().filter_map(of).sum())
}

#[test]
#[ignore = "it slows down the tests beside it: make nightly runs it alone"]
fn a_policy_that_refuses_a_thousand_statuses_costs_few_writes_and_delays_nobody() -> Result<()> {
    const LEASES: u16 = 1000;
    const MINUTE: Duration = Duration::from_mins(1);
    let longer = InstallationOptions { quorum: json!({"maxLeaseDuration": "15s"}), ..options() };
    let Cluster { installation, operator } = Cluster::with_own_redis(&longer)?;
    installation.control_plane().not_again();
    held(&installation, "refused")?;
    let (beside, mut term) = held(&installation, "beside")?;
    let refusal = refuse_statuses(&installation, "refused")?;
    create_many(&installation, "refused", LEASES, &AtomicBool::new(false))?;
    // The pauses grow to a minute.
    thread::sleep(MINUTE * 2);
    let (before, began) = (status_writes(&operator)?, Instant::now());
    let mut slowest = Duration::ZERO;
    throughout(MINUTE, |_| {
        let asked = Instant::now();
        let holder = term.holder().unwrap_or_default();
        installation.control_plane().kubectl(&["delete", "pod", holder, "-n", "beside", "--wait=false"])?;
        term = beside.wait("another holder", SOON, another(&term))?;
        slowest = slowest.max(asked.elapsed());
        Ok(())
    })?;
    let writes = (status_writes(&operator)? - before) / began.elapsed().as_secs_f64() * 60.0;
    println!(
        "{writes:.0} status writes in a minute for {LEASES} leases; the slowest handover beside them: {slowest:.1?}"
    );
    // An attempt every three leases, whose publication and whose end are refused, and the status every minute.
    assert!(writes <= 6.0 * f64::from(LEASES), "{writes} writes in a minute");

    refusal.end()?;
    let ended = Instant::now();
    installation.wait_for("all leases are held", MINUTE * 4, || {
        let held = operator.metrics()?.value("redislease_lease_held", &[("lease_namespace", "refused")]);
        let held = held.unwrap_or_default();
        if held >= f64::from(LEASES) { Ok(()) } else { Err(format!("{held} leases are held")) }
    })?;
    println!("all leases were held {:.1?} after the policy was gone", ended.elapsed());
    Ok(())
}
