//! Admission cases of `RedisLease`.

use serde_json::{Value, json};

use super::case::{Case, lease};

fn spec(patch: &Value) -> Value {
    lease(json!({"spec": patch}))
}

pub(super) fn creations() -> Vec<Case> {
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
            "metadata.name must be at most 63 characters, because it becomes part of a pod label key",
        ),
    ]
}

pub(super) fn keys() -> Vec<Case> {
    const CHARACTERS: &str = "keys must consist of letters, digits, '.', '_', ':' and '-'; '/' is not allowed";
    vec![
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
        Case::bad("a key with a slash", spec(&json!({"keys": ["other/billing"]})), "spec.keys", CHARACTERS),
        Case::bad("an empty key", spec(&json!({"keys": [""]})), "spec.keys", CHARACTERS),
        Case::bad("a key with a line break", spec(&json!({"keys": ["billing\n"]})), "spec.keys", CHARACTERS),
        Case::bad(
            "a key twice",
            spec(&json!({"keys": ["a", "b", "a"]})),
            "spec.keys",
            "keys must be unique: a lease takes each of its keys once",
        ),
    ]
}

pub(super) fn retry_and_election() -> Vec<Case> {
    vec![
        Case::malformed(
            "an unknown retry strategy",
            spec(&json!({"retry": {"strategy": "exponential"}})),
            "spec.retry.strategy",
            "supported values: \"Exponential\", \"Linear\", \"None\"",
        ),
        Case::malformed(
            "a jitter over 100 %",
            spec(&json!({"retry": {"jitter": 101}})),
            "spec.retry.jitter",
            "should be less than or equal to 100",
        ),
        Case::malformed(
            "a limit of no attempts",
            spec(&json!({"retry": {"limit": 0}})),
            "spec.retry.limit",
            "should be greater than or equal to 1",
        ),
        Case::good("one try", spec(&json!({"retry": {"strategy": "None", "limit": 1}}))),
        Case::bad(
            "one try, three times",
            spec(&json!({"retry": {"strategy": "None", "limit": 3}})),
            "spec.retry",
            "retry.limit must be absent or 1 if retry.strategy is None, because None pauses after each attempt",
        ),
        Case::good("readiness ignored", spec(&json!({"election": {"requireReady": false}}))),
        Case::good(
            "unhealthyAfter with readiness ignored",
            spec(&json!({"election": {"requireReady": false, "unhealthyAfter": "10s"}})),
        ),
    ]
}

const ONE_ACTIVATION: &str = "granularity Cluster needs exactly one of activation.scale and activation.suspend: true, which says how the workload runs in one cluster only";
const NO_POD: &str =
    "election.unhealthyAfter and activation.schedulingGate need granularity Pod: granularity Cluster elects no pod";

