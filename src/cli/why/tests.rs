use super::*;
use jiff::Timestamp;
use serde_json::{Value, json};

mod blocked;
mod handover;
mod held;
mod printed;

/// Now, in the tests.
const NOW: &str = "2026-11-21T10:00:00Z";
const TOKEN: i64 = 1_795_238_400_000_042;

/// A situation: the objects as a test changes them.
struct Situation {
    spec: Value,
    status: Value,
    pods: Vec<Value>,
    nodes: Value,
    votes: &'static str,
    holder_exists: bool,
}

impl Situation {
    /// billing-0 holds the lease, billing-1 can be elected, billing-2 is not Ready, and all nodes vote.
    fn held() -> Self {
        let mut not_ready = pod("billing-2");
        not_ready["status"]["conditions"][0]["status"] = json!("False");
        Self {
            spec: json!({"candidates": {"selector": {"matchLabels": {"app": "billing"}}}}),
            status: json!({
                "holder": {"cluster": "eu", "namespace": "shop", "pod": "billing-0", "podUID": "uid-billing-0", "node": "node-3"},
                "attempt": "0123456789abcdef0123456789abcdef",
                "fencingToken": TOKEN,
                "acquireTime": "2026-11-21T07:26:00Z",
                "transitions": 3,
                "history": [past("billing-1", TOKEN - 1, "HolderStopped", "2026-11-21T07:25:59Z")],
                "conditions": [
                    condition("Ready", "True", "HeldHere", "billing-0 holds the lease."),
                    condition("Active", "True", "HeldHere", "billing-0 holds the lease."),
                ],
            }),
            pods: vec![pod("billing-0"), pod("billing-1"), not_ready],
            nodes: json!([node("a", "Up", None), node("b", "Up", None), node("c", "Up", None)]),
            votes: "3 of 3 nodes vote (2 required).",
            holder_exists: true,
        }
    }

    /// Nobody holds the lease, for this reason.
    fn unheld(reason: &str, message: &str) -> Self {
        let mut situation = Self::held();
        for field in ["holder", "attempt", "acquireTime"] {
            situation.status.as_object_mut().unwrap().remove(field);
        }
        situation
            .conditions(("False", reason, message), ("False", "Unheld", "No pod of this cluster holds the lease."));
        situation
    }

    fn conditions(&mut self, ready: (&str, &str, &str), active: (&str, &str, &str)) {
        let [ready, active] = [("Ready", ready), ("Active", active)]
            .map(|(type_, (status, reason, text))| condition(type_, status, reason, text));
        self.status["conditions"] = json!([ready, active]);
    }

    fn facts(self) -> Facts {
        let now: Timestamp = NOW.parse().unwrap();
        let lease: RedisLease = serde_json::from_value(json!({
            "apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease",
            "metadata": {"name": "billing", "namespace": "shop"}, "spec": self.spec, "status": self.status,
        }))
        .unwrap();
        let nodes = ["a", "b", "c"].map(|name| json!({"name": name, "address": format!("{name}.redis:6379")}));
        let quorum = json!({
            "apiVersion": "redislease.io/v1alpha1", "kind": "RedisQuorum",
            "metadata": {"name": "default", "namespace": "redislease-system"},
            "spec": {"nodes": nodes},
            "status": {
                "nodes": self.nodes,
                "leader": {"instance": "operator-0", "since": "2026-11-21T07:00:00Z", "transitions": 0},
                "conditions": [condition("Ready", "True", "QuorumAvailable", self.votes)],
            },
        });
        let candidates: Vec<PodObject> =
            self.pods.into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
        let holder = candidates.iter().find(|pod| pod.metadata.name.as_deref() == Some("billing-0"));
        let holder = match holder {
            Some(pod) if self.holder_exists => HolderPod::Here { pod: Box::new(pod.clone()), candidate: true },
            _ => HolderPod::Gone,
        };
        let candidates =
            candidates.into_iter().filter(|pod| self.holder_exists || pod.name_any() != "billing-0").collect();
        Facts {
            spec: ValidLease::try_from(&lease),
            lease,
            candidates: Ok(candidates),
            holder,
            quorum: Ok(serde_json::from_value(quorum).unwrap()),
            quorum_namespace: "redislease-system".into(),
            now,
        }
    }

