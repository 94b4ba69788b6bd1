//! What happens to the operator, and to the API server it speaks to.

use std::time::{Duration, Instant};

use redislease_lab::{Components, ControlPlane, Gate, Installation, InstallationOptions, LeaseState, Result};
use serde_json::json;

use crate::holder::held;
use crate::roles::changes_hands;
use crate::world::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, World, count, keys, options, the_term_lives_on, throughout};

#[test]
fn a_lease_outlives_an_api_server_that_is_killed_or_hangs() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let (lease, first) = held(&installation, "away")?;
    let attempt = first.attempt().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();

    cluster.api_server().kill()?;
    the_term_lives_on(&installation, "away", &attempt)?;
    cluster.api_server().start()?;
    cluster.wait_ready()?;

    cluster.api_server().pause()?;
    the_term_lives_on(&installation, "away", &attempt)?;
    cluster.api_server().resume()?;
    cluster.wait_ready()?;

    let after = lease.wait("answered again", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!((after.attempt(), after.token()), (first.attempt(), first.token()));
    // And it is watched again: a change is seen.
    let pod = first.holder().unwrap_or_default();
    cluster.kubectl(&["delete", "pod", "-n", "away", pod])?;
    lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > first.token())?;
    operator.stop().map(drop)
}

#[test]
fn a_restarted_operator_goes_on_with_the_same_term_and_writes_nothing() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let (lease, _) = held(&installation, "restart")?;
    let before = lease.state()?;
    lease.wait_for_roles(&before, 3, SOON)?;
    let pods = || {
        let versions = "jsonpath={.items[*].metadata.resourceVersion}";
        installation.control_plane().kubectl(&["get", "pods", "-n", "restart", "-o", versions])
    };
    let told = pods()?;

    let began = Instant::now();
    let status = operator.stop()?;
    assert!(status.success(), "{status}");
    assert!(began.elapsed() < Duration::from_secs(5), "SIGTERM took {:?}", began.elapsed());
    let attempt = before.attempt().unwrap_or_default();
    assert!(count(&keys(&installation, "restart", "billing"), attempt, "t") >= 2, "SIGTERM releases nothing");
    operator.start_again()?;
    operator.wait_ready()?;
    the_term_lives_on(&installation, "restart", attempt)?;
    assert_eq!(lease.state()?.resource_version(), before.resource_version(), "adopted, nothing written");

    operator.restart()?;
    operator.wait_ready()?;
    the_term_lives_on(&installation, "restart", attempt)?;
    let after = lease.state()?;
    assert_eq!((after.token(), after.holder()), (before.token(), before.holder()));
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(pods()?, told, "no label was touched");
    let page = operator.metrics()?;
    let adopted = [("lease_namespace", "restart")];
    assert_eq!(page.value("redislease_lease_held", &adopted), Some(1.0));
    let token = page.series("redislease_lease_fencing_token", &adopted).next().unwrap_or_default();
    assert!(token.ends_with(&after.token().unwrap_or_default().to_string()), "{token}");
    Ok(())
}

#[test]
fn an_attempt_that_was_never_published_is_deleted_by_nobody() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let (lease, first) = held(&installation, "unpublished")?;
    let cluster = installation.control_plane();
    // Nobody may be elected, then two nodes are silent: the next attempt cannot come through.
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    lease.wait("held by nobody", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    for server in &installation.redis()[..2] {
        server.process().pause()?;
    }
    lease.patch(&json!({"spec": {"suspend": false}}))?;
    lease.wait("tried for", SOON, |now| now.reason("Ready") != "Suspended")?;
    // The API server is gone before the nodes are back: round 2 succeeds, the status write does not.
    cluster.api_server().kill()?;
    for server in &installation.redis()[..2] {
        server.process().resume()?;
    }
    let ghost = installation.wait_for("a confirmed attempt on a majority", FIRST_ELECTION, || {
        let keys = keys(&installation, "unpublished", "billing");
        let term = keys.iter().flatten().find(|key| count(&keys, key.attempt(), "t") >= 2).cloned();
        term.ok_or_else(|| format!("{keys:?}"))
    })?;
    operator.kill()?;
    cluster.api_server().start()?;
    cluster.wait_ready()?;
    assert_ne!(lease.state()?.attempt(), Some(ghost.attempt()), "no status names it");
    let seen = Instant::now();
    let left =
        keys(&installation, "unpublished", "billing").iter().flatten().map(|key| key.left).max().unwrap_or_default();
    operator.start_again()?;
    let second = lease.wait("a new term", FIRST_ELECTION, LeaseState::is_active)?;
    let slack = Duration::from_millis(500);
    assert!(seen.elapsed() + slack >= left, "{:?}, and the keys lived {left:?}", seen.elapsed());
    assert_ne!(second.attempt(), Some(ghost.attempt()));
    assert!(second.token() > Some(ghost.number()), "{:?} after the ghost's {}", second.token(), ghost.number());
    assert!(second.token() > first.token());
    Ok(())
}

