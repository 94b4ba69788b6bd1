//! The label on the pods, as somebody who watches them sees it.

use std::collections::BTreeMap;

use redislease_lab::{Installation, Lease, LeaseState, Result, Watch, WatchEvent};
use serde_json::{Value, json};

use crate::holder::held;
use crate::world::{AFTER_ONE_LEASE, FIRST_ELECTION, SOON, shared};

/// Event, pod, role and token, in the order of the events.
fn told(watch: &mut Watch) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = |event: &WatchEvent| {
        let metadata = &event.object["metadata"];
        let role = &metadata["labels"]["lease.redislease.io/billing"];
        let token = &metadata["annotations"]["token.redislease.io/billing"];
        [event.kind.clone(), text(&metadata["name"]), text(role), text(token)]
    };
    watch.so_far().iter().map(told).collect()
}

#[test]
fn at_no_event_are_two_pods_active_and_no_pods_token_falls() -> Result<()> {
    let installation = &shared().installation;
    let (lease, mut last) = held(installation, "watched")?;
    let cluster = installation.control_plane();
    let mut watch = cluster.watch("pods", "watched")?;
    lease.patch(&json!({"spec": {"election": {"unhealthyAfter": "1s"}}}))?;
    for round in 0..4 {
        let pod = last.holder().unwrap_or_default();
        if round == 2 {
            // The old holder lives on: it must be told before the new one.
            cluster.set_pod_ready("watched", pod, false)?;
        } else {
            cluster.kubectl(&["delete", "pod", "-n", "watched", pod])?;
        }
        last = lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > last.token())?;
    }
    let holder = last.holder().unwrap_or_default().to_owned();
    installation.wait_for("the last holder is seen active", SOON, || {
        let events = told(&mut watch);
        let seen = events.iter().any(|[_, pod, role, _]| *pod == holder && role == "active");
        if seen { Ok(()) } else { Err(format!("{events:?}")) }
    })?;
    let mut roles: BTreeMap<String, String> = BTreeMap::new();
    let mut tokens: BTreeMap<String, u64> = BTreeMap::new();
    let mut active_seen = 0;
    for event in told(&mut watch) {
        let [kind, pod, role, token] = event.clone();
        if kind == "DELETED" {
            roles.remove(&pod);
            continue;
        }
        if let Ok(token) = token.parse() {
            let before = tokens.insert(pod.clone(), token).unwrap_or(0);
            assert!(token >= before, "{event:?} after {before}");
        }
        roles.insert(pod, role);
        let active: Vec<&String> = roles.iter().filter(|(_, role)| *role == "active").map(|(pod, _)| pod).collect();
        assert!(active.len() <= 1, "{active:?} at {event:?}");
        active_seen += active.len();
    }
    assert!(active_seen > 4, "the watch saw the story");
    Ok(())
}

/// From now on the API server refuses updates of `resource` in `namespace` unless `allowed` says otherwise.
fn refuse(installation: &Installation, namespace: &str, resource: [&str; 2], allowed: &str) -> Result<()> {
    let [group, resource] = resource;
    let named = json!({"name": format!("refuse-{namespace}")});
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]});
    let only_there = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": named,
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only_there},
            "validations": [{"expression": allowed, "message": "as the test asks for"}],
        },
    }))?;
    installation.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": named,
        "spec": {"policyName": named["name"], "validationActions": ["Deny"]},
    }))
}

