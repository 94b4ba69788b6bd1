//! Tenants of one quorum: a RedisQuorum that allows the leases of some namespaces only, and a tenant with many leases.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{Installation, InstallationOptions, LeaseState, Result, SYSTEM};
use serde_json::{Value, json};

use crate::holder::held;
use crate::support::{
    AFTER_ONE_LEASE, Cluster, FIRST_ELECTION, SOON, change_rules, count, keys, no_key_is_left, no_pod_is_active,
    nodes_with, options, set_rules, the_term_is_kept, throughout,
};

fn label(installation: &Installation, namespace: &str, label: &str) -> Result<()> {
    installation.control_plane().kubectl(&["label", "namespace", namespace, label, "--overwrite"]).map(drop)
}

fn only_team_shop() -> InstallationOptions {
    let quorum = json!({"allowedNamespaces": {"matchLabels": {"team": "shop"}}});
    InstallationOptions { quorum, password: Some("secret".into()), ..options() }
}

fn the_term_of_a_namespace_that_loses_its_label_is_sealed_and_expires(installation: &Installation) -> Result<()> {
    installation.deployment("shop", "billing", 1)?;
    label(installation, "shop", "team=shop")?;
    let (lease, first) = held(installation, "shop")?;
    label(installation, "shop", "team=none")?;
    let ended = lease.wait("the term has ended", SOON, |now| !now.is_active())?;
    assert_eq!(ended.reason("Ready"), "InvalidReference");
    // It is not released: the pod may still run.
    installation.wait_for("sealed on all nodes", SOON, || {
        let keys = keys(installation, "shop", "billing");
        let sealed = count(&keys, first.attempt().unwrap_or_default(), "s");
        if sealed == 3 { Ok(()) } else { Err(format!("{keys:?}")) }
    })?;
    no_pod_is_active(installation, &lease)?;
    no_key_is_left(installation, "shop")?;
    throughout(SOON, |after| {
        assert!(!lease.state()?.is_active(), "no term begins; after {after:?}");
        Ok(())
    })?;
    let history = lease.state()?.json()["status"]["history"][0].clone();
    assert_eq!(history["reason"], json!("NamespaceNotAllowed"), "{history}");
    label(installation, "shop", "team=shop")?;
    let second = lease.wait("held again", AFTER_ONE_LEASE, LeaseState::is_active)?;
    assert!(second.token() > first.token());
    Ok(())
}

#[test]
fn a_namespace_has_leases_only_while_it_is_allowed_and_learns_nothing_before() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&only_team_shop())?;
    installation.deployment("other", "billing", 2)?;
    let refused = installation.lease("other", "billing", &json!({}))?;
    let missing = installation.lease("other", "missing", &json!({"quorumRef": {"name": "nowhere"}}))?;
    let refused = refused.wait("refused", FIRST_ELECTION, |now| now.reason("Ready") == "InvalidReference")?;
    let missing = missing.wait("missing", SOON, |now| now.reason("Ready") == "InvalidReference")?;
    assert_eq!(refused.message("Ready").replace("/default,", "/nowhere,"), missing.message("Ready"));
    let events = installation.control_plane().get("/apis/events.k8s.io/v1/namespaces/other/events")?;
    let known = format!("{} {}", refused.json(), events.unwrap_or_default());
    let secrets = installation.redis().iter().map(|server| server.address().to_string());
    for secret in secrets.chain(["redis-password".to_owned(), "fingerprint".to_owned(), "redis-0".to_owned()]) {
        assert!(!known.contains(&secret), "{secret} is in {known}");
    }
    assert_eq!(nodes_with(&installation, "redislease:lock:other/billing")?, 0);
    // The name of a quorum that a tenant invents is a label of its own lease, and makes no series of a quorum.
    operator.wait_for_metrics(SOON, |page| {
        let named: Vec<&str> = page.text().lines().filter(|line| line.contains("nowhere")).collect();
        let (of_lease, of_quorum): (Vec<&str>, _) = named.iter().partition(|line| line.contains("lease=\"missing\""));
        assert_eq!(of_quorum, Vec::<&str>::new());
        if of_lease.is_empty() { Err("no series of the lease".to_owned()) } else { Ok(()) }
    })?;
    label(&installation, "other", "team=shop")?;
    installation.find_lease("other", "billing").wait("allowed", FIRST_ELECTION, LeaseState::is_active)?;
    the_term_of_a_namespace_that_loses_its_label_is_sealed_and_expires(&installation)?;

    // The quorum denies it again.
    let spec = json!({"spec": {"allowedNamespaces": {"matchLabels": {"team": "none"}}}}).to_string();
    let quorum = ["patch", "redisquorum", "default", "-n", SYSTEM, "--type=merge", "--patch", &spec];
    installation.control_plane().kubectl(&quorum)?;
    installation
        .find_lease("other", "billing")
        .wait("denied", AFTER_ONE_LEASE, |now| !now.is_active() && now.reason("Ready") == "InvalidReference")?;
    Ok(())
}

