//! Requested handovers: with the command line, with annotations, and to another cluster.

use std::process::Output;

use redislease_lab::{Installation, LeaseState, Result};
use serde_json::{Value, json};

use crate::holder::{held, wait_for_events};
use crate::support::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, redislease, shared};

/// Runs `redislease handover` for the lease `billing`.
pub fn handover(installation: &Installation, namespace: &str, args: &[&str]) -> Output {
    let args = [&["handover", "billing", "--namespace", namespace], args].concat();
    redislease(installation.control_plane().kubeconfig(), &args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(state: &LeaseState) -> Value {
    state.json()["status"]["handover"].clone()
}

#[test]
fn a_requested_handover_moves_the_lease_to_the_pod() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "moved")?;
    let before = first.holder().unwrap_or_default();
    let roles = lease.roles()?;
    // The last one in the order of the election.
    let to = roles.keys().rfind(|pod| *pod != before).expect("another candidate").clone();
    let done = handover(installation, "moved", &["--to", &format!("pod/{to}")]);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(said.starts_with(&format!("The term of {before} has ended.")), "{said}");
    assert!(said.contains(&format!("\n{to} holds the lease with fencing token ")), "{said}");
    let second = lease.state()?;
    assert_eq!((second.holder(), second.is_active()), (Some(to.as_str()), true));
    assert_eq!(second.json()["status"]["history"][0]["reason"], "HandoverRequested");
    let handover_status = shown(&second);
    assert_eq!(
        (&handover_status["state"], &handover_status["from"], &handover_status["to"]),
        (&json!("Completed"), &json!(before), &json!(format!("pod/{to}")))
    );
    lease.wait_for_roles(&second, 3, SOON)?;
    wait_for_events(installation, "moved", &first, "HandoverRequested", " must stop: a handover was requested")?;

    let refused = handover(installation, "moved", &["--to", "pod/absent"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("No candidate of the lease has the name absent."), "{refused:?}");
    let wrong = handover(installation, "moved", &["--to", "absent"]);
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
    let absent = redislease(installation.control_plane().kubeconfig(), &["handover", "absent", "--namespace=moved"]);
    assert!(text(&absent.stderr).contains("there is no RedisLease absent in namespace moved"), "{absent:?}");
    assert_eq!(lease.state()?.token(), second.token(), "no term was ended");

    // Without the command line, and without a target.
    let annotate = ["annotate", "rl", "billing", "-n", "moved", "--overwrite", "redislease.io/handover-to-"];
    installation.control_plane().kubectl(&[&annotate[..], &["redislease.io/handover-requested=by-hand"]].concat())?;
    let third = lease.wait("another holder", AFTER_ONE_LEASE, |now| {
        now.is_active() && now.token() > second.token() && now.holder() != second.holder()
    })?;
    assert_eq!((&shown(&third)["id"], &shown(&third)["state"]), (&json!("by-hand"), &json!("Completed")));
    Ok(())
}

/// Moves a lease of pods to the cluster `there`, which has the name `elsewhere`, and then to one that does not exist.
pub fn to_another_cluster(here: &Installation, there: &Installation) -> Result<()> {
    let (ours, _) = held(here, "crossing")?;
    there.deployment("crossing", "billing", 3)?;
    let theirs = there.lease("crossing", "billing", &json!({}))?;
    theirs.wait("passive", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster")?;

    let done = handover(here, "crossing", &["--to=cluster/elsewhere"]);
    assert!(done.status.success(), "{done:?}");
    assert!(text(&done.stdout).contains("elsewhere"), "{done:?}");
    let passive = ours.wait("passive", SOON, |now| now.reason("Active") == "HeldByPeerCluster")?;
    assert_eq!(shown(&passive)["state"], "Completed", "{passive}");
    let active = theirs.wait("held", SOON, LeaseState::is_active)?;
    assert!(active.token() > passive.token(), "{active}");

    // There is no such cluster: after the wait, this one holds the lease again.
    let none = handover(there, "crossing", &["--to=cluster/nowhere", "--wait=0s"]);
    assert!(none.status.success(), "{none:?}");
    // The status shows no handover until the operator has read the request.
    let is_over = |now: &LeaseState| shown(now)["state"].as_str().is_some_and(|state| state != "Running");
    let back = theirs.wait("the handover ends", 3 * AFTER_ONE_LEASE, is_over)?;
    // The first cluster is there as well and can be faster.
    assert_eq!(shown(&back)["state"], "Failed", "{back}");
    assert!(shown(&back)["message"].to_string().contains("The cluster nowhere did not acquire the lease"), "{back}");
    Ok(())
}