/// Waits until the API server refuses, or allows again, what these arguments of kubectl ask for.
fn wait_for_policy(installation: &Installation, refused: bool, args: &[&str]) -> Result<()> {
    let args = [args, &["--dry-run=server"]].concat();
    installation.wait_for("the policy", FIRST_ELECTION, || match installation.control_plane().kubectl(&args) {
        Err(error) if error.to_string().contains("as the test asks for") => {
            if refused {
                Ok(())
            } else {
                Err("refused".into())
            }
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => {
            if refused {
                Err("allowed".into())
            } else {
                Ok(())
            }
        }
    })
}

fn allow(installation: &Installation, namespace: &str) -> Result<()> {
    let name = format!("refuse-{namespace}");
    let policy = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    installation.control_plane().kubectl(&["delete", policy, &name]).map(drop)
}

fn wait_for_labels(installation: &Installation, lease: &Lease<'_>, wanted: &[(&str, Option<&str>)]) -> Result<()> {
    let wanted: BTreeMap<&str, Option<&str>> = wanted.iter().copied().collect();
    installation.wait_for("the labels", AFTER_ONE_LEASE, || {
        let roles = lease.roles().map_err(|error| error.to_string())?;
        let labels = |pod: &str| roles.get(pod).and_then(|role| role.label.as_deref());
        let same = wanted.iter().all(|(pod, label)| labels(pod) == *label);
        if same { Ok(()) } else { Err(format!("{roles:?}")) }
    })
}

#[test]
fn a_pod_that_may_not_be_labelled_keeps_no_other_from_its_role() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    installation.deployment("refusing", "billing", 3)?;
    let pods = cluster.kubectl(&["get", "pods", "-n", "refusing", "-o", "jsonpath={.items[*].metadata.name}"])?;
    let [odd, first, second] = pods.split_whitespace().collect::<Vec<_>>()[..] else { panic!("three pods: {pods}") };
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", odd, "redislease.io/exclude=true"])?;
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", first, "redislease.io/priority=1"])?;
    let allowed =
        format!("object.metadata.name != '{odd}' || !('lease.redislease.io/billing' in object.metadata.labels)");
    refuse(installation, "refusing", ["", "pods"], &allowed)?;
    let label = ["label", "pod", "-n", "refusing", odd, "lease.redislease.io/billing=standby"];
    wait_for_policy(installation, true, &label)?;
    let lease = installation.lease("refusing", "billing", &json!({}))?;
    let held = lease.wait("held", FIRST_ELECTION, LeaseState::is_active)?;
    assert_eq!(held.holder(), Some(first));
    wait_for_labels(installation, &lease, &[(first, Some("active")), (second, Some("standby")), (odd, None)])?;
    cluster.kubectl(&["annotate", "pod", "-n", "refusing", first, "redislease.io/exclude=true"])?;
    wait_for_labels(installation, &lease, &[(first, Some("standby")), (second, Some("active")), (odd, None)])?;
    allow(installation, "refusing")?;
    wait_for_policy(installation, false, &label)?;
    wait_for_labels(installation, &lease, &[(first, Some("standby")), (second, Some("active")), (odd, Some("standby"))])
}

#[test]
fn who_must_stop_is_told_so_although_the_status_cannot_be_written() -> Result<()> {
    let installation = &shared().installation;
    let cluster = installation.control_plane();
    let (lease, before) = held(installation, "unwritten")?;
    lease.wait_for_roles(&before, 3, SOON)?;
    let pod = before.holder().unwrap_or_default();
    refuse(installation, "unwritten", ["redislease.io", "redisleases/status"], "false")?;
    let patch = r#"{"status": {"transitions": 99}}"#;
    let write =
        ["patch", "redislease", "billing", "-n", "unwritten", "--subresource=status", "--type=merge", "--patch", patch];
    wait_for_policy(installation, true, &write)?;
    cluster.kubectl(&["annotate", "pod", "-n", "unwritten", pod, "redislease.io/exclude=true"])?;
    wait_for_labels(installation, &lease, &[(pod, Some("standby"))])?;
    let roles = lease.roles()?;
    assert!(roles.values().all(|role| role.label.as_deref() != Some("active")), "{roles:?}");
    assert!(lease.state()?.is_active(), "the status still says what it said");
    allow(installation, "unwritten")?;
    let after = lease.wait("another holder", FIRST_ELECTION, |now| now.is_active() && now.token() > before.token())?;
    assert_ne!(after.holder(), Some(pod));
    lease.wait_for_roles(&after, 3, AFTER_ONE_LEASE)
}
