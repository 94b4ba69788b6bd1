//! The operator is stopped, killed, duplicated or disconnected, and the API server fails.

use std::time::{Duration, Instant};

use redislease_lab::{Cut, InstallationOptions, LeaseState, Proxy, Result, nodes, refuse_statuses};
use serde_json::json;

use crate::holder::held;
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, count, installation_on, is, keys, options, the_term_is_kept,
    throughout,
};

#[test]
fn a_lease_is_kept_while_the_api_server_is_down_or_hangs() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let (lease, first) = held(&installation, "away")?;
    let attempt = first.attempt().unwrap_or_default().to_owned();
    let cluster = installation.control_plane();

    cluster.api_server().kill()?;
    the_term_is_kept(&installation, "away", &attempt)?;
    cluster.api_server().start()?;
    cluster.wait_ready()?;

    cluster.api_server().pause()?;
    the_term_is_kept(&installation, "away", &attempt)?;
    cluster.api_server().resume()?;
    cluster.wait_ready()?;

    let after = lease.wait("active", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!((after.attempt(), after.token()), (first.attempt(), first.token()));
    // The watches work again: the operator handles a change.
    let pod = first.holder().unwrap_or_default();
    cluster.kubectl(&["delete", "pod", "-n", "away", pod])?;
    lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > first.token())?;
    operator.stop().map(drop)
}

#[test]
fn a_restarted_operator_keeps_the_term_and_writes_nothing() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let (lease, _) = held(&installation, "restart")?;
    let before = lease.state()?;
    lease.wait_for_roles(&before, 3, SOON)?;
    let pods = || {
        let versions = "jsonpath={.items[*].metadata.resourceVersion}";
        installation.control_plane().kubectl(&["get", "pods", "-n", "restart", "-o", versions])
    };
    let pods_before = pods()?;
    let managers = "jsonpath={.metadata.managedFields[*].manager}";
    for written in ["redislease/billing", &format!("pod/{}", before.holder().unwrap_or_default())] {
        let shown = installation.control_plane().kubectl(&["get", written, "-n", "restart", "-o", managers])?;
        assert!(shown.split_whitespace().any(|name| name == "redislease"), "{written}: {shown}");
    }

    let began = Instant::now();
    let status = operator.stop()?;
    assert!(status.success(), "{status}");
    assert!(began.elapsed() < Duration::from_secs(5), "SIGTERM took {:?}", began.elapsed());
    let attempt = before.attempt().unwrap_or_default();
    assert!(count(&keys(&installation, "restart", "billing"), attempt, "t") >= 2, "SIGTERM releases no term");
    operator.start_again()?;
    operator.wait_ready()?;
    the_term_is_kept(&installation, "restart", attempt)?;
    assert_eq!(lease.state()?.resource_version(), before.resource_version(), "the term is adopted without a write");

    operator.restart()?;
    operator.wait_ready()?;
    the_term_is_kept(&installation, "restart", attempt)?;
    let after = lease.state()?;
    assert_eq!((after.token(), after.holder()), (before.token(), before.holder()));
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(pods()?, pods_before, "no pod was written");
    let adopted = [("lease_namespace", "restart")];
    operator.wait_for_metric("redislease_lease_held", &adopted, SOON, is(1.0))?;
    let token = after.token().unwrap_or_default().to_string();
    operator.wait_for_metrics(SOON, |page| {
        let shown = page.series("redislease_lease_fencing_token", &adopted).next().unwrap_or_default();
        if shown.ends_with(&token) { Ok(()) } else { Err(shown.to_owned()) }
    })
}

