//! The label on the pods, as somebody who watches them sees it.

use std::collections::BTreeMap;

use redislease_lab::{Result, Watch, WatchEvent};
use serde_json::{Value, json};

use crate::holder::held;
use crate::world::{FIRST_ELECTION, SOON, shared};

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