#[test]
fn while_labels_are_unknown_terms_continue_and_none_begins() -> Result<()> {
    let Cluster { operator, installation } = Cluster::with_own_redis(&only_team_shop())?;
    installation.deployment("unknown", "billing", 1)?;
    label(&installation, "unknown", "team=shop")?;
    let (lease, first) = held(&installation, "unknown")?;
    let whole = change_rules(&installation, |rule| {
        if rule["resources"] == json!(["namespaces"]) {
            rule["resourceNames"] = json!(["kube-system"]);
            rule["verbs"] = json!(["get"]);
        }
    })?;
    operator.restart()?;
    let attempt = first.attempt().unwrap_or_default();
    the_term_is_kept(&installation, "unknown", attempt)?;
    assert!(lease.state()?.is_active());
    let new = installation.lease(
        "unknown",
        "new",
        &json!({"candidates": {"selector": {"matchLabels": {"app": "billing"}}}, "keys": ["new"]}),
    )?;
    let waiting = new.wait("it waits", FIRST_ELECTION, |now| now.reason("Ready") == "QuorumUnavailable")?;
    assert!(waiting.message("Ready").contains("has not read the labels of this namespace"), "{waiting}");
    set_rules(&installation, &whole)?;
    new.wait("held", FIRST_ELECTION * 2, LeaseState::is_active)?;
    assert_eq!(lease.state()?.token(), first.token());
    Ok(())
}

/// The least TTL, on each node, of the neighbour's key: its lease of 15 s, less one renewInterval of 2 s, less 3 s for a busy
/// machine.
const LEAST: Duration = Duration::from_secs(10);
/// How many leases the noisy tenant has. Each costs the API server five writes. `REDISLEASE_TEST_LEASES` selects another number:
/// `make nightly` has 2,000, which slow down the tests beside this one.
const MANY: u16 = 400;
/// How long the noisy tenant is watched at most, for each of its leases.
const NOISE: Duration = Duration::from_millis(112);

/// Creates leases of one tenant over the same pods, several at a time, until `done`.
pub fn create_many(installation: &Installation, namespace: &str, count: u16, done: &AtomicBool) -> Result<()> {
    const AT_ONCE: u16 = 4;
    const IN_ONE_CALL: usize = 20;
    let lease = |number: u16| {
        json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisLease",
            "metadata": {"name": format!("lease-{number:04}"), "namespace": namespace},
            "spec": {
                "candidates": {"selector": {"matchLabels": {"app": "billing"}}},
                "leaseDuration": "15s",
                "renewInterval": "3s",
                "gracePeriod": "3s",
                "election": {"unhealthyAfter": "2s"},
            },
        })
    };
    thread::scope(|scope| {
        let part = |first: u16| {
            let items: Vec<Value> = (first..count).step_by(usize::from(AT_ONCE)).map(lease).collect();
            items.chunks(IN_ONE_CALL).filter(|_| !done.load(Ordering::SeqCst)).try_for_each(|items| {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
                installation.control_plane().kubectl_with_input(&["create", "--filename=-"], &list).map(drop)
            })
        };
        let parts: Vec<_> = (0..AT_ONCE).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().try_for_each(|part| part.join().expect("no panic"))
    })
}