/// A lease of a workload of this kind with granularity Cluster, and with these fields.
fn of(kind: &str, fields: &Value) -> Value {
    let api_version = if kind == "CronJob" { "batch/v1" } else { "apps/v1" };
    let workload = json!({"apiVersion": api_version, "kind": kind, "name": "billing"});
    let mut patch = json!({"granularity": "Cluster", "candidates": {"selector": null, "workloadRef": workload}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        patch[field] = value.clone();
    }
    spec(&patch)
}

pub(super) fn activation() -> Vec<Case> {
    const SCALED: &str = "activation.scale needs candidates.workloadRef with the kind Deployment or StatefulSet";
    let scale = || json!({"scale": {"replicas": 3}});
    vec![
        Case::good("a scheduling gate", spec(&json!({"activation": {"schedulingGate": true}}))),
        Case::good("a scaled Deployment", of("Deployment", &json!({"activation": scale()}))),
        Case::good("a scaled StatefulSet", of("StatefulSet", &json!({"activation": scale()}))),
        Case::good("a suspended CronJob", of("CronJob", &json!({"activation": {"suspend": true}}))),
        Case::malformed(
            "a workload with no replicas where it is active",
            of("Deployment", &json!({"activation": {"scale": {"replicas": 0}}})),
            "spec.activation.scale.replicas",
            "should be greater than or equal to 1",
        ),
        Case::bad("granularity Cluster without activation", of("Deployment", &json!({})), "spec", ONE_ACTIVATION),
        Case::bad(
            "granularity Cluster with an empty activation",
            of("Deployment", &json!({"activation": {}})),
            "spec",
            ONE_ACTIVATION,
        ),
        Case::bad(
            "scale with granularity Pod",
            of("Deployment", &json!({"granularity": "Pod", "activation": scale()})),
            "spec",
            "activation.scale and activation.suspend need granularity Cluster: they start and stop the whole workload of a cluster",
        ),
        Case::bad("scale of a DaemonSet", of("DaemonSet", &json!({"activation": scale()})), "spec", SCALED),
        Case::bad(
            "scale of selected pods",
            spec(&json!({"granularity": "Cluster", "activation": scale()})),
            "spec",
            SCALED,
        ),
        Case::bad(
            "suspend of a Deployment",
            of("Deployment", &json!({"activation": {"suspend": true}})),
            "spec",
            "activation.suspend needs candidates.workloadRef with the kind CronJob",
        ),
        Case::bad(
            "granularity Cluster with unhealthyAfter",
            of("Deployment", &json!({"activation": scale(), "election": {"unhealthyAfter": "1m"}})),
            "spec",
            NO_POD,
        ),
        Case::bad(
            "granularity Cluster with a scheduling gate",
            of("Deployment", &json!({"activation": {"scale": {"replicas": 1}, "schedulingGate": true}})),
            "spec",
            NO_POD,
        ),
    ]
}

pub(super) fn selectors() -> Vec<Case> {
    let incomplete = |what: &'static str, expression: &Value| {
        let selector = json!({"matchLabels": {"app": "billing"}, "matchExpressions": [expression]});
        Case::bad(
            what,
            spec(&json!({"candidates": {"selector": selector}})),
            "spec.candidates.selector",
            "candidates.selector.matchExpressions must use the operators In and NotIn with values, or Exists and DoesNotExist without values",
        )
    };
    let ours = |what: &'static str, selector: &Value| {
        Case::bad(
            what,
            spec(&json!({"candidates": {"selector": selector}})),
            "spec.candidates.selector",
            "candidates.selector must not use a label key under redislease.io: the operator writes these labels, so its own writes would change which pods are candidates",
        )
    };
    vec![
        Case::bad(
            "an empty selector",
            spec(&json!({"candidates": {"selector": {"matchLabels": null}}})),
            "spec.candidates.selector",
            "candidates.selector must have matchLabels or matchExpressions: an empty selector selects every pod of the namespace",
        ),
        Case::good(
            "a selector of one expression",
            spec(
                &json!({"candidates": {"selector": {"matchLabels": null, "matchExpressions": [{"key": "app", "operator": "Exists"}]}}}),
            ),
        ),
        ours(
            "the label that the operator writes",
            &json!({"matchExpressions": [{"key": "lease.redislease.io/billing", "operator": "DoesNotExist"}]}),
        ),
        ours("a label in the operator's domain", &json!({"matchLabels": {"redislease.io/lease": "billing"}})),
        Case::good(
            "label keys that only look like the operator's",
            spec(
                &json!({"candidates": {"selector": {"matchLabels": {"notredislease.io/lease": "x", "redislease.io": "x", "redislease.io.example.com/x": "x"}}}}),
            ),
        ),
        Case::good(
            "label keys in domains that the operator writes no label in",
            spec(
                &json!({"candidates": {"selector": {"matchLabels": {"team.redislease.io/x": "x"}, "matchExpressions": [{"key": "token.redislease.io/x", "operator": "Exists"}]}}}),
            ),
        ),
        incomplete("an unknown operator", &json!({"key": "app", "operator": "in", "values": ["billing"]})),
        incomplete("In without values", &json!({"key": "app", "operator": "In"})),
        incomplete(
            "NotIn without values, which selects every pod",
            &json!({"key": "app", "operator": "NotIn", "values": []}),
        ),
        incomplete("Exists with a value", &json!({"key": "app", "operator": "Exists", "values": ["billing"]})),
    ]
}

