//! The Redis servers fail, the RedisQuorum or its secret changes, and another cluster uses the same quorum.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{
    Installation, InstallationOptions, LeaseState, Proxy, RedisServer, Result, SYSTEM, nodes, redis_quorum,
};
use serde_json::{Value, json};

use crate::holder::{held, held_by, wait_for_event_on_both};
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, LONGER_THAN_A_LEASE, SOON, STOP_BUDGET, installation_on, is, keys,
    no_pod_is_active, nodes_with, options, secret, shared, the_status_is_kept, the_term_is_kept, throughout,
    two_control_planes,
};

#[test]
fn without_a_quorum_the_term_ends_in_time_and_empty_servers_are_quarantined() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&options())?;
    let (lease, first) = held(&installation, "lost")?;
    let [_, b, c] = installation.redis() else { panic!("three servers") };
    c.process().kill()?;
    installation.wait_for_quorum("at risk", SOON, |quorum| quorum.count("Up") == 2)?;
    assert_eq!(lease.state()?.attempt(), first.attempt(), "the failure of one of three nodes ends no term");
    let began = Instant::now();
    b.process().kill()?;
    // A renewal that was under way has been answered or not; from now on there is none.
    thread::sleep(Duration::from_millis(100));
    let deadline = operator.metrics()?.deadline(&lease, STOP_BUDGET).expect("the lease is held");
    let lost = lease.wait("lost", AFTER_ONE_LEASE, |now| !now.is_active())?;
    let seen = Instant::now();
    let (late, left) = (deadline.late(seen), deadline.left(seen));
    // The page has whole milliseconds, and the clocks can be corrected meanwhile.
    assert!(late >= -0.1, "{:.2} s earlier than stop_at", -late);
    assert!(left > 0.0, "{:.2} s later than another pod may hold", -left);
    assert_eq!(lost.reason("Active"), "LeaseLost");
    assert_eq!(lost.token(), first.token());
    let holder = first.holder().unwrap_or_default();
    let says = format!("term {}: {holder} in lab lost the lease", first.token().unwrap_or_default());
    wait_for_event_on_both(&installation, "lost", holder, ("Warning", "LeaseLost"), &says)?;
    no_pod_is_active(&installation, &lease)?;
    b.restart_empty()?;
    c.restart_empty()?;
    let quarantined = installation.wait_for_quorum("quarantined", SOON, |quorum| quorum.count("Quarantined") == 2)?;
    let (_, message) = quarantined.node(1);
    assert!(message.contains("votes again"), "{message}");
    let second = lease.wait("held again", FIRST_ELECTION, LeaseState::is_active)?;
    assert!(
        began.elapsed() >= Duration::from_secs(10),
        "the servers wait for maxLeaseDuration; held after {:?}",
        began.elapsed()
    );
    assert!(second.token() > first.token());
    let labels = [("quorum", "default"), ("reason", "RenewDeadline")];
    operator.wait_for_metric("redislease_transitions_total", &labels, SOON, is(1.0))
}

#[test]
fn terms_are_kept_while_the_redisquorum_is_deleted() -> Result<()> {
    let Cluster { operator: _operator, installation } = Cluster::with_own_redis(&options())?;
    let (lease, first) = held(&installation, "gone")?;
    let cluster = installation.control_plane();
    let whole = cluster.kubectl(&["get", "redisquorum", "-n", SYSTEM, "default", "-o", "json"])?;
    cluster.kubectl(&["delete", "redisquorum", "-n", SYSTEM, "default"])?;
    let named =
        lease.wait("the missing RedisQuorum is reported", SOON, |now| now.reason("Ready") == "InvalidReference")?;
    let message = named.message("Ready");
    assert!(message.contains("RedisQuorum redislease-system/default, which does not exist"), "{message}");
    // The operator renews from its last configuration.
    let attempt = first.attempt().unwrap_or_default();
    the_term_is_kept(&installation, "gone", attempt)?;
    assert!(lease.state()?.is_active());
    let mut whole: Value = serde_json::from_str(&whole).expect("JSON");
    whole["metadata"] = json!({"name": "default", "namespace": SYSTEM});
    installation.apply(&whole)?;
    let after = lease.wait("ready again", SOON, |now| now.reason("Ready") == "HeldHere")?;
    assert_eq!((after.attempt(), after.token()), (first.attempt(), first.token()));
    // The configuration is the same, so the term does not end.
    the_term_is_kept(&installation, "gone", attempt)?;
    assert_eq!(lease.state()?.token(), first.token());
    Ok(())
}