#[test]
fn two_operators_by_accident_are_one() -> Result<()> {
    let World { operator, installation } = World::new()?;
    let second = installation.start_operator("operator-1", &[])?;
    let (lease, first) = held(&installation, "both")?;
    let last = changes_hands(&installation, "both", &lease, first)?;
    installation.deployment("both", "billing", 3)?;
    lease.wait_for_roles(&last, 3, SOON)?;
    // Either one alone keeps it: the one that is left has adopted what the other took.
    let attempt = last.attempt().unwrap_or_default().to_owned();
    operator.kill()?;
    the_term_lives_on(&installation, "both", &attempt)?;
    operator.start_again()?;
    operator.wait_ready()?;
    second.kill()?;
    the_term_lives_on(&installation, "both", &attempt)?;
    assert_eq!(lease.state()?.token(), last.token());
    Ok(())
}

#[test]
fn an_operator_that_reaches_no_node_leaves_the_term_to_the_one_that_keeps_it() -> Result<()> {
    let redis = options().start_redis()?;
    let gates = redis.iter().map(|server| Gate::before(server.address())).collect::<Result<Vec<_>>>()?;
    let node = |(index, gate): (usize, &Gate)| json!({"name": format!("redis-{index}"), "address": gate.address().to_string()});
    let nodes: Vec<_> = gates.iter().enumerate().map(node).collect();
    let quorum = json!({"nodes": nodes, "commandTimeout": "1s"});
    let options = InstallationOptions { quorum, ..options() };
    let installation = Installation::install(&options, ControlPlane::start(Components::Nodes(options.nodes))?, redis)?;
    let keeps = installation.start_operator("keeps", &[])?;
    let (lease, first) = held(&installation, "cut-off")?;
    let holder = first.holder().unwrap_or_default().to_owned();
    let label = || -> Result<_> { Ok(lease.roles()?.remove(&holder).unwrap_or_default().label) };
    lease.wait_for_roles(&first, 3, SOON)?;

    gates.iter().for_each(Gate::close);
    let cut_off = installation.start_operator("cut-off", &[])?;
    let writes = |operator: &redislease_lab::Operator| {
        let page = operator.metrics().ok()?;
        page.value("redislease_api_writes_total", &[("kind", "lease_status"), ("result", "ok")])
    };
    // It doubts the term after one renewInterval, and again one lease after it was answered.
    let span = Duration::from_secs(16);
    throughout(span, |after| {
        let now = lease.state()?;
        assert_eq!((now.attempt(), now.token()), (first.attempt(), first.token()), "{now}");
        assert_ne!(now.reason("Active"), "LeaseLost", "after {after:?}: {now}");
        assert_eq!(label()?.as_deref(), Some("active"), "after {after:?}: {now}");
        Ok(())
    })?;
    lease.wait("confirmed", SOON, LeaseState::is_active)?;
    let doubts = writes(&cut_off).unwrap_or_default();
    assert!((2.0..=4.0).contains(&doubts), "{doubts} doubts in {span:?}");
    // It has tried every node, in vain: that is all that readiness asks for.
    cut_off.wait_ready()?;

    // Nobody is left to answer: now it is the one that says so.
    keeps.kill()?;
    lease.wait("declared lost", Duration::from_secs(40), |now| now.reason("Active") == "LeaseLost")?;
    installation.wait_for("the label has followed", SOON, || match label() {
        Ok(Some(label)) if label == "standby" => Ok(()),
        other => Err(format!("{other:?}")),
    })
}