/// Candidates, and the names that a lease refers to.
pub(super) fn references() -> Vec<Case> {
    const ONE: &str = "candidates must have exactly one of selector and workloadRef";
    const KINDS: &str = "workloadRef must be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job or CronJob of batch/v1, not";
    let workload = |api_version: &str, kind: &str| {
        spec(&json!({"candidates": {"selector": null,
            "workloadRef": {"apiVersion": api_version, "kind": kind, "name": "billing"}}}))
    };
    vec![
        Case::malformed("no candidates", spec(&json!({"candidates": null})), "spec.candidates", "Required value"),
        Case::bad(
            "candidates without selector and workloadRef",
            spec(&json!({"candidates": {"selector": null}})),
            "spec.candidates",
            ONE,
        ),
        Case::bad(
            "candidates with selector and workloadRef",
            spec(
                &json!({"candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}}}),
            ),
            "spec.candidates",
            ONE,
        ),
        Case::not_a_dns_name(
            "a workload with an invalid name",
            spec(&json!({"candidates": {"selector": null,
                "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "my app"}}})),
            "spec.candidates.workloadRef.name",
        ),
        Case::not_a_dns_name(
            "a quorum with an invalid name",
            spec(&json!({"quorumRef": {"name": "-main"}})),
            "spec.quorumRef.name",
        ),
        Case::good("a quorum with dots in its name", spec(&json!({"quorumRef": {"name": "main.eu-1.2"}}))),
        Case::good("a Deployment", workload("apps/v1", "Deployment")),
        Case::good("a StatefulSet", workload("apps/v1", "StatefulSet")),
        Case::good("a DaemonSet", workload("apps/v1", "DaemonSet")),
        Case::good("a ReplicaSet", workload("apps/v1", "ReplicaSet")),
        Case::good("a Job", workload("batch/v1", "Job")),
        Case::good("a CronJob", workload("batch/v1", "CronJob")),
        Case::bad("a Pod", workload("v1", "Pod"), "spec.candidates.workloadRef", &format!("{KINDS} Pod of v1")),
        Case::bad(
            "a Deployment of another group",
            workload("extensions/v1beta1", "Deployment"),
            "spec.candidates.workloadRef",
            &format!("{KINDS} Deployment of extensions/v1beta1"),
        ),
    ]
}

pub(super) fn durations() -> Vec<Case> {
    vec![
        Case::good("the shortest possible lease", spec(&json!({"leaseDuration": "26s"}))),
        Case::bad(
            "a lease that is a millisecond too short",
            spec(&json!({"leaseDuration": "25s999ms"})),
            "spec",
            "leaseDuration (25s999ms) must be at least 3 * renewInterval (5s) + gracePeriod (10s) + 1s: the old holder must stop before another pod starts",
        ),
        Case::bad(
            "a grace period that does not fit",
            spec(&json!({"gracePeriod": "14s1ms"})),
            "spec",
            "leaseDuration (30s) must be at least 3 * renewInterval (5s) + gracePeriod (14s1ms) + 1s: the old holder must stop before another pod starts",
        ),
        Case::bad(
            "a long lease whose grace period leaves too little time for renewals",
            spec(&json!({"leaseDuration": "600s", "renewInterval": "3s", "gracePeriod": "586s949ms"})),
            "spec",
            "leaseDuration (600s) minus 1 % and 52 ms for clocks must be at least 2 * renewInterval (3s) + gracePeriod (586s949ms) + 1s: otherwise the lease is lost between two renewals",
        ),
        Case::good(
            "a long lease with short renewals",
            spec(&json!({"leaseDuration": "600s", "renewInterval": "3s", "gracePeriod": "586s948ms"})),
        ),
        Case::not_a_duration(
            "a lease that is not a duration",
            spec(&json!({"leaseDuration": "half a minute"})),
            "spec.leaseDuration",
        ),
        Case::not_a_duration(
            "a lease of more than an hour",
            spec(&json!({"leaseDuration": "1h1ms"})),
            "spec.leaseDuration",
        ),
        Case::malformed(
            "a lease as a number",
            spec(&json!({"leaseDuration": 30})),
            "spec.leaseDuration",
            "must be of type string: \"integer\"",
        ),
        Case::malformed(
            "a lease of many units",
            spec(&json!({"leaseDuration": "1s".repeat(15)})),
            "spec.leaseDuration",
            "may not be more than 28 bytes",
        ),
        Case::not_a_duration("a renewal interval of zero", spec(&json!({"renewInterval": "0s"})), "spec.renewInterval"),
        Case::not_a_duration("a negative grace period", spec(&json!({"gracePeriod": "-10s"})), "spec.gracePeriod"),
        Case::bad(
            "never unhealthy",
            spec(&json!({"election": {"unhealthyAfter": "24h1s"}})),
            "spec.election.unhealthyAfter",
            "election.unhealthyAfter must be a duration longer than 0s and at most 24h, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
        ),
    ]
}

/// The delays between two attempts.
pub(super) fn delays() -> Vec<Case> {
    vec![
        Case::not_a_duration(
            "a delay with a fraction",
            spec(&json!({"retry": {"minDelay": "0.1s"}})),
            "spec.retry.minDelay",
        ),
        Case::not_a_duration(
            "a delay that is too long",
            spec(&json!({"retry": {"maxDelay": "99999h99999h99999h99999h"}})),
            "spec.retry.maxDelay",
        ),
        Case::bad(
            "a delay that is too short",
            spec(&json!({"retry": {"minDelay": "49ms"}})),
            "spec.retry",
            "retry.minDelay (49ms) must be at least 50ms",
        ),
        Case::bad(
            "a maximum delay that is too short",
            spec(&json!({"retry": {"maxDelay": "999ms"}})),
            "spec.retry",
            "retry.maxDelay (999ms) must be at least 1s",
        ),
        Case::bad(
            "delays in the wrong order",
            spec(&json!({"retry": {"minDelay": "11s"}})),
            "spec.retry",
            "retry.minDelay (11s) must be at most retry.maxDelay (10s)",
        ),
    ]
}

pub(super) fn changes() -> Vec<Case> {
    const KEYS: &str = "keys cannot be changed, added or removed: suspend this RedisLease, wait one leaseDuration, then delete it and create it again";
    const QUORUM: &str = "quorumRef cannot be changed: suspend this RedisLease, wait one leaseDuration, then delete it and create it again";
    let keys = |keys: Value| spec(&json!({"keys": keys}));
    let null_keys = || {
        let mut object = lease(json!({}));
        object["spec"]["keys"] = Value::Null;
        object
    };
    let other_quorum = || spec(&json!({"quorumRef": {"name": "other"}}));
    vec![
        Case::good("durations change", spec(&json!({"leaseDuration": "45s", "suspend": true})))
            .changes(lease(json!({}))),
        Case::good("keys stay", keys(json!(["a", "b"]))).changes(keys(json!(["a", "b"]))),
        Case::bad("a key changes", keys(json!(["a", "c"])), "spec", KEYS).changes(keys(json!(["a", "b"]))),
        Case::bad("a key is added to others", keys(json!(["a", "b"])), "spec", KEYS).changes(keys(json!(["a"]))),
        Case::bad("keys are added", keys(json!(["a"])), "spec", KEYS).changes(lease(json!({}))),
        Case::good("keys of null are absent keys", null_keys()).changes(lease(json!({}))),
        Case::bad("keys are removed by null", null_keys(), "spec", KEYS).changes(keys(json!(["a"]))),
        Case::bad("keys are removed", lease(json!({})), "spec", KEYS).changes(keys(json!(["a"]))),
        Case::good("the default quorum is spelt out", spec(&json!({"quorumRef": {"name": "default"}})))
            .changes(lease(json!({}))),
        Case::bad("a quorum is named", other_quorum(), "spec", QUORUM).changes(lease(json!({}))),
        Case::bad("a quorum is no longer named", lease(json!({})), "spec", QUORUM).changes(other_quorum()),
    ]
}

pub(super) fn statuses() -> Vec<Case> {
    const TOKEN: &str =
        "status.fencingToken cannot decrease or be removed: stores that check fencing tokens rely on this";
    const STATUS: &str = "status cannot be removed: the operator needs it to continue or end the current term";
    let status = |status: Value| lease(json!({"status": status}));
    let token = |token: i64| {
        status(json!({"fencingToken": token, "transitions": 1, "conditions": [{"type": "Ready", "status": "True",
            "reason": "HeldHere", "message": "", "lastTransitionTime": "2026-11-21T07:00:00Z"}]}))
    };
    // The greatest token of the protocol: greater numbers lose digits in JSON.
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
