//! Several operators of one installation, of which one is paused, killed or cut off.

use redislease_lab::{Components, ControlPlane, Cut, Installation, InstallationOptions, Operator, Peer, Result};
use serde_json::json;

use crate::support::{FIRST_ELECTION, SOON, is, options, shared_redis};

/// An installation on the shared Redis servers whose operators can be cut off.
fn proxied() -> Result<Installation> {
    let options = InstallationOptions { proxied: true, ..options() };
    Installation::install(&options, ControlPlane::start(Components::Nodes(1))?, shared_redis().to_vec())
}

/// Waits until an operator counts this many nodes that vote.
fn wait_for_nodes(operator: &Operator, count: f64) -> Result<()> {
    operator.wait_for_metric("redislease_quorum_nodes", &[("state", "up")], FIRST_ELECTION, is(count))
}

fn shows(operator: &Operator, namespace: &str) -> Result<bool> {
    let page = operator.metrics()?;
    Ok(page.series("redislease_lease_held", &[("lease_namespace", namespace)]).next().is_some())
}

#[test]
fn one_operator_is_cut_off_paused_or_killed_and_the_other_is_not() -> Result<()> {
    let installation = proxied()?;
    let operators = installation.start_replicas(2)?;
    let [keeps, loses] = &operators[..] else { panic!("two operators") };
    for operator in &operators {
        wait_for_nodes(operator, 3.0)?;
    }

    for how in [Cut::Reset, Cut::Hang] {
        installation.cut_off(loses, &[Peer::Redis], how)?;
        wait_for_nodes(loses, 0.0)?;
        wait_for_nodes(keeps, 3.0)?;
        installation.reconnect();
        wait_for_nodes(loses, 3.0)?;
    }

    installation.cut_off(loses, &[Peer::ApiServer], Cut::Hang)?;
    installation.lease("unseen", "billing", &json!({}))?;
    installation.wait_for("the connected operator shows the lease", SOON, || match shows(keeps, "unseen") {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    assert!(!shows(loses, "unseen")?, "the other one receives nothing");
    installation.reconnect();
    installation.wait_for("the reconnected operator shows the lease", FIRST_ELECTION, || {
        match shows(loses, "unseen") {
            Ok(true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;

    loses.pause()?;
    assert!(loses.get("/readyz").is_err(), "a paused process does not answer");
    keeps.wait_ready()?;
    loses.resume()?;
    loses.wait_ready()?;
    loses.kill()?;
    assert_eq!(loses.process().pid(), None);
    keeps.wait_ready()?;
    loses.start_again()?;
    loses.wait_ready()
}