#[test]
fn an_edit_beyond_max_lease_duration_changes_neither_the_keys_nor_the_candidates() -> Result<()> {
    let installation = &shared().installation;
    let (lease, first) = held(installation, "stretched")?;
    // The holder is no candidate of this spec.
    let others = json!({"workloadRef": null, "selector": {"matchLabels": {"app": "another"}}});
    lease.patch(&json!({"spec": {"leaseDuration": "50s", "candidates": others}}))?;
    let named = lease.wait("the mismatch is reported", SOON, |now| now.reason("Ready") == "InvalidSpec")?;
    assert!(named.is_active(), "the term is kept: {named}");
    // The time of more than two renewals.
    throughout(Duration::from_secs(5), |after| {
        let longest = keys(installation, "stretched", "billing").into_iter().flatten().map(|key| key.left).max();
        assert!(longest.is_some_and(|longest| longest <= Duration::from_secs(10)), "after {after:?}: {longest:?}");
        Ok(())
    })?;
    assert!(lease.state()?.is_active(), "the term goes on with the candidates before the edit");
    let before = json!({"workloadRef": first.json()["spec"]["candidates"]["workloadRef"], "selector": null});
    lease.patch(&json!({"spec": {"leaseDuration": "10s", "candidates": before}}))?;
    let mended = lease.wait("corrected", SOON, |now| now.reason("Ready") == "HeldHere")?;
    assert_eq!(mended.token(), first.token());
    Ok(())
}

#[test]
fn a_missing_or_wrong_secret_is_reported_and_can_be_corrected() -> Result<()> {
    let options = InstallationOptions { password: Some("correct".into()), ..options() };
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    let (lease, first) = held(&installation, "secret")?;
    let cluster = installation.control_plane();
    let set = |password: &str| installation.apply(&secret("redis-password", &json!({"password": password})));
    cluster.kubectl(&["delete", "secret", "-n", SYSTEM, "redis-password"])?;
    let named = lease
        .wait("the missing secret is reported", FIRST_ELECTION, |now| now.reason("Ready") == "InvalidReference")?;
    let message = named.message("Ready");
    let says = "secret redislease-system/redis-password, which does not exist";
    assert!(message.contains(says), "{message}");
    let on = ("RedisLease", "billing");
    let event = installation.wait_for_event("secret", on, "InvalidReference", says, SOON)?;
    assert_eq!(event.kind, "Warning", "{event:?}");
    assert!(named.is_active(), "the term is kept: {named}");
    set("wrong")?;
    lease.wait("the secret exists", FIRST_ELECTION, |now| now.reason("Ready") == "HeldHere")?;
    // Open connections stay, and a new one may still use the previous password.
    installation.redis()[0].restart_full()?;
    installation.wait_for_quorum("connected again", SOON, |quorum| quorum.node(0).0 == "Quarantined")?;
    assert_eq!(lease.state()?.token(), first.token());
    // A new process has only the wrong password.
    operator.restart()?;
    let refused = installation.wait_for_quorum("refused", SOON, |quorum| quorum.count("Down") == 3)?;
    assert!(
        refused.node(1).1.contains("set the user name and password in the RedisQuorum's secret"),
        "{}",
        refused.node(1).1
    );
    lease.wait("unknown, then lost", FIRST_ELECTION, |now| now.reason("Active") == "LeaseLost")?;
    set("correct")?;
    let second = lease.wait("held again", FIRST_ELECTION * 2, LeaseState::is_active)?;
    assert!(second.token() > first.token());
    Ok(())
}

#[test]
fn two_clusters_with_the_same_name_do_not_change_each_others_terms() -> Result<()> {
    let _turn = two_control_planes();
    let here = Cluster::with_own_redis(&options())?;
    let (ours, first) = held(&here.installation, "shared")?;
    let there = installation_on(&options(), here.installation.redis().to_vec())?;
    let operator = there.start_operator("operator-there", &[])?;
    there.deployment("shared", "billing", 3)?;
    let theirs = there.lease("shared", "billing", &json!({}))?;
    let passive = theirs.wait("passive", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster")?;
    assert_eq!(passive.reason("Ready"), "HeldByPeerCluster");
    assert_eq!(passive.reason("QuorumHealthy"), "ClusterNameConflict");
    // Restarts and deletions in the other cluster do not affect this one.
    operator.restart()?;
    operator.wait_ready()?;
    theirs.delete()?;
    let theirs = there.lease("shared", "billing", &json!({}))?;
    theirs.wait("passive again", FIRST_ELECTION, |now| now.reason("Active") == "HeldByPeerCluster")?;
    the_term_is_kept(&here.installation, "shared", first.attempt().unwrap_or_default())?;
    assert_eq!(ours.state()?.attempt(), first.attempt());
    assert!(!theirs.state()?.is_active());
    ours.patch(&json!({"spec": {"suspend": true}}))?;
    let second = theirs.wait("active in the other cluster", AFTER_ONE_LEASE * 2, LeaseState::is_active)?;
    assert!(second.token() > first.token(), "both clusters use one counter");
    assert!(!ours.state()?.is_active());
    Ok(())
}

/// A RedisQuorum of the installation's servers with these settings.
pub fn quorum(installation: &Installation, name: &str, settings: &Value) -> Value {
    let mut spec = settings.clone();
    spec["nodes"] = nodes(installation.redis().iter().map(|server| server.address()));
    redis_quorum(name, &spec)
}

#[test]
fn two_redisquorums_of_the_same_servers_and_prefix_each_have_a_leader() -> Result<()> {
    let installation = &shared().installation;
    let settings = json!({"keyPrefix": "twins", "maxLeaseDuration": "10s"});
    for name in ["twin", "copy"] {
        installation.apply(&quorum(installation, name, &settings))?;
    }
    let held = |name: &str| held_by(installation, name, 1, &json!({"quorumRef": {"name": name}}));
    let ((_, twin), (_, copy)) = (held("twin")?, held("copy")?);
    assert_ne!(twin.token(), copy.token(), "one counter");
    Ok(())
}

/// The number of nodes that have the lease's key with this prefix.
fn found(installation: &Installation, prefix: &str, namespace: &str) -> Result<usize> {
    nodes_with(installation, &format!("{prefix}:lock:{namespace}/billing"))
}

#[test]
fn after_the_redisquorum_is_replaced_terms_end_on_the_old_keys_first() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    let under = |prefix: &str| quorum(installation, "anew", &json!({"keyPrefix": prefix, "maxLeaseDuration": "10s"}));
    installation.apply(&under("before"))?;
    let (lease, first) = held_by(installation, "anew", 3, &json!({"quorumRef": {"name": "anew"}}))?;
    assert!(found(installation, "before", "anew")? >= 2);

    cluster.kubectl(&["delete", "redisquorum", "anew", "-n", SYSTEM])?;
    let still =
        lease.wait("the missing RedisQuorum is reported", SOON, |now| now.reason("Ready") == "InvalidReference")?;
    assert!(still.is_active() && still.attempt() == first.attempt(), "the term is kept: {still}");
    installation.apply(&under("after"))?;
    lease.wait("the term ends", SOON, |now| now.reason("Active") == "Stopping")?;
    assert_eq!(found(installation, "after", "anew")?, 0);
    let second = lease
        .wait("held on the new quorum", FIRST_ELECTION * 2, |now| now.is_active() && now.token() > first.token())?;
    assert_eq!(second.json()["status"]["history"][0]["reason"], "QuorumChanged");
    assert_eq!(found(installation, "before", "anew")?, 0, "the old keys ended before the new term began");
    assert!(found(installation, "after", "anew")? >= 2);
    Ok(())
}