#[test]
fn an_unpublished_attempt_ends_only_when_its_keys_expire() -> Result<()> {
    let Cluster { operator, installation } = Cluster::start()?;
    let (lease, first) = held(&installation, "unpublished")?;
    lease.patch(&json!({"spec": {"suspend": true}}))?;
    lease.wait("no holder", AFTER_ONE_LEASE, |now| now.holder().is_none())?;
    // Round 2 of the next attempt succeeds, and the API server refuses its publication.
    let refusal = refuse_statuses(&installation, "unpublished")?;
    lease.patch(&json!({"spec": {"suspend": false}}))?;
    let unpublished = installation.wait_for("a confirmed attempt on a majority", FIRST_ELECTION, || {
        let keys = keys(&installation, "unpublished", "billing");
        let term = keys.iter().flatten().find(|key| count(&keys, key.attempt(), "t") >= 2).cloned();
        term.ok_or_else(|| format!("{keys:?}"))
    })?;
    operator.kill()?;
    let seen = Instant::now();
    let left = keys(&installation, "unpublished", "billing").iter().flatten().map(|key| key.left).max();
    let left = left.expect("a node answers with its key");
    refusal.end()?;
    assert_ne!(lease.state()?.attempt(), Some(unpublished.attempt()), "no status names the attempt");
    operator.start_again()?;
    let next = lease.wait("a new term", FIRST_ELECTION, LeaseState::is_active)?;
    let slack = Duration::from_millis(500);
    assert!(seen.elapsed() + slack >= left, "a new term after {:?}; the keys lived for {left:?}", seen.elapsed());
    assert_ne!(next.attempt(), Some(unpublished.attempt()));
    assert!(
        next.token() > Some(unpublished.number()),
        "{:?} after the unpublished {}",
        next.token(),
        unpublished.number()
    );
    assert!(next.token() > first.token());
    Ok(())
}

#[test]
fn a_replica_that_reaches_no_node_does_not_end_a_term_that_the_leader_keeps() -> Result<()> {
    let redis = options().start_redis()?;
    let proxies = redis.iter().map(|server| Proxy::to(server.address())).collect::<Result<Vec<_>>>()?;
    let quorum = json!({"nodes": nodes(proxies.iter().map(Proxy::address)), "commandTimeout": "1s"});
    let options = InstallationOptions { quorum, ..options() };
    let installation = installation_on(&options, redis)?;
    let keeps = installation.start_operator("keeps", &[])?;
    let (lease, first) = held(&installation, "cut-off")?;
    let holder = first.holder().unwrap_or_default().to_owned();
    let label = || -> Result<_> { Ok(lease.roles()?.remove(&holder).unwrap_or_default().label) };
    lease.wait_for_roles(&first, 3, SOON)?;

    for proxy in &proxies {
        proxy.cut(Cut::Refuse);
    }
    let cut_off = installation.start_operator("cut-off", &[])?;
    let writes = [("kind", "lease_status"), ("result", "ok")];
    // After 10 s it claims leadership in the status, because the leader could have died together with the quorum.
    let span = Duration::from_secs(20);
    throughout(span, |after| {
        let now = lease.state()?;
        assert_eq!((now.attempt(), now.token()), (first.attempt(), first.token()), "{now}");
        assert_ne!(now.reason("Active"), "LeaseLost", "after {after:?}: {now}");
        assert_eq!(label()?.as_deref(), Some("active"), "after {after:?}: {now}");
        Ok(())
    })?;
    installation.wait_for_quorum("the leader is named again", FIRST_ELECTION, |now| {
        now.leader() == Some("keeps") && now.leader_transitions() == 2
    })?;
    assert!(lease.state()?.is_active());
    assert_eq!(cut_off.metrics()?.value("redislease_api_writes_total", &writes), Some(0.0));
    let (code, page) = cut_off.get("/readyz")?;
    assert_eq!(code, 503, "a rollout must not replace the leader by it: {page}");

    // No replica contradicts it now. Its next claim comes 20 s after the first one.
    keeps.kill()?;
    lease.wait("the term is lost", Duration::from_mins(1), |now| now.reason("Active") == "LeaseLost")?;
    cut_off.wait_ready()?;
    installation.wait_for("the former holder is labelled standby", SOON, || match label() {
        Ok(Some(label)) if label == "standby" => Ok(()),
        other => Err(format!("{other:?}")),
    })
}
