use core::time::Duration;

use proptest::prelude::*;
use redislease_core::backoff::Backoff;
use serde_json::{Value, json};

use super::*;
use crate::api::RedisLease;
use crate::samples::{self, quorum, valid_quorum};

fn lease(spec: &Value) -> RedisLease {
    samples::lease("shop", "billing", spec)
}

fn valid_lease(spec: &Value) -> ValidLease {
    ValidLease::try_from(&lease(spec)).expect("the lease is valid")
}

#[test]
fn absent_fields_have_their_defaults() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"});
    let lease = valid_lease(&json!({"candidates": {"workloadRef": deployment}}));
    assert_eq!(
        lease,
        ValidLease {
            namespace: "shop".into(),
            name: "billing".into(),
            keys: vec!["billing".into()],
            candidates: Candidates::Workload(Workload { kind: WorkloadKind::Deployment, name: "billing".into() }),
            lease_duration: Duration::from_secs(30),
            renew_interval: Duration::from_secs(5),
            grace_period: Duration::from_secs(10),
            retry: Backoff::exponential(100, 10_000, 10),
            readiness: Readiness { required: true, unhealthy_after: Duration::from_secs(30) },
            gated: false,
            cluster: None,
            suspended: false,
        }
    );
    assert_eq!(lease.stop_budget(), Duration::from_secs(11));

    let quorum = valid_quorum(&json!({}));
    assert_eq!(quorum.key_prefix, "redislease");
    assert_eq!(quorum.max_lease, Duration::from_mins(1));
    assert_eq!(quorum.command_timeout, Duration::from_millis(500));
    let stored = valid_quorum(&json!({"commandTimeout": "1ms"}));
    assert_eq!(stored.command_timeout, Duration::from_millis(10), "an earlier version accepted it");
    let stored = valid_quorum(&json!({"commandTimeout": "1h"}));
    assert_eq!(stored.command_timeout, Duration::from_secs(5), "an earlier version accepted it");
    assert_eq!(quorum.secret, None);
    assert_eq!(lease.check_against(&quorum), Ok(()));
}