#[test]
fn a_wrong_address_that_leads_to_the_server_of_another_node_costs_one_vote() -> Result<()> {
    let installation = &shared().installation;
    let mut object = quorum(installation, "astray", &json!({"keyPrefix": "astray", "maxLeaseDuration": "10s"}));
    installation.apply(&object)?;
    let (lease, first) = held_by(installation, "astray", 1, &json!({"quorumRef": {"name": "astray"}}))?;
    let get = ["get", "redisquorum", "astray", "--namespace", SYSTEM, "--output=jsonpath={.status.nodes}"];
    let shown = |part: &'static str, count: usize| {
        installation.wait_for(part, SOON, || {
            let nodes = installation.control_plane().kubectl(&get)?;
            if nodes.matches(part).count() == count { Ok(()) } else { Err(nodes) }
        })
    };
    shown(r#""state":"Up""#, 3)?;

    let correct = object["spec"]["nodes"][2]["address"].clone();
    object["spec"]["nodes"][2]["address"] = json!(format!("localhost:{}", installation.redis()[0].address().port()));
    installation.apply(&object)?;
    shown("leads to the same server as node redis-0", 1)?;
    throughout(LONGER_THAN_A_LEASE, |after| {
        assert!(found(installation, "astray", "astray")? >= 2, "after {after:?}");
        Ok(())
    })?;
    let kept = lease.state()?;
    assert!(kept.is_active() && kept.token() == first.token(), "{kept}");

    object["spec"]["nodes"][2]["address"] = correct;
    installation.apply(&object)?;
    shown(r#""state":"Up""#, 3)?;
    assert_eq!(lease.state()?.token(), first.token());
    Ok(())
}

#[test]
fn an_edit_of_the_command_timeout_reaches_what_is_open() -> Result<()> {
    let installation = &shared().installation;
    let late = |server: &Arc<RedisServer>| Proxy::with_late_replies(server.address(), Duration::from_millis(150));
    let proxies = installation.redis().iter().map(late).collect::<Result<Vec<_>>>()?;
    let addresses = nodes(proxies.iter().map(Proxy::address));
    let apply = |command_timeout| {
        let spec = json!({
            "nodes": addresses, "keyPrefix": "slow", "maxLeaseDuration": "10s", "commandTimeout": command_timeout,
        });
        installation.apply(&redis_quorum("slow", &spec))
    };
    apply("100ms")?;
    installation.deployment("slow", "billing", 1)?;
    let lease = installation.lease("slow", "billing", &json!({"quorumRef": {"name": "slow"}}))?;
    let get = ["get", "redisquorum", "slow", "--namespace", SYSTEM, "--output=jsonpath={.status.nodes[*].message}"];
    installation.wait_for("all answers are late", SOON, || {
        let shown = installation.control_plane().kubectl(&get)?;
        if shown.matches("100 ms").count() == 3 { Ok(()) } else { Err(shown) }
    })?;
    lease.wait("nobody can decide", SOON, |now| !now.is_active() && now.reason("Ready") == "QuorumUnavailable")?;
    // No replica restarts.
    apply("600ms")?;
    let first = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    the_status_is_kept(&lease, &first, LONGER_THAN_A_LEASE)
}
