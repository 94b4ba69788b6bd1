//! What admission says about good and bad objects, as one table. A real API server judges every case; the local CEL evaluator judges
//! those decided by a rule; the validated types judge those that are about one object alone.

use serde_json::{Value, json};

/// An object, what it replaces, and what becomes of it.
pub struct Case {
    /// What the case is about: unique in the table.
    pub what: &'static str,
    /// The object that exists before; `None` for a creation.
    pub old: Option<Value>,
    /// The object that is sent.
    pub new: Value,
    /// Whether `new` goes to the status subresource.
    pub status: bool,
    /// `None`: admitted.
    pub refused: Option<Refusal>,
}

/// The only complaint about an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who complains.
    pub by: Judge,
    /// The field complained about.
    pub field: &'static str,
    /// The sentence. It is the whole complaint of a rule, and the end of one of the schema.
    pub says: &'static str,
}

/// Who refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// A CEL rule.
    Rule,
    /// The OpenAPI schema, which the local evaluator of rules does not know.
    Schema,
}

impl Case {
    /// Creation of an object that is as it should be.
    fn good(what: &'static str, new: Value) -> Self {
        Self { what, old: None, new, status: false, refused: None }
    }

    /// Creation of an object that breaks a rule.
    fn bad(what: &'static str, new: Value, field: &'static str, says: &'static str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Rule, field, says }), ..Self::good(what, new) }
    }

    /// Creation of an object that does not have the schema.
    fn malformed(what: &'static str, new: Value, field: &'static str, says: &'static str) -> Self {
        Self { refused: Some(Refusal { by: Judge::Schema, field, says }), ..Self::good(what, new) }
    }

    /// The same as a change of `old`.
    fn changes(self, old: Value) -> Self {
        Self { old: Some(old), ..self }
    }

    /// The same as a change of the status of `old`.
    fn changes_status(self, old: Value) -> Self {
        Self { status: true, ..self.changes(old) }
    }
}

/// A `RedisLease` with what a user must write, changed by a JSON merge patch.
pub fn lease(patch: Value) -> Value {
    let mut object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": "billing", "namespace": "default"},
        "spec": {"candidates": {"selector": {"matchLabels": {"app": "billing"}}}},
    });
    merge(&mut object, patch);
    object
}

/// A `RedisQuorum` with what a user must write, changed by a JSON merge patch.
pub fn quorum(patch: Value) -> Value {
    let mut object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"nodes": nodes(&["redis-a:6379", "redis-b:6379", "redis-c:6379"])},
    });
    merge(&mut object, patch);
    object
}

/// Nodes `a`, `b`, ... at these addresses.
fn nodes(addresses: &[&str]) -> Value {
    addresses.iter().zip('a'..).map(|(address, name)| json!({"name": name.to_string(), "address": address})).collect()
}

fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    object.remove(&key);
                } else {
                    merge(object.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (object, patch) => *object = patch,
    }
}

fn spec(patch: &Value) -> Value {
    lease(json!({"spec": patch}))
}

fn quorum_spec(patch: &Value) -> Value {
    quorum(json!({"spec": patch}))
}

/// The whole table.
pub fn all() -> Vec<Case> {
    [lease_creations(), lease_durations(), lease_changes(), lease_statuses(), quorum_creations(), quorum_changes()]
        .into_iter()
        .flatten()
        .collect()
}