    fn explained(self) -> Explanation {
        Explanation::of(&self.facts())
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW})
}

fn past(pod: &str, token: i64, reason: &str, end: &str) -> Value {
    json!({"fencingToken": token, "cluster": "eu", "pod": pod, "reason": reason,
           "acquireTime": "2026-11-21T07:00:00Z", "endTime": end})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-21T06:00:00Z"},
        "spec": {"nodeName": "node-3", "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T09:59:50Z"},
        ]},
    })
}

fn node(name: &str, state: &str, message: Option<&str>) -> Value {
    let mut node = json!({"name": name, "state": state});
    if let Some(message) = message {
        node["message"] = json!(message);
    }
    node
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

#[test]
fn held_lease_names_holder_predecessor_candidates_and_votes() {
    let explanation = Situation::held().explained();
    let mut text = Vec::new();
    print::text(&explanation, &mut text).unwrap();
    let expected = "
RedisLease shop/billing

Holder
  billing-0 in cluster eu on Kubernetes node node-3 has held the lease since 2026-11-21T07:26:00Z (154m), with fencing token 1795238400000042.

Last term
  billing-1 in cluster eu held the lease for 25m, with fencing token 1795238400000041.
  The term ended at 2026-11-21T07:25:59Z (154m ago) with reason HolderStopped: the holder has stopped.

Candidates
  2 of 3 candidates can be elected.
    billing-0   holds the lease
    billing-1   can be elected, and is the first in the order of the election
    billing-2   cannot be elected: it is not Ready (NotReady)

Quorum
  RedisQuorum redislease-system/default: 3 of 3 nodes vote (2 required).
  Replica operator-0 of the operator has decided about its leases since 2026-11-21T07:00:00Z (3h ago), as the status says. `redislease doctor` tells whether it works.
    a   votes
    b   votes
    c   votes

Next change
  No change is due. If billing-0 is deleted and its containers stop, billing-1 can acquire the lease at once.
  If billing-0 is not Ready for 30s, the operator ends its term, and billing-1 can acquire the lease at most 31s later.
";
    assert_eq!(String::from_utf8(text).unwrap(), expected.trim_start());
    assert_eq!(explanation.next_change, None);
}

#[test]
fn a_pod_that_starts_after_its_election_counts_as_eligible_while_it_holds_the_lease() {
    let gated = |name: &str, gates: Value| {
        let mut pod = pod(name);
        pod["spec"] = json!({"containers": [{"name": "app"}], "schedulingGates": gates});
        pod["status"] = json!({"phase": "Pending"});
        pod
    };
    let ours = json!({"name": "lease.redislease.io/billing"});
    let mut situation = Situation::held();
    situation.spec["activation"] = json!({"schedulingGate": true});
    let mut holder = pod("billing-0");
    holder["metadata"]["annotations"] = json!({"started.redislease.io/billing": format!("{TOKEN}.uid-billing-0")});
    let mut lost = pod("billing-3");
    lost["metadata"]["annotations"] = json!({"started.redislease.io/billing": "7.uid-billing-3"});
    situation.pods = vec![
        gated("billing-1", json!([ours])),
        gated("billing-2", json!([ours, {"name": "example.com/quota"}])),
        holder.clone(),
        lost,
        pod("billing-4"),
    ];
    let verdicts = |explanation: &Explanation| -> Vec<(String, bool, String)> {
        let all = explanation.candidates.iter();
        all.map(|one| (one.pod.clone(), one.eligible, one.verdict.clone())).collect()
    };
    let expected = [
        ("billing-0", true, "holds the lease"),
        ("billing-1", true, "can be elected, and is the first in the order of the election"),
        ("billing-2", false, "cannot be elected: it has another scheduling gate (OtherGate)"),
        ("billing-3", false, "cannot be elected: it was started for an earlier term (Started)"),
        ("billing-4", false, "cannot be elected: it does not have the scheduling gate of the lease (NotGated)"),
    ];
    let explanation = situation.explained();
    assert_eq!(
        explanation.candidates_summary,
        "2 of 5 candidates can be elected. Only the elected pod starts (spec.activation.schedulingGate)."
    );
    assert_eq!(verdicts(&explanation), expected.map(|(pod, eligible, verdict)| (pod.into(), eligible, verdict.into())));
    assert!(explanation.next[1].contains("billing-0 is not Ready for 5m"), "{explanation:?}");

    // The time in which the holder waited for its election does not count.
    let mut situation = Situation::held();
    situation.spec["activation"] = json!({"schedulingGate": true});
    situation.status["acquireTime"] = json!("2026-11-21T09:59:00Z");
    holder["status"] = json!({"phase": "Pending"});
    situation.pods = vec![holder, gated("billing-1", json!([ours]))];
    let explanation = situation.explained();
    assert_eq!(explanation.candidates[0].verdict, "holds the lease, and is not Ready");
    assert_eq!(explanation.next_change, Some(at("2026-11-21T10:04:00Z")), "{explanation:?}");

    // The term is published, and the gate will be removed.
    let mut situation = Situation::held();
    situation.spec["activation"] = json!({"schedulingGate": true});
    situation.pods = vec![gated("billing-0", json!([ours]))];
    assert_eq!(situation.explained().candidates[0].verdict, "holds the lease, and is being started");
}

#[test]
fn json_has_the_same_facts() {
    let json = serde_json::to_value(Situation::held().explained()).unwrap();
    assert_eq!((&json["namespace"], &json["name"]), (&json!("shop"), &json!("billing")));
    assert_eq!(json["candidates"][1]["pod"], "billing-1");
    assert_eq!(json["candidates"][2]["eligible"], false);
    assert_eq!(json["nodes"][0], json!({"name": "a", "votes": true, "state": "Up"}));
    assert!(json.get("nextChange").is_none(), "{json}");
}

#[test]
fn the_next_timeout_of_the_holder_is_the_decision_of_the_election() {
    // Not Ready for 10 s of 30 s.
    let mut situation = Situation::held();
    situation.pods[0]["status"]["conditions"][0]["status"] = json!("False");
    let explanation = situation.explained();
    assert_eq!(explanation.next_change, Some(at("2026-11-21T10:00:20Z")));
    assert!(explanation.next[0].contains("at about 2026-11-21T10:00:20Z: the holder was not Ready"), "{explanation:?}");
    assert_eq!(explanation.candidates[1].pod, "billing-0");
    assert_eq!(explanation.candidates[1].verdict, "holds the lease, and cannot be elected: it is not Ready (NotReady)");

    // Deleted 5 s ago, with 30 s to stop and a grace period of 10 s.
    let mut situation = Situation::held();
    situation.pods[0]["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:25Z");
    situation.pods[0]["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let explanation = situation.explained();
    assert_eq!(explanation.next_change, Some(at("2026-11-21T10:00:35Z")));
    assert!(explanation.next[0].contains("did not stop within its deletion grace period"), "{explanation:?}");

    let mut situation = Situation::held();
    situation.holder_exists = false;
    let explanation = situation.explained();
    assert!(
        explanation.next[0].starts_with("The operator ends the term now: the holder's pod is gone"),
        "{explanation:?}"
    );
    assert_eq!(explanation.candidates[2].verdict, "is named as the holder, and does not exist any more");
}

#[test]
fn a_term_that_ends_names_the_latest_time_at_which_its_keys_expire() {
    let mut situation = Situation::held();
    let stopping = "The operator ended the term of billing-0: the holder was not Ready. It must stop.";
    situation.conditions(
        ("False", "Unheld", "No pod can acquire the lease until the keys expire."),
        ("False", "Stopping", stopping),
    );
    situation.status["history"] = json!([past("billing-0", TOKEN, "HolderUnhealthy", "2026-11-21T09:59:50Z")]);
    let explanation = situation.explained();
    assert_eq!(explanation.holder, [stopping]);
    assert!(explanation.last_term[1].contains("reason HolderUnhealthy: the holder was not Ready"), "{explanation:?}");
    assert_eq!(explanation.next_change.map(Timestamp::as_second), Some(at("2026-11-21T10:00:20Z").as_second()));
    assert_eq!(
        explanation.next,
        [
            "When the keys expire, at about 2026-11-21T10:00:20Z at the latest, or as soon as billing-0 is proven to have \
             stopped, billing-1 can acquire the lease."
        ]
    );
}

#[test]
fn peer_cluster_that_holds_the_lease_is_named() {
    let message = "billing-7 of cluster us holds the lease.";
    let mut situation = Situation::unheld("Unheld", "");
    situation.conditions(("True", "HeldByPeerCluster", message), ("False", "HeldByPeerCluster", message));
    let explanation = situation.explained();
    assert_eq!(explanation.holder, [message]);
    assert!(
        explanation.next[0]
            .starts_with("This cluster can acquire the lease when the other cluster releases it, or when"),
        "{explanation:?}"
    );
    assert_eq!(explanation.candidates[0].verdict, "can be elected, and is the first in the order of the election");
}

#[test]
fn a_peer_cluster_that_took_over_is_named_beside_the_term_that_it_followed() {
    let lost = "billing-0 lost the lease: too many Redis nodes no longer have its keys. It must stop.";
    let mut situation = Situation::held();
    situation
        .conditions(("True", "HeldByPeerCluster", "x of cluster us holds the lease."), ("False", "LeaseLost", lost));
    let explanation = situation.explained();
    assert_eq!(explanation.holder, [lost, "x of cluster us holds the lease. (HeldByPeerCluster)"]);
    assert!(explanation.next[0].contains("when the other cluster releases it"), "{explanation:?}");
}

#[test]
fn unheld_lease_says_why_and_what_ends_it() {
    let table = [
        ("Suspended", "spec.suspend is true: no pod is elected until it is false.", "when spec.suspend is false"),
        ("NoCandidate", "No pod matches spec.candidates.", "the first pod that can be elected"),
        ("InvalidReference", "There is no RedisQuorum default.", "when the error above is corrected"),
        ("InvalidSpec", "spec.leaseDuration is too long.", "when the error above is corrected"),
        ("Starting", "The operator could not read Deployment shop/d.", "when the candidates are known"),
        ("KeyHeldByOtherLease", "RedisLease shop/b holds a key.", "when the key is free"),
        ("Unheld", "No pod holds the lease. The operator is electing one.", "tries to acquire the lease for billing-0"),
    ];
    for (reason, message, next) in table {
        let explanation = Situation::unheld(reason, message).explained();
        let said = explanation.holder.join(" ");
        assert_eq!(said.matches("No pod holds the lease").count(), 1, "{said}");
        assert!(said.ends_with(&format!("{message} ({reason})")), "{said}");
        assert!(explanation.next[0].contains(next), "{reason}: {explanation:?}");
        assert_eq!(explanation.next_change, None);
    }
}

#[test]
fn lost_quorum_names_the_end_of_the_quarantine() {
    let lost = "Fewer than a majority of the nodes of RedisQuorum default vote. No pod can acquire the lease.";
    let quarantine = |name, until: &str| {
        node(name, "Quarantined", Some(&format!("{name}: it has no data; it votes again from {until}")))
    };
    let mut situation = Situation::unheld("QuorumUnavailable", lost);
    situation.nodes = json!([
        quarantine("a", "2026-11-21T10:00:40Z"),
        node("b", "Down", Some("b: no answer within 500 ms")),
        quarantine("c", "2026-11-21T10:00:50Z"),
    ]);
    situation.votes = "0 of 3 nodes vote (2 required). Not voting: a, b, c.";
    let explanation = situation.explained();
    assert_eq!(explanation.next, ["A majority of the Redis nodes can vote again from 2026-11-21T10:00:50Z."]);
    assert_eq!(explanation.next_change, Some(at("2026-11-21T10:00:50Z")));
    assert!(explanation.quorum[0].ends_with("0 of 3 nodes vote (2 required). Not voting: a, b, c."), "{explanation:?}");
    assert_eq!(explanation.nodes[1].message.as_deref(), Some("b: no answer within 500 ms"));

    let mut situation = Situation::held();
    situation.nodes = json!([node("a", "Up", None), node("b", "Down", None), node("c", "Down", None)]);
    let explanation = situation.explained();
    assert_eq!(
        explanation.next,
        [
            "The lease cannot be renewed without a majority, and 1 more Redis node must vote. Otherwise billing-0 loses it 19s after its last renewal.",
            "No pod can acquire the lease until 1 more Redis node answers and the quarantine of new or restarted nodes has ended.",
        ]
    );
}

#[test]
fn unconfirmed_term_is_not_shown_as_held() {
    let mut situation = Situation::held();
    let message = "The operator has not confirmed yet that billing-0 still holds the lease.";
    situation.conditions(("Unknown", "Starting", message), ("Unknown", "Starting", message));
    let explanation = situation.explained();
    assert_eq!(explanation.holder, [message]);
    assert!(explanation.next[0].contains("within about 31s, the lease counts as lost"), "{explanation:?}");
}

#[test]
fn what_cannot_be_read_is_said_and_the_status_is_used_instead() {
    let mut situation = Situation::held();
    situation.status["candidates"] =
        json!({"total": 3, "eligible": 2, "ineligible": [{"pod": "billing-2", "reason": "NotReady"}]});
    let health = condition("QuorumHealthy", "True", "MajorityReachable", "A majority of the nodes votes.");
    situation.status["conditions"].as_array_mut().unwrap().push(health);
    let mut facts = situation.facts();
    facts.candidates = Err("the pods cannot be listed: forbidden".into());
    facts.quorum = Err("forbidden".into());
    let explanation = Explanation::of(&facts);
    assert_eq!(
        explanation.candidates_summary,
        "2 of 3 candidates can be elected, as the status of the lease says; the pods cannot be listed: forbidden."
    );
    assert_eq!(explanation.candidates[0].verdict, "cannot be elected: it is not Ready (NotReady)");
    assert_eq!(
        explanation.quorum,
        [
            "RedisQuorum redislease-system/default cannot be read: forbidden.",
            "A majority of the nodes votes. (MajorityReachable)",
        ]
    );
}

#[test]
fn lease_without_status_points_to_the_operator() {
    let mut situation = Situation::held();
    situation.status = json!({});
    let explanation = situation.explained();
    assert!(explanation.holder[0].contains("has not written a status"), "{explanation:?}");
    assert_eq!(explanation.last_term, ["No term has ended yet."]);
}

#[test]
fn a_requested_handover_is_shown_until_a_later_term_begins() {
    let annotated = |situation: Situation| {
        let mut facts = situation.facts();
        let annotations = [("redislease.io/handover-requested", "7"), ("redislease.io/handover-to", "pod/billing-1")];
        facts.lease.metadata.annotations = Some(annotations.map(|(key, value)| (key.into(), value.into())).into());
        Explanation::of(&facts).holder.join(" ")
    };
    let waits = annotated(Situation::held());
    assert!(waits.contains("The operator has not handled the requested handover 7 to pod/billing-1 yet."), "{waits}");

    let shown = |state: &str, time: &str| {
        let mut situation = Situation::held();
        situation.status["handover"] = json!({
            "id": "7", "to": "pod/billing-1", "state": state, "time": time, "message": "This is why.",
        });
        annotated(situation)
    };
    let running = shown("Running", "2026-11-21T09:59:50Z");
    assert!(
        running.ends_with(
            "The requested handover 7 to pod/billing-1 is running, 2026-11-21T09:59:50Z (10s ago): This is why."
        ),
        "{running}"
    );
    let refused = shown("Refused", "2026-11-21T09:59:50Z");
    assert!(refused.contains("The requested handover 7 to pod/billing-1 was refused"), "{refused}");
    let old = shown("Completed", "2026-11-21T07:00:00Z");
    assert!(!old.contains("handover"), "{old}");
}
