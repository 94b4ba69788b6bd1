//! The API server refuses what the operator writes to the status or the pods of a lease.

use redislease_lab::{refuse, refuse_statuses};

use super::*;

#[test]
fn the_pod_of_a_suspended_lease_is_deleted_although_the_status_is_refused() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let namespace = "gate-unwritten";
    deployment(installation, namespace)?;
    let lease = lease(installation, namespace, "Deployment", &json!({}))?;
    let (first, _) = running(installation, &lease, namespace, None, FIRST_ELECTION)?;
    let policy = refuse_statuses(installation, namespace)?;
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    installation.wait_for("no pod runs", SOON, || no_pod_runs(installation, namespace))?;
    no_key_is_left(installation, namespace)?;
    let now = lease.state()?;
    assert!(now.is_active() && now.attempt() == first.attempt(), "the status is out of date: {now}");
    policy.end()?;
    lease.wait("suspended", FIRST_ELECTION, |now| now.reason("Ready") == "Suspended" && !now.is_active()).map(drop)
}

/// Otherwise the next pod would wait for it for ever.
#[test]
fn the_pod_of_a_lost_term_is_deleted_although_its_label_is_refused() -> Result<()> {
    let installation = &shared_with_rights().installation;
    let namespace = "gate-kept-label";
    deployment(installation, namespace)?;
    let lease = lease(installation, namespace, "Deployment", &json!({}))?;
    let (first, pod) = running(installation, &lease, namespace, None, FIRST_ELECTION)?;
    let keeps = |object: &str| format!("{object}.metadata.labels[?'{GATE}'] == optional.of('active')");
    // The other label shows that the policy is in use.
    let stays = format!("!('refused' in object.metadata.labels) && (!({}) || {})", keeps("oldObject"), keeps("object"));
    let write = ["label", "pods", "--all", "-n", namespace, "refused=yes"];
    let policy = refuse(installation, namespace, ["", "pods"], &stays, write.into())?;
    for server in installation.redis() {
        server.command(&["DEL", &format!("redislease:lock:{namespace}/billing")])?;
    }
    let (_, next) = running(installation, &lease, namespace, Some(&first), FIRST_ELECTION)?;
    assert_ne!(next["metadata"]["uid"], pod["metadata"]["uid"], "the pod of the lost term has ended");
    policy.end()
}