#[test]
fn present_fields_are_parsed() {
    let lease = valid_lease(&json!({
        "keys": ["b", "a"],
        "candidates": {"selector": {"matchLabels": {"app": "billing", "notredislease.io/lease": "x", "redislease.io": "y"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x"]}]}},
        "retry": {"strategy": "None"},
        "election": {"requireReady": false},
    }));
    assert_eq!(lease.keys, ["a", "b"], "keys are sorted");
    match &lease.candidates {
        Candidates::Selector(selector) => {
            let text = selector.to_string();
            assert!(text.contains("app=billing"), "{text}");
            assert!(text.contains("tier in (x)"), "{text}");
        }
        other @ Candidates::Workload(_) => panic!("{other:?}"),
    }
    assert_eq!(lease.retry.limit, Some(1));
    assert_eq!(lease.readiness, Readiness { required: false, unhealthy_after: Duration::from_secs(30) });

    let named = valid_lease(&json!({"election": {"unhealthyAfter": "2h"}}));
    assert_eq!(named.readiness, Readiness { required: true, unhealthy_after: Duration::from_hours(2) });
    let both = valid_lease(&json!({"election": {"requireReady": false, "unhealthyAfter": "2h"}}));
    assert_eq!(both.readiness, Readiness { required: false, unhealthy_after: Duration::from_hours(2) });
}

#[test]
fn nodes_are_sorted_and_addresses_normalized() {
    let quorum = valid_quorum(&json!({"nodes": [
        {"name": "c", "address": "redis-c:6379"},
        {"name": "a", "address": "redis-a:6379"},
        {"name": "b", "address": "[FD00::0:1]:6379"},
    ]}));
    let nodes: Vec<_> = quorum.nodes.iter().map(|node| format!("{} {}", node.name, node.address)).collect();
    assert_eq!(nodes, ["a redis-a:6379", "b [fd00::1]:6379", "c redis-c:6379"]);
    assert_eq!(quorum.nodes[1].address.host, "fd00::1");
}

#[test]
fn invalid_lease_error_names_field_and_valid_values() {
    let duration = "longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms";
    for (spec, says) in [
        (json!({"leaseDuration": "soon"}), format!("spec.leaseDuration is \"soon\" and must be a duration {duration}")),
        (json!({"renewInterval": "0s"}), format!("spec.renewInterval is \"0s\" and must be a duration {duration}")),
        (json!({"gracePeriod": "61m"}), format!("spec.gracePeriod is \"61m\" and must be a duration {duration}")),
        (json!({"leaseDuration": "25s"}), "spec.leaseDuration is \"25s\" and must be at least 3 * renewInterval (5s) + gracePeriod (10s) + 1s: \
            the old holder must stop before another pod starts".into()),
        (json!({"keys": ["a/b"]}), "spec.keys is \"a/b\" and must consist of 1 to 128 letters, digits, '.', '_', ':' and '-'; '/' is not allowed".into()),
        (json!({"keys": ["a", "a"]}), "spec.keys is \"a, a\" and must be unique".into()),
        (json!({"quorumRef": {"name": ""}}), "spec.quorumRef.name is \"\" and must be the name of a RedisQuorum".into()),
        (json!({"candidates": {"selector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}}}),
            "and must use the operators In and NotIn with values, or Exists and DoesNotExist without values".into()),
        (json!({"candidates": {"selector": {"matchExpressions": [{"key": "lease.redislease.io/billing", "operator": "DoesNotExist"}]}}}),
            "spec.candidates.selector is \"lease.redislease.io/billing\" and must not use a label key under redislease.io: the operator writes these \
             labels, so its own writes would change which pods are candidates".into()),
        (json!({"candidates": {"selector": {"matchLabels": {"app": "billing", "redislease.io/lease": "billing"}}}}),
            "spec.candidates.selector is \"redislease.io/lease\" and must not use a label key under redislease.io: the operator writes these \
             labels, so its own writes would change which pods are candidates".into()),
        (json!({"candidates": {}}), "spec.candidates is \"\" and must have exactly one of selector and workloadRef".into()),
        (json!({"candidates": {"workloadRef": {"apiVersion": "v1", "kind": "Pod", "name": "x"}}}),
            "spec.candidates.workloadRef is \"v1 Pod\" and must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job or CronJob of batch/v1".into()),
        (json!({"retry": {"jitter": -1}}), "spec.retry.jitter is \"-1\" and must be a percentage from 0 to 100".into()),
        (json!({"retry": {"limit": 0}}), "spec.retry.limit is \"0\" and must be at least 1, or absent".into()),
        (json!({"retry": {"strategy": "None", "limit": 2}}), "spec.retry.limit is \"2\" and must be absent or 1 if retry.strategy is None, because None pauses after each attempt".into()),
        (json!({"retry": {"minDelay": "1ms"}}), "spec.retry.minDelay is \"1ms\" and must be at least 50ms".into()),
        (json!({"retry": {"maxDelay": "500ms"}}), "spec.retry.maxDelay is \"500ms\" and must be at least 1s".into()),
        (json!({"retry": {"minDelay": "11s"}}), "spec.retry.minDelay is \"11s\" and must be at most retry.maxDelay (10s)".into()),
    ] {
        let error = ValidLease::try_from(&lease(&spec)).expect_err("an invalid lease");
        let shown = error.to_string();
        assert!(shown.starts_with("RedisLease shop/billing: spec."), "{shown}");
        assert!(shown.ends_with(&says), "{shown}\ndoes not end with\n{says}");
    }
}

#[test]
fn invalid_quorum_error_names_field_and_valid_values() {
    let node = |name: &str, address: &str| json!({"name": name, "address": address});
    for (spec, says) in [
        (json!({"nodes": []}), "spec.nodes is \"0 nodes\" and must have 1 to 9 entries"),
        (
            json!({"nodes": [node("a", "h:1")]}),
            "spec.nodes is \"1 node\" and must have three entries, because one node tolerates no failure; for tests set allowSingleNode: true",
        ),
        (
            json!({"nodes": [node("a", "h:1"), node("a", "i:1")]}),
            "spec.nodes is \"a=h:1, a=i:1\" and must have unique names",
        ),
        (
            json!({"nodes": [node("a", "[::1]:1"), node("b", "[0::1]:1")]}),
            "spec.nodes is \"a=[::1]:1, b=[::1]:1\" and must have unique addresses: two nodes on one server fail together",
        ),
        (
            json!({"nodes": [node("a:1", "h:1"), node("b", "i:1")]}),
            "spec.nodes[].name is \"a:1\" and must consist of lower-case letters, digits and '-', at most 63 of them, and begin and end with a letter or digit",
        ),
        (
            json!({"nodes": [node("a", "h:99999"), node("b", "i:1")]}),
            "spec.nodes[].address is \"h:99999\" and must be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535",
        ),
        (
            json!({"keyPrefix": "a b"}),
            "spec.keyPrefix is \"a b\" and must consist of letters, digits, '.', '_' and '-', at most 63 of them, and begin and end with a letter or digit",
        ),
        (
            json!({"maxLeaseDuration": "2h"}),
            "spec.maxLeaseDuration is \"2h\" and must be a duration from 1s to 1h, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms",
        ),
        (
            json!({"maxLeaseDuration": "999ms"}),
            "spec.maxLeaseDuration is \"999ms\" and must be a duration from 1s to 1h, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms",
        ),
        (
            json!({"tls": {"secretRef": {"name": "a/b"}}}),
            "spec.tls.secretRef.name is \"a/b\" and must be the name of a Secret",
        ),
        (
            json!({"tls": {"secretRef": {"name": "t"}, "serverName": "redis:6379"}}),
            "spec.tls.serverName is \"redis:6379\" and must be a DNS name or an IP address, without a port",
        ),
        (
            json!({"allowedNamespaces": {"matchExpressions": [{"key": "team", "operator": "NotIn"}]}}),
            "spec.allowedNamespaces.matchExpressions is \"team NotIn\" and must use the operators In and NotIn with values, or Exists and DoesNotExist without values",
        ),
        (
            json!({"auth": {"secretRef": {"name": ""}}}),
            "spec.auth.secretRef.name is \"\" and must be the name of a Secret",
        ),
    ] {
        let error = ValidQuorum::try_from(&quorum(&spec)).expect_err("an invalid quorum");
        assert_eq!(error.to_string(), format!("RedisQuorum redislease-system/default: {says}"));
    }
}

#[test]
fn lease_is_checked_against_its_quorum() {
    let lease = |spec: Value| valid_lease(&spec);
    let longest = lease(json!({"leaseDuration": "60s"}));
    let longer = lease(json!({"leaseDuration": "1m1ms"}));
    let quorum = valid_quorum(&json!({}));
    assert_eq!(longest.check_against(&quorum), Ok(()));
    assert_eq!(
        longer.check_against(&quorum),
        Err("RedisLease shop/billing: spec.leaseDuration (1m1ms) must be at most spec.maxLeaseDuration (1m) of \
             RedisQuorum redislease-system/default: use a shorter leaseDuration or another quorum"
            .into())
    );

    let slow = valid_quorum(&json!({"commandTimeout": "2s"}));
    assert_eq!(lease(json!({"renewInterval": "4s"})).check_against(&slow), Ok(()));
    let often = lease(json!({"renewInterval": "3s999ms"}));
    assert_eq!(
        often.check_against(&slow),
        Err("RedisLease shop/billing: spec.renewInterval (3s999ms) must be at least 2 * spec.commandTimeout (2s) of \
             RedisQuorum redislease-system/default: use a longer renewInterval or a shorter commandTimeout"
            .into())
    );
}

#[test]
fn majority_counts_configured_nodes() {
    for (nodes, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (8, 5), (9, 5)] {
        let nodes: Vec<_> =
            (0..nodes).map(|i| json!({"name": format!("n{i}"), "address": format!("n{i}:1")})).collect();
        let quorum = valid_quorum(&json!({"nodes": nodes, "allowSingleNode": true}));
        assert_eq!(quorum.majority(), majority, "of {}", quorum.nodes.len());
    }
}

/// Redis servers store the fingerprint. If it changes, all nodes of existing quorums become Misconfigured.
#[test]
fn fingerprint_format_is_stable() {
    let base = valid_quorum(&json!({}));
    // Computed by an independent implementation from "a,b,c;q=2;max=60000ms;prefix=redislease".
    assert_eq!(base.fingerprint(), "aae0c766c72c4ddd");

    let same = valid_quorum(&json!({"maxLeaseDuration": "1m", "commandTimeout": "1s",
        "nodes": [{"name": "c", "address": "x:1"}, {"name": "a", "address": "y:1"}, {"name": "b", "address": "z:1"}]}));
    assert_eq!(same.fingerprint(), base.fingerprint());

    for other in [
        json!({"maxLeaseDuration": "61s"}),
        json!({"keyPrefix": "x"}),
        json!({"nodes": [{"name": "a", "address": "x:1"}, {"name": "b", "address": "y:1"}, {"name": "d", "address": "z:1"}]}),
        json!({"nodes": [{"name": "a", "address": "x:1"}, {"name": "b", "address": "y:1"}]}),
    ] {
        let other = valid_quorum(&other).fingerprint();
        assert_ne!(other, base.fingerprint());
        assert_eq!(other.len(), 16);
        assert!(other.bytes().all(|b| b.is_ascii_hexdigit()), "{other}");
    }
}

proptest! {
    /// Any object is parsed into a value or into an error.
    #[test]
    fn parsing_a_lease_never_panics(
        text in "[0-9hms]{0,30}|\\PC{0,30}",
        keys in proptest::option::of(proptest::collection::vec("\\PC{0,140}", 0..10)),
        limit in proptest::option::of(any::<i32>()),
        jitter: i32,
    ) {
        let mut lease = lease(&json!({}));
        lease.spec.keys = keys;
        lease.spec.retry.limit = limit;
        lease.spec.retry.jitter = jitter;
        lease.spec.grace_period = crate::api::Duration::new(text.clone());
        lease.metadata.name = Some(text);
        if let Ok(valid) = ValidLease::try_from(&lease) {
            prop_assert!(!valid.keys.is_empty());
            prop_assert!(valid.lease_duration >= 3 * valid.renew_interval + valid.stop_budget());
        }
    }

    #[test]
    fn parsing_a_quorum_never_panics(name in "[a-z0-9-]{0,4}|\\PC{0,9}", address in "[a-z]?:[0-9]{0,6}|\\[[0-9a-f:]{0,9}\\]:1|\\PC{0,30}") {
        let mut quorum = quorum(&json!({}));
        quorum.spec.nodes[0].name = name;
        quorum.spec.nodes[0].address = address;
        if let Ok(valid) = ValidQuorum::try_from(&quorum) {
            prop_assert_eq!(valid.nodes.len(), 3);
            prop_assert!(valid.nodes.is_sorted());
        }
    }
}
