//! Admission cases of `RedisQuorum`.

use serde_json::{Value, json};

use super::case::{Case, nodes, quorum};

const LONGEST: &str =
    "maxLeaseDuration must be a duration from 1s to 1h, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms";
const TIMEOUT: &str =
    "commandTimeout must be a duration from 10ms to 5s, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms";

fn spec(patch: &Value) -> Value {
    quorum(json!({"spec": patch}))
}

pub(super) fn creations() -> Vec<Case> {
    const PREFIX: &str =
        "keyPrefix must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or digit";
    vec![
        Case::good("three nodes", quorum(json!({}))),
        Case::good(
            "everything a user may write about a quorum",
            spec(&json!({
                "nodes": nodes(&["10.0.0.1:1", "[fd00::1]:65535", "redis-c.redis.svc.cluster.local:6379", "d:1", "e:1"]),
                "keyPrefix": "team-a.leases_2", "maxLeaseDuration": "1h", "commandTimeout": "1s500ms",
                "auth": {"secretRef": {"name": "redis"}}, "allowSingleNode": false,
                "tls": {"secretRef": {"name": "redis-tls"}, "serverName": "redis.example.com"},
                "allowedNamespaces": {"matchLabels": {"team": "shop"}, "matchExpressions": [{"key": "stage", "operator": "Exists"}]},
            })),
        ),
        Case::bad("a key prefix with a colon", spec(&json!({"keyPrefix": "a:b"})), "spec.keyPrefix", PREFIX),
        Case::bad("an empty key prefix", spec(&json!({"keyPrefix": ""})), "spec.keyPrefix", PREFIX),
        Case::bad(
            "a longest lease of more than an hour",
            spec(&json!({"maxLeaseDuration": "61m"})),
            "spec.maxLeaseDuration",
            LONGEST,
        ),
        Case::bad(
            "a longest lease of less than a second",
            spec(&json!({"maxLeaseDuration": "999ms"})),
            "spec.maxLeaseDuration",
            LONGEST,
        ),
        Case::bad(
            "a timeout that is not a duration",
            spec(&json!({"commandTimeout": "500"})),
            "spec.commandTimeout",
            TIMEOUT,
        ),
        Case::not_a_dns_name(
            "a secret in another namespace",
            spec(&json!({"auth": {"secretRef": {"name": "vault/redis"}}})),
            "spec.auth.secretRef.name",
        ),
        Case::malformed(
            "a secret without a name",
            spec(&json!({"auth": {"secretRef": {"name": ""}}})),
            "spec.auth.secretRef.name",
            "should be at least 1 chars long",
        ),
    ]
}

