use super::*;
use NodeState::{Down, Misconfigured, Quarantined, Up};
use redislease_core::quorum::majority;

/// A quorum with nodes a, b, c ... in these states, and its status as the API server has it.
#[derive(Default)]
struct Scenario {
    states: Vec<NodeState>,
    offset: i64,
    last_refusal: Option<&'static str>,
    evaluated: bool,
    obstacle: Option<(QuorumReady, &'static str)>,
    mismatch: Option<&'static str>,
    leader: Option<(&'static str, bool)>,
    status: RedisQuorumStatus,
    now: Timestamp,
}

impl Scenario {
    fn of(states: &[NodeState]) -> Self {
        Self {
            states: states.to_vec(),
            evaluated: true,
            now: "2026-11-21T08:00:00.25Z".parse().unwrap(),
            ..Self::default()
        }
    }

    fn compose(&self) -> ComposedQuorum {
        let report = |(name, state): (&str, &NodeState)| NodeStatus {
            name: name.to_owned(),
            state: *state,
            version: (*state == Up).then(|| "7.0.15".to_owned()),
            clock_offset_millis: (*state == Up).then_some(self.offset),
            message: (*state != Up).then(|| format!("node {name} (10.0.0.1:6379): no answer")),
            last_refusal: self.last_refusal.map(str::to_owned),
        };
        let nodes: Vec<NodeStatus> = ["a", "b", "c", "d", "e"].into_iter().zip(&self.states).map(report).collect();
        compose_quorum(&QuorumInputs {
            previous: &self.status,
            generation: Some(1),
            now: self.now,
            fingerprint: Some("f1"),
            nodes: &nodes,
            majority: majority(self.states.len()),
            evaluated: self.evaluated,
            obstacle: self.obstacle,
            mismatch: self.mismatch,
            leader: self.leader,
        })
    }

    /// One second later, composes the status, writes it and reads it back. Checks that composing it again one minute later changes
    /// nothing. Returns the events.
    fn step(&mut self) -> Vec<String> {
        self.now += std::time::Duration::from_secs(1);
        let composed = self.compose();
        self.status = serde_json::from_value(serde_json::to_value(&composed.status).unwrap()).unwrap();
        assert_eq!(self.status, composed.status, "the status survives serialization");
        self.now += std::time::Duration::from_mins(1);
        assert_eq!(
            self.compose(),
            ComposedQuorum { status: self.status.clone(), events: vec![] },
            "composing again changes nothing"
        );
        let event = |notice: &Notice| {
            format!("{} {} {}", notice.reason.importance().as_str(), notice.reason.as_str(), notice.note)
        };
        composed.events.iter().map(event).collect()
    }

    fn step_to(&mut self, states: &[NodeState]) -> Vec<String> {
        self.states = states.to_vec();
        self.step()
    }

    fn conditions(&self) -> String {
        let all = self.status.conditions.iter();
        all.map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn health_depends_on_the_number_of_votes() {
    let table: [(&[NodeState], &str); 10] = [
        (&[Up, Up, Up], "Ready=True/QuorumAvailable QuorumHealthy=True/AllReachable"),
        (&[Up, Down, Up], "Ready=True/QuorumAvailable QuorumHealthy=False/AtRisk"),
        (&[Up, Quarantined, Up], "Ready=True/QuorumAvailable QuorumHealthy=False/AtRisk"),
        (&[Up, Down, Misconfigured], "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost"),
        (&[Down, Down, Down], "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost"),
        (&[Up, Up, Up, Up, Down], "Ready=True/QuorumAvailable QuorumHealthy=False/Degraded"),
        (&[Up, Up, Up, Down, Down], "Ready=True/QuorumAvailable QuorumHealthy=False/AtRisk"),
        (&[Up, Up, Up, Down], "Ready=True/QuorumAvailable QuorumHealthy=False/AtRisk"),
        (&[Up], "Ready=True/QuorumAvailable QuorumHealthy=True/AllReachable"),
        (&[Down], "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost"),
    ];
    for (states, conditions) in table {
        let mut scenario = Scenario::of(states);
        scenario.step();
        assert_eq!(scenario.conditions(), conditions, "{states:?}");
    }
}

#[test]
fn a_quorum_without_a_majority_says_why_a_node_does_not_vote() {
    let mut scenario = Scenario::of(&[Up, Down, Down]);
    scenario.step();
    let ready = scenario.status.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    let says = "1 of 3 nodes vote (2 required). Not voting: b, c. node b (10.0.0.1:6379): no answer";
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("QuorumUnavailable", says));
}

#[test]
fn first_start_reports_quarantined_nodes() {
    let mut scenario = Scenario::of(&[Down, Down, Down]);
    scenario.evaluated = false;
    assert_eq!(scenario.step(), [""; 0]);
    assert_eq!(scenario.conditions(), "Ready=Unknown/Starting");
    scenario.evaluated = true;
    let events = scenario.step_to(&[Quarantined, Quarantined, Quarantined]);
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(events[0], "Warning NodeQuarantined node a (10.0.0.1:6379): no answer");
    assert_eq!(scenario.conditions(), "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost");
    let events = scenario.step_to(&[Up, Up, Up]);
    assert_eq!(events, ["Normal QuorumRestored 3 of 3 nodes vote (2 required)."]);
}

#[test]
fn the_health_of_a_quorum_that_is_not_opened_is_unknown() {
    let mut scenario = Scenario::of(&[Up, Up, Up]);
    scenario.step();
    // Another process starts while the spec is invalid.
    scenario.obstacle = Some((QuorumReady::InvalidSpec, "spec.nodes: two nodes have one name"));
    scenario.step_to(&[]);
    assert_eq!(scenario.conditions(), "Ready=False/InvalidSpec QuorumHealthy=Unknown/NotConnected");
    assert_eq!(scenario.status.votes, None);
    scenario.obstacle = None;
    scenario.step_to(&[Up, Up, Up]);
    assert_eq!(scenario.conditions(), "Ready=True/QuorumAvailable QuorumHealthy=True/AllReachable");
}

#[test]
fn each_change_of_health_has_an_event() {
    let mut scenario = Scenario::of(&[Up; 5]);
    assert_eq!(scenario.step(), [""; 0]);
    assert_eq!(
        scenario.step_to(&[Up, Up, Up, Up, Down]),
        ["Warning QuorumDegraded 4 of 5 nodes vote (3 required). Not voting: e."]
    );
    assert_eq!(
        scenario.step_to(&[Up, Up, Up, Down, Down]),
        ["Warning QuorumDegraded 3 of 5 nodes vote (3 required). Not voting: d, e."]
    );
    assert_eq!(
        scenario.step_to(&[Up, Up, Down, Down, Down]),
        ["Warning QuorumLost 2 of 5 nodes vote (3 required). Not voting: c, d, e."]
    );
    assert_eq!(scenario.step_to(&[Up, Down, Down, Down, Down]), [""; 0], "the quorum was lost already");
    let events = scenario.step_to(&[Up, Up, Up, Quarantined, Misconfigured]);
    assert_eq!(
        events,
        [
            "Warning NodeQuarantined node d (10.0.0.1:6379): no answer",
            "Warning NodeMisconfigured node e (10.0.0.1:6379): no answer",
            "Normal QuorumRestored 3 of 5 nodes vote (3 required). Not voting: d, e.",
        ]
    );
}

#[test]
fn config_mismatch_does_not_hide_a_lost_quorum() {
    let mut scenario = Scenario::of(&[Up, Up, Misconfigured]);
    scenario.mismatch = Some("node c: its marker names another configuration");
    scenario.step();
    assert_eq!(scenario.conditions(), "Ready=True/QuorumAvailable QuorumHealthy=False/ConfigMismatch");
    assert_eq!(
        scenario.step_to(&[Up, Down, Misconfigured]),
        ["Warning QuorumLost 1 of 3 nodes vote (2 required). Not voting: b, c."]
    );
    assert_eq!(scenario.conditions(), "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost");
}

#[test]
fn obstacle_is_shown_with_an_event() {
    let mut scenario = Scenario::of(&[]);
    for (reason, event) in
        [(QuorumReady::InvalidReference, "InvalidReference"), (QuorumReady::InvalidSpec, "InvalidSpec")]
    {
        scenario.obstacle = Some((reason, "Secret redis does not exist."));
        assert_eq!(scenario.step(), [format!("Warning {event} Secret redis does not exist.")]);
        assert_eq!(scenario.conditions(), format!("Ready=False/{event} QuorumHealthy=Unknown/NotConnected"));
    }
}

#[test]
fn small_clock_changes_do_not_change_status() {
    let mut scenario = Scenario::of(&[Up, Up, Up]);
    scenario.offset = 37;
    scenario.step();
    let shown = |scenario: &Scenario| scenario.status.nodes[0].clock_offset_millis;
    assert_eq!(shown(&scenario), Some(0));
    for offset in [-80, 499, 0, -499] {
        scenario.offset = offset;
        scenario.step();
        assert_eq!(shown(&scenario), Some(0), "{offset}");
    }
    for (offset, step) in [(-500, -500), (-540, -500), (1_260, 1_300), (i64::MAX, i64::MAX / 100 * 100)] {
        scenario.offset = offset;
        scenario.step();
        assert_eq!(shown(&scenario), Some(step));
    }
}

#[test]
fn node_that_is_down_keeps_version_and_clock_offset() {
    let mut scenario = Scenario::of(&[Up, Up, Up]);
    scenario.offset = 900;
    scenario.step();
    scenario.step_to(&[Down, Up, Up]);
    let node = &scenario.status.nodes[0];
    assert_eq!((node.state, node.version.as_deref(), node.clock_offset_millis), (Down, Some("7.0.15"), Some(900)));
    assert_eq!(node.message.as_deref(), Some("node a (10.0.0.1:6379): no answer"));
    assert_eq!(scenario.status.fingerprint.as_deref(), Some("f1"));
}

#[test]
fn the_last_refusal_stays_after_a_restart_of_the_operator() {
    let mut scenario = Scenario::of(&[Up, Up, Up]);
    scenario.last_refusal = Some("the server refuses the command PTTL");
    scenario.step();
    scenario.last_refusal = None;
    scenario.step();
    assert_eq!(scenario.status.nodes[0].last_refusal.as_deref(), Some("the server refuses the command PTTL"));
}

#[test]
fn leader_changes_only_when_another_replica_takes_over() {
    let mut scenario = Scenario::of(&[Up, Up, Up]);
    scenario.step();
    assert_eq!(scenario.status.leader, None, "no replica was elected yet");
    let mut since = None;
    for (leader, instance, transitions, claimed) in [
        (Some(("operator-0", false)), "operator-0", 0, false),
        (Some(("operator-0", false)), "operator-0", 0, false),
        (None, "operator-0", 0, false),
        (Some(("operator-1", false)), "operator-1", 1, false),
        (Some(("operator-0", true)), "operator-0", 2, true),
        (None, "operator-0", 2, true),
        // It has the lock now.
        (Some(("operator-0", false)), "operator-0", 2, false),
        // Nobody has replaced its name.
        (Some(("operator-0", true)), "operator-0", 2, false),
    ] {
        let before = scenario.status.leader.clone();
        scenario.leader = leader;
        scenario.step();
        let shown = scenario.status.leader.clone().unwrap();
        assert_eq!((shown.instance.as_str(), shown.transitions, shown.claimed), (instance, transitions, claimed));
        let moved = before.is_none_or(|before| before.instance != instance);
        assert_eq!(since.as_ref() != Some(&shown.since), moved, "the time moves with the replica");
        since = Some(shown.since);
    }
}