fn lease_creations() -> Vec<Case> {
    let workload = |api_version: &str, kind: &str| {
        spec(&json!({"candidates": {"selector": null,
            "workloadRef": {"apiVersion": api_version, "kind": kind, "name": "billing"}}}))
    };
    vec![
        Case::good("the least a user must write", lease(json!({}))),
        Case::good(
            "everything a user may write",
            spec(&json!({
                "quorumRef": {"name": "main"}, "keys": ["billing", "EU.invoices_2:x-1"],
                "leaseDuration": "1h", "renewInterval": "1m30s", "gracePeriod": "250ms",
                "retry": {"strategy": "Linear", "minDelay": "1s", "maxDelay": "1s", "limit": 7, "jitter": 100},
                "election": {"requireReady": true, "unhealthyAfter": "24h"}, "suspend": true,
            })),
        ),
        Case::good("a name of 63 characters", lease(json!({"metadata": {"name": "n".repeat(63)}}))),
        Case::bad(
            "a name of 64 characters",
            lease(json!({"metadata": {"name": "n".repeat(64)}})),
            "",
            "metadata.name must be at most 63 characters, since the name becomes part of a pod's label",
        ),
        Case::good(
            "eight keys of 128 characters",
            spec(&json!({"keys": (0..8).map(|i| i.to_string().repeat(128)).collect::<Vec<_>>()})),
        ),
        Case::malformed(
            "nine keys",
            spec(&json!({"keys": ["1", "2", "3", "4", "5", "6", "7", "8", "9"]})),
            "spec.keys",
            "must have at most 8 items",
        ),
        Case::malformed("no keys", spec(&json!({"keys": []})), "spec.keys", "should have at least 1 items"),
        Case::malformed(
            "a key of 129 characters",
            spec(&json!({"keys": ["k".repeat(129)]})),
            "spec.keys[0]",
            "may not be more than 128 bytes",
        ),
        Case::bad(
            "a key with a slash",
            spec(&json!({"keys": ["other/billing"]})),
            "spec.keys",
            "keys must consist of letters, digits, '.', '_', ':' and '-', without '/', which separates them from the namespace",
        ),
        Case::bad(
            "a key with a line break",
            spec(&json!({"keys": ["billing\n"]})),
            "spec.keys",
            "keys must consist of letters, digits, '.', '_', ':' and '-', without '/', which separates them from the namespace",
        ),
        Case::bad(
            "a key twice",
            spec(&json!({"keys": ["a", "b", "a"]})),
            "spec.keys",
            "keys must be unique: a lease takes each of its keys once",
        ),
        Case::malformed("no candidates", spec(&json!({"candidates": null})), "spec.candidates", "Required value"),
        Case::bad(
            "candidates without a way to find them",
            spec(&json!({"candidates": {"selector": null}})),
            "spec.candidates",
            "candidates must have exactly one of selector and workloadRef",
        ),
        Case::bad(
            "candidates with two ways to find them",
            spec(
                &json!({"candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}}}),
            ),
            "spec.candidates",
            "candidates must have exactly one of selector and workloadRef",
        ),
        Case::bad(
            "a selector of everything",
            spec(&json!({"candidates": {"selector": {"matchLabels": null}}})),
            "spec.candidates.selector",
            "candidates.selector must have at least one of matchLabels and matchExpressions: an empty selector selects every pod of the namespace",
        ),
        Case::good(
            "a selector of one expression",
            spec(
                &json!({"candidates": {"selector": {"matchLabels": null, "matchExpressions": [{"key": "app", "operator": "Exists"}]}}}),
            ),
        ),
        Case::good("a Deployment", workload("apps/v1", "Deployment")),
        Case::good("a StatefulSet", workload("apps/v1", "StatefulSet")),
        Case::good("a DaemonSet", workload("apps/v1", "DaemonSet")),
        Case::good("a ReplicaSet", workload("apps/v1", "ReplicaSet")),
        Case::good("a Job", workload("batch/v1", "Job")),
        Case::bad(
            "a CronJob",
            workload("batch/v1", "CronJob"),
            "spec.candidates.workloadRef",
            "workloadRef must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job of batch/v1, not CronJob of batch/v1",
        ),
        Case::bad(
            "a Deployment of another group",
            workload("extensions/v1beta1", "Deployment"),
            "spec.candidates.workloadRef",
            "workloadRef must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job of batch/v1, not Deployment of extensions/v1beta1",
        ),
        Case::malformed(
            "an unknown retry strategy",
            spec(&json!({"retry": {"strategy": "exponential"}})),
            "spec.retry.strategy",
            "supported values: \"Exponential\", \"Linear\", \"None\"",
        ),
        Case::malformed(
            "more than all jitter",
            spec(&json!({"retry": {"jitter": 101}})),
            "spec.retry.jitter",
            "should be less than or equal to 100",
        ),
        Case::malformed(
            "a burst of no tries",
            spec(&json!({"retry": {"limit": 0}})),
            "spec.retry.limit",
            "should be greater than or equal to 1",
        ),
        Case::good("one try", spec(&json!({"retry": {"strategy": "None", "limit": 1}}))),
        Case::bad(
            "one try, three times",
            spec(&json!({"retry": {"strategy": "None", "limit": 3}})),
            "spec.retry",
            "retry.limit must be absent or 1 if retry.strategy is None, which tries once",
        ),
        Case::good("readiness ignored", spec(&json!({"election": {"requireReady": false}}))),
        Case::bad(
            "readiness ignored and timed",
            spec(&json!({"election": {"requireReady": false, "unhealthyAfter": "10s"}})),
            "spec.election",
            "election.unhealthyAfter needs election.requireReady: true, since readiness is ignored otherwise",
        ),
    ]
}

fn lease_durations() -> Vec<Case> {
    vec![
        Case::good("a lease just long enough", spec(&json!({"leaseDuration": "26s"}))),
        Case::bad(
            "a lease a millisecond too short",
            spec(&json!({"leaseDuration": "25s999ms"})),
            "spec",
            "leaseDuration (25s999ms) must be at least 3 * renewInterval (5s) + gracePeriod (10s) + 1s: the holder must have stopped before another may start",
        ),
        Case::bad(
            "a grace period that does not fit",
            spec(&json!({"gracePeriod": "14s1ms"})),
            "spec",
            "leaseDuration (30s) must be at least 3 * renewInterval (5s) + gracePeriod (14s1ms) + 1s: the holder must have stopped before another may start",
        ),
        Case::bad(
            "a lease that is no duration",
            spec(&json!({"leaseDuration": "half a minute"})),
            "spec.leaseDuration",
            "leaseDuration must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "a lease of more than an hour",
            spec(&json!({"leaseDuration": "1h1ms"})),
            "spec.leaseDuration",
            "leaseDuration must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::malformed(
            "a lease in numbers",
            spec(&json!({"leaseDuration": 30})),
            "spec.leaseDuration",
            "must be of type string: \"integer\"",
        ),
        Case::malformed(
            "a lease of many words",
            spec(&json!({"leaseDuration": "1s".repeat(15)})),
            "spec.leaseDuration",
            "may not be more than 28 bytes",
        ),
        Case::bad(
            "a renewal at once",
            spec(&json!({"renewInterval": "0s"})),
            "spec.renewInterval",
            "renewInterval must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "a negative grace period",
            spec(&json!({"gracePeriod": "-10s"})),
            "spec.gracePeriod",
            "gracePeriod must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "a fraction of a delay",
            spec(&json!({"retry": {"minDelay": "0.1s"}})),
            "spec.retry.minDelay",
            "retry.minDelay must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "an absurd delay",
            spec(&json!({"retry": {"maxDelay": "99999h99999h99999h99999h"}})),
            "spec.retry.maxDelay",
            "retry.maxDelay must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "delays in the wrong order",
            spec(&json!({"retry": {"minDelay": "11s"}})),
            "spec.retry",
            "retry.minDelay (11s) must be at most retry.maxDelay (10s)",
        ),
        Case::bad(
            "never unhealthy",
            spec(&json!({"election": {"unhealthyAfter": "24h1s"}})),
            "spec.election.unhealthyAfter",
            "election.unhealthyAfter must be a duration longer than 0s and at most 24h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
    ]
}

fn lease_changes() -> Vec<Case> {
    const KEYS: &str = "keys cannot be changed, added or removed: delete this RedisLease and create it again";
    const QUORUM: &str = "quorumRef cannot be changed: delete this RedisLease and create it again";
    let keys = |keys: Value| spec(&json!({"keys": keys}));
    let other_quorum = || spec(&json!({"quorumRef": {"name": "other"}}));
    vec![
        Case::good("durations change", spec(&json!({"leaseDuration": "45s", "suspend": true})))
            .changes(lease(json!({}))),
        Case::good("keys stay", keys(json!(["a", "b"]))).changes(keys(json!(["a", "b"]))),
        Case::bad("a key changes", keys(json!(["a", "c"])), "spec", KEYS).changes(keys(json!(["a", "b"]))),
        Case::bad("a key is added to others", keys(json!(["a", "b"])), "spec", KEYS).changes(keys(json!(["a"]))),
        Case::bad("keys are added", keys(json!(["a"])), "spec", KEYS).changes(lease(json!({}))),
        Case::bad("keys are removed", lease(json!({})), "spec", KEYS).changes(keys(json!(["a"]))),
        Case::good("the default quorum is spelt out", spec(&json!({"quorumRef": {"name": "default"}})))
            .changes(lease(json!({}))),
        Case::bad("a quorum is named", other_quorum(), "spec", QUORUM).changes(lease(json!({}))),
        Case::bad("a quorum is no longer named", lease(json!({})), "spec", QUORUM).changes(other_quorum()),
    ]
}

fn lease_statuses() -> Vec<Case> {
    const TOKEN: &str =
        "status.fencingToken can neither fall nor be removed: a resource that checks it relies on it to grow";
    const STATUS: &str =
        "status cannot be removed: it names the current term, which nobody could continue or end without it";
    let status = |status: Value| lease(json!({"status": status}));
    let token = |token: i64| {
        status(json!({"fencingToken": token, "transitions": 1, "conditions": [{"type": "Ready", "status": "True",
            "reason": "HeldHere", "message": "", "lastTransitionTime": "2026-11-21T07:00:00Z"}]}))
    };
    // The greatest token the protocol allows: numbers above lose digits in JSON.
    let greatest = (1 << 53) - 1;
    let null = || {
        let mut object = lease(json!({}));
        object["status"] = Value::Null;
        object
    };
    let null_token = || {
        let mut object = token(7);
        object["status"]["fencingToken"] = Value::Null;
        object
    };
    vec![
        Case::good("a first status", token(7)).changes_status(lease(json!({}))),
        Case::good("a token after none", token(7)).changes_status(status(json!({"transitions": 0}))),
        Case::good("the same token", token(7)).changes_status(token(7)),
        Case::good("the greatest token", token(greatest)).changes_status(token(greatest - 1)),
        Case::bad("a smaller token", token(greatest - 1), "", TOKEN).changes_status(token(greatest)),
        Case::bad("no token after one", status(json!({"transitions": 1})), "", TOKEN).changes_status(token(7)),
        Case::bad("a token of null", null_token(), "", TOKEN).changes_status(token(7)),
        Case::bad("an empty status", status(json!({})), "", TOKEN).changes_status(token(7)),
        Case::bad("no status", lease(json!({})), "", STATUS).changes_status(token(7)),
        Case::bad("a status of null", null(), "", STATUS).changes_status(token(7)),
        Case::bad("no status after one without a token", lease(json!({})), "", STATUS)
            .changes_status(status(json!({"transitions": 0}))),
    ]
}

fn quorum_creations() -> Vec<Case> {
    const ADDRESS: &str =
        "a node's address must be host:port, such as redis-0.redis:6379 or [fd00::1]:6379, with a port from 1 to 65535";
    const NAME: &str =
        "a node's name must consist of lower-case letters, digits and '-', and begin and end with a letter or digit";
    let at = |address: &str| quorum_spec(&json!({"nodes": nodes(&[address, "redis-b:6379", "redis-c:6379"])}));
    let named = |name: &str| {
        quorum_spec(&json!({"nodes": [{"name": name, "address": "redis-x:1"}, {"name": "b", "address": "redis-b:1"}]}))
    };
    let many: Vec<String> = (1..=10).map(|i| format!("{}:6379", "h".repeat(240) + &i.to_string())).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    vec![
        Case::good("three nodes", quorum(json!({}))),
        Case::good(
            "everything a user may write about a quorum",
            quorum_spec(&json!({
                "nodes": nodes(&["10.0.0.1:1", "[fd00::1]:65535", "redis-c.redis.svc.cluster.local:6379", "d:1", "e:1"]),
                "keyPrefix": "team-a.leases_2", "maxLeaseDuration": "1h", "commandTimeout": "1s500ms",
                "auth": {"secretRef": {"name": "redis"}}, "allowSingleNode": false,
            })),
        ),
        Case::good("nine nodes", quorum_spec(&json!({"nodes": nodes(&many[..9])}))),
        Case::malformed(
            "ten nodes",
            quorum_spec(&json!({"nodes": nodes(&many)})),
            "spec.nodes",
            "must have at most 9 items",
        ),
        Case::malformed("no nodes", quorum_spec(&json!({"nodes": []})), "spec.nodes", "should have at least 1 items"),
        Case::good("two nodes", quorum_spec(&json!({"nodes": nodes(&["redis-a:1", "redis-b:1"])}))),
        Case::good(
            "one node that is meant",
            quorum_spec(&json!({"nodes": nodes(&["redis-a:1"]), "allowSingleNode": true})),
        ),
        Case::bad(
            "one node",
            quorum_spec(&json!({"nodes": nodes(&["redis-a:1"])})),
            "spec",
            "nodes has one entry and allowSingleNode is not true: one node tolerates no failure, so name three or say allowSingleNode: true",
        ),
        Case::malformed("a name twice", named("b"), "spec.nodes[1]", "Duplicate value: {\"name\":\"b\"}"),
        Case::bad(
            "an address twice",
            at("redis-b:6379"),
            "spec.nodes",
            "nodes must have an address of their own each: two nodes on one server fail together",
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
        Case::bad("brackets round a name", at("[redis-a]:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad("brackets round half an address", at("[1:2]:6379"), "spec.nodes[0].address", ADDRESS),
        Case::bad(
            "a key prefix with a colon",
            quorum_spec(&json!({"keyPrefix": "a:b"})),
            "spec.keyPrefix",
            "keyPrefix must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or digit",
        ),
        Case::malformed(
            "an empty key prefix",
            quorum_spec(&json!({"keyPrefix": ""})),
            "spec.keyPrefix",
            "should be at least 1 chars long",
        ),
        Case::bad(
            "a longest lease of more than an hour",
            quorum_spec(&json!({"maxLeaseDuration": "61m"})),
            "spec.maxLeaseDuration",
            "maxLeaseDuration must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::bad(
            "a timeout that is no duration",
            quorum_spec(&json!({"commandTimeout": "500"})),
            "spec.commandTimeout",
            "commandTimeout must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
        Case::malformed(
            "a secret without a name",
            quorum_spec(&json!({"auth": {"secretRef": {"name": ""}}})),
            "spec.auth.secretRef.name",
            "should be at least 1 chars long",
        ),
    ]
}

fn quorum_changes() -> Vec<Case> {
    const NODES: &str =
        "nodes cannot be added, removed or renamed: majorities of the old and the new set might not meet";
    let three = || quorum(json!({}));
    let at = |addresses: &[&str]| quorum_spec(&json!({"nodes": nodes(addresses)}));
    let longest = |text: &str| quorum_spec(&json!({"maxLeaseDuration": text}));
    vec![
        Case::good("a timeout changes", quorum_spec(&json!({"commandTimeout": "1s"}))).changes(three()),
        Case::good("nodes in another order", quorum_spec(&json!({"nodes": [
            {"name": "c", "address": "redis-c:6379"}, {"name": "a", "address": "redis-a:6379"}, {"name": "b", "address": "redis-b:6379"}]})))
            .changes(three()),
        Case::good("one address changes", at(&["redis-x:6379", "redis-b:6379", "redis-c:6379"])).changes(three()),
        Case::bad("two addresses change", at(&["redis-x:6379", "redis-y:6379", "redis-c:6379"]), "spec",
            "nodes may change the address of one node at a time: the others must still know the leases that are held").changes(three()),
        Case::bad("a node is added", at(&["redis-a:6379", "redis-b:6379", "redis-c:6379", "redis-d:6379"]), "spec", NODES).changes(three()),
        Case::bad("a node is removed", at(&["redis-a:6379", "redis-b:6379"]), "spec", NODES).changes(three()),
        Case::bad("a node is renamed", quorum_spec(&json!({"nodes": [
            {"name": "a", "address": "redis-a:6379"}, {"name": "b", "address": "redis-b:6379"}, {"name": "d", "address": "redis-c:6379"}]})),
            "spec", NODES).changes(three()),
        Case::bad("the key prefix changes", quorum_spec(&json!({"keyPrefix": "other"})), "spec",
            "keyPrefix cannot be changed: create another RedisQuorum").changes(three()),
        Case::good("the longest lease is spelt otherwise", longest("1m")).changes(longest("60s")),
        Case::bad("the longest lease changes", longest("59s")  , "spec",
            "maxLeaseDuration cannot be changed: create another RedisQuorum").changes(three()),
        Case::bad("the longest lease turns into nonsense", longest("soon"), "spec.maxLeaseDuration",
            "maxLeaseDuration must be a duration longer than 0s and at most 1h, written in h, m, s and ms, such as 30s, 1m30s or 250ms").changes(three()),
    ]
}