/// Changes the readiness of one pod after the other until `done`. Returns the number of changes.
fn change_readiness(installation: &Installation, namespace: &str, done: &AtomicBool) -> Result<usize> {
    let names = ["get", "pods", "--namespace", namespace, "--output=jsonpath={.items[*].metadata.name}"];
    let names = installation.control_plane().kubectl(&names)?;
    let pods: Vec<&str> = names.split(' ').collect();
    let mut changes = 0;
    for (round, pod) in pods.iter().cycle().enumerate() {
        if done.load(Ordering::SeqCst) {
            break;
        }
        installation.control_plane().set_pod_ready(namespace, pod, round / pods.len() % 2 == 1)?;
        changes += 1;
    }
    Ok(changes)
}

/// One tenant creates hundreds of leases over pods whose readiness changes all the time.
#[test]
fn a_tenant_with_hundreds_of_leases_delays_no_renewal_of_another_tenant() -> Result<()> {
    let options = InstallationOptions { quorum: json!({"maxLeaseDuration": "15s"}), ..options() };
    let Cluster { operator, installation } = Cluster::with_own_redis(&options)?;
    installation.control_plane().not_again();
    installation.deployment("quiet", "billing", 2)?;
    let durations = json!({"leaseDuration": "15s", "renewInterval": "2s"});
    let lease = installation.lease("quiet", "billing", &durations)?;
    let held = lease.wait("active", FIRST_ELECTION + FIRST_ELECTION, LeaseState::is_active)?;
    installation.deployment("noisy", "billing", 2)?;

    let many = env::var("REDISLEASE_TEST_LEASES").ok().and_then(|leases| leases.parse().ok()).unwrap_or(MANY);
    let noise = NOISE * u32::from(many);
    let done = AtomicBool::new(false);
    let attempt = held.attempt().unwrap_or_default();
    thread::scope(|scope| {
        let created = scope.spawn(|| {
            let created = create_many(&installation, "noisy", many, &done);
            done.fetch_or(created.is_err(), Ordering::SeqCst);
            created
        });
        let flaps = scope.spawn(|| change_readiness(&installation, "noisy", &done));
        // Ends the other threads also after a failed assertion.
        let _ends = Ends(&done);
        let began = Instant::now();
        let (mut lowest, mut held_by_noisy, mut looked) = (Duration::MAX, 0.0, began);
        while began.elapsed() < noise && held_by_noisy < f64::from(many) && !done.load(Ordering::SeqCst) {
            let keys = keys(&installation, "quiet", "billing");
            assert!(count(&keys, attempt, "t") >= 2, "after {:?}: {keys:?}", began.elapsed());
            lowest = keys.iter().flatten().map(|key| key.left).min().unwrap_or_default().min(lowest);
            assert!(lowest >= LEAST, "after {:?}: {keys:?}", began.elapsed());
            if looked.elapsed() > Duration::from_secs(2) {
                looked = Instant::now();
                let of_noisy = [("lease_namespace", "noisy")];
                held_by_noisy = operator.metrics()?.value("redislease_lease_held", &of_noisy).unwrap_or_default();
            }
            thread::sleep(Duration::from_millis(50));
        }
        done.store(true, Ordering::SeqCst);
        let took = began.elapsed();
        created.join().expect("no panic")?;
        let flaps = flaps.join().expect("no panic")?;
        println!("{held_by_noisy} of {many} leases held after {took:.1?} and {flaps} changes; lowest TTL {lowest:?}");
        // On a slow machine the elections take longer than this test.
        assert!(held_by_noisy >= f64::from(many) / 20.0 && flaps > 10, "{held_by_noisy} held, {flaps} changes");
        let now = lease.state()?;
        assert_eq!((now.attempt(), now.token(), now.is_active()), (held.attempt(), held.token(), true), "{now}");
        Ok(())
    })
}

/// Sets the flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