/// The number, names and addresses of nodes.
pub(super) fn node_lists() -> Vec<Case> {
    const ADDRESS: &str =
        "a node address must be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535";
    const NAME: &str =
        "a node name must consist of lower-case letters, digits and '-', and begin and end with a letter or digit";
    let at = |address: &str| spec(&json!({"nodes": nodes(&[address, "redis-b:6379", "redis-c:6379"])}));
    let named = |name: &str| {
        spec(&json!({"nodes": [{"name": name, "address": "redis-x:1"}, {"name": "b", "address": "redis-b:1"}]}))
    };
    let many: Vec<String> = (1..=10).map(|i| format!("{}:6379", "h".repeat(240) + &i.to_string())).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    vec![
        Case::good("nine nodes", spec(&json!({"nodes": nodes(&many[..9])}))),
        Case::malformed("ten nodes", spec(&json!({"nodes": nodes(&many)})), "spec.nodes", "must have at most 9 items"),
        Case::malformed("no nodes", spec(&json!({"nodes": []})), "spec.nodes", "should have at least 1 items"),
        Case::good("two nodes", spec(&json!({"nodes": nodes(&["redis-a:1", "redis-b:1"])}))),
        Case::good(
            "one node with allowSingleNode",
            spec(&json!({"nodes": nodes(&["redis-a:1"]), "allowSingleNode": true})),
        ),
        Case::bad(
            "one node",
            spec(&json!({"nodes": nodes(&["redis-a:1"])})),
            "spec",
            "nodes has one entry, which tolerates no failure: use three nodes, or set allowSingleNode: true for tests",
        ),
        Case::malformed("a name twice", named("b"), "spec.nodes[1]", "Duplicate value: {\"name\":\"b\"}"),
        Case::bad(
            "an address twice",
            at("redis-b:6379"),
            "spec.nodes",
            "node addresses must be unique: two nodes on one server fail together",
        ),
        Case::bad("a name in upper case", named("A"), "spec.nodes[0].name", NAME),
        Case::bad("a name with a colon", named("a:1"), "spec.nodes[0].name", NAME),
        Case::bad("a name that ends in a dash", named("a-"), "spec.nodes[0].name", NAME),
        Case::malformed(
            "a name of 64 characters for a node",
            named(&"n".repeat(64)),
            "spec.nodes[0].name",
            "may not be more than 63 bytes",
        ),
        Case::bad("an address without a port", at("redis-a"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an address without a host", at(":6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an address with a scheme", at("redis://redis-a:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an address with port 0", at("redis-a:0"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an address with port 65536", at("redis-a:65536"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an IPv6 address without brackets", at("fd00::1:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("brackets around a name", at("[redis-a]:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("brackets around half an address", at("[1:2]:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("an empty name of a node", named(""), "spec.nodes[0].name", NAME),
        Case::bad("an empty address", at(""), "spec.nodes[0].address", ADDRESS),
    ]
}

/// TLS and allowed namespaces.
pub(super) fn access() -> Vec<Case> {
    vec![
        Case::good(
            "TLS with an IP address",
            spec(&json!({"tls": {"secretRef": {"name": "t"}, "serverName": "fd00::1"}})),
        ),
        Case::good("every namespace", spec(&json!({"allowedNamespaces": {}}))),
        Case::bad(
            "a server name with a port",
            spec(&json!({"tls": {"secretRef": {"name": "t"}, "serverName": "redis:6379"}})),
            "spec.tls.serverName",
            "tls.serverName must be a DNS name or an IP address, such as redis.example.com, without a port",
        ),
        Case::not_a_dns_name(
            "certificates in another namespace",
            spec(&json!({"tls": {"secretRef": {"name": "vault/redis"}}})),
            "spec.tls.secretRef.name",
        ),
        Case::malformed("TLS without a secret", spec(&json!({"tls": {}})), "spec.tls.secretRef", "Required value"),
        Case::bad(
            "a namespace selector without values",
            spec(&json!({"allowedNamespaces": {"matchExpressions": [{"key": "team", "operator": "In"}]}})),
            "spec.allowedNamespaces",
            "allowedNamespaces.matchExpressions must use the operators In and NotIn with values, or Exists and DoesNotExist without values",
        ),
    ]
}

pub(super) fn changes() -> Vec<Case> {
    const NODES: &str = "nodes cannot be added, removed or renamed, because an old and a new majority might share no node: create another RedisQuorum";
    let three = || quorum(json!({}));
    let at = |addresses: &[&str]| spec(&json!({"nodes": nodes(addresses)}));
    let longest = |text: &str| spec(&json!({"maxLeaseDuration": text}));
    vec![
        Case::good("TLS and allowed namespaces are added", spec(&json!({"tls": {"secretRef": {"name": "t"}}, "allowedNamespaces": {"matchLabels": {"a": "b"}}})))
            .changes(three()),
        Case::good("a timeout changes", spec(&json!({"commandTimeout": "1s"}))).changes(three()),
        // The operator uses 5 s instead of a longer one that is stored, and 10 ms instead of a shorter one.
        Case::bad(
            "a timeout becomes more than 5 s",
            spec(&json!({"commandTimeout": "5s1ms"})),
            "spec.commandTimeout",
            TIMEOUT,
        )
        .changes(three()),
        Case::bad(
            "a timeout becomes less than 10 ms",
            spec(&json!({"commandTimeout": "9ms"})),
            "spec.commandTimeout",
            TIMEOUT,
        )
        .changes(three()),
        Case::good("nodes in another order", spec(&json!({"nodes": [
            {"name": "c", "address": "redis-c:6379"}, {"name": "a", "address": "redis-a:6379"}, {"name": "b", "address": "redis-b:6379"}]})))
            .changes(three()),
        Case::good("one address changes", at(&["redis-x:6379", "redis-b:6379", "redis-c:6379"])).changes(three()),
        Case::bad("two addresses change", at(&["redis-x:6379", "redis-y:6379", "redis-c:6379"]), "spec",
            "only one node address can change per update: the other nodes must keep the leases that are held").changes(three()),
        Case::bad("a node is added", at(&["redis-a:6379", "redis-b:6379", "redis-c:6379", "redis-d:6379"]), "spec", NODES).changes(three()),
        Case::bad("a node is removed", at(&["redis-a:6379", "redis-b:6379"]), "spec", NODES).changes(three()),
        Case::bad("a node is renamed", spec(&json!({"nodes": [
            {"name": "a", "address": "redis-a:6379"}, {"name": "b", "address": "redis-b:6379"}, {"name": "d", "address": "redis-c:6379"}]})),
            "spec", NODES).changes(three()),
        Case::bad("the key prefix changes", spec(&json!({"keyPrefix": "other"})), "spec",
            "keyPrefix cannot be changed: create another RedisQuorum").changes(three()),
        Case::good("the longest lease is written differently", longest("1m")).changes(longest("60s")),
        Case::bad("the longest lease changes", longest("59s")  , "spec",
            "maxLeaseDuration cannot be changed: create another RedisQuorum").changes(three()),
        Case::bad("the longest lease becomes invalid", longest("soon"), "spec.maxLeaseDuration", LONGEST).changes(three()),
    ]
}
