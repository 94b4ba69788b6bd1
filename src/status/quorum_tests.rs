use super::*;
use NodeState::{Down, Misconfigured, Quarantined, Up};

/// Nodes a, b, c ... in these states.
struct Fleet {
    states: Vec<NodeState>,
    offset: i64,
    evaluated: bool,
    obstacle: Option<(QuorumReady, &'static str)>,
    mismatch: Option<&'static str>,
    status: RedisQuorumStatus,
    now: Timestamp,
}

impl Fleet {
    fn of(states: &[NodeState]) -> Self {
        Self {
            states: states.to_vec(),
            offset: 0,
            evaluated: true,
            obstacle: None,
            mismatch: None,
            status: RedisQuorumStatus::default(),
            now: "2026-11-21T08:00:00.25Z".parse().unwrap(),
        }
    }

    fn look(&self) -> ComposedQuorum {
        let report = |(name, state): (&'static str, &NodeState)| NodeReport {
            name,
            state: *state,
            version: (*state == Up).then_some("7.0.15"),
            clock_offset_millis: (*state == Up).then_some(self.offset),
            message: (*state != Up).then(|| format!("node {name} (10.0.0.1:6379): gone")),
        };
        let nodes: Vec<NodeReport<'_>> = ["a", "b", "c", "d", "e"].into_iter().zip(&self.states).map(report).collect();
        compose_quorum(&QuorumInputs {
            previous: &self.status,
            generation: Some(1),
            now: self.now,
            fingerprint: Some("f1"),
            nodes: &nodes,
            majority: self.states.len() / 2 + 1,
            evaluated: self.evaluated,
            obstacle: self.obstacle,
            mismatch: self.mismatch,
        })
    }

    /// A second later: what is composed is written, and read back. A further look a minute later must change nothing.
    fn settle(&mut self) -> Vec<String> {
        self.now += std::time::Duration::from_secs(1);
        let composed = self.look();
        self.status = serde_json::from_value(serde_json::to_value(&composed.status).unwrap()).unwrap();
        assert_eq!(self.status, composed.status, "the API server keeps what is written");
        self.now += std::time::Duration::from_mins(1);
        assert_eq!(self.look(), ComposedQuorum { status: self.status.clone(), events: vec![] }, "nothing has happened");
        let event = |notice: &Notice| {
            format!("{} {} {}", notice.reason.importance().as_str(), notice.reason.as_str(), notice.note)
        };
        composed.events.iter().map(event).collect()
    }

    fn turn(&mut self, states: &[NodeState]) -> Vec<String> {
        self.states = states.to_vec();
        self.settle()
    }

    fn conditions(&self) -> String {
        let all = self.status.conditions.iter();
        all.map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_number_of_votes_says_how_healthy_a_quorum_is() {
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
        let mut fleet = Fleet::of(states);
        fleet.settle();
        assert_eq!(fleet.conditions(), conditions, "{states:?}");
    }
}

#[test]
fn a_first_start_says_why_it_waits() {
    let mut fleet = Fleet::of(&[Down, Down, Down]);
    fleet.evaluated = false;
    assert_eq!(fleet.settle(), [""; 0]);
    assert_eq!(fleet.conditions(), "Ready=Unknown/Starting");
    fleet.evaluated = true;
    let events = fleet.turn(&[Quarantined, Quarantined, Quarantined]);
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(events[0], "Warning NodeQuarantined node a (10.0.0.1:6379): gone");
    assert_eq!(fleet.conditions(), "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost");
    let events = fleet.turn(&[Up, Up, Up]);
    assert_eq!(events, ["Normal QuorumRestored 3 of 3 nodes give votes, 2 must."]);
}

#[test]
fn each_step_down_and_up_is_told() {
    let mut fleet = Fleet::of(&[Up; 5]);
    assert_eq!(fleet.settle(), [""; 0]);
    assert_eq!(
        fleet.turn(&[Up, Up, Up, Up, Down]),
        ["Warning QuorumDegraded 4 of 5 nodes give votes, 3 must. Without a vote: e."]
    );
    assert_eq!(
        fleet.turn(&[Up, Up, Up, Down, Down]),
        ["Warning QuorumDegraded 3 of 5 nodes give votes, 3 must. Without a vote: d, e."]
    );
    assert_eq!(
        fleet.turn(&[Up, Up, Down, Down, Down]),
        ["Warning QuorumLost 2 of 5 nodes give votes, 3 must. Without a vote: c, d, e."]
    );
    assert_eq!(fleet.turn(&[Up, Down, Down, Down, Down]), [""; 0], "lost is lost");
    let events = fleet.turn(&[Up, Up, Up, Quarantined, Misconfigured]);
    assert_eq!(
        events,
        [
            "Warning NodeQuarantined node d (10.0.0.1:6379): gone",
            "Warning NodeMisconfigured node e (10.0.0.1:6379): gone",
            "Normal QuorumRestored 3 of 5 nodes give votes, 3 must. Without a vote: d, e.",
        ]
    );
}

#[test]
fn a_mismatch_is_shown_and_hides_no_loss() {
    let mut fleet = Fleet::of(&[Up, Up, Misconfigured]);
    fleet.mismatch = Some("node c: its marker names another configuration");
    fleet.settle();
    assert_eq!(fleet.conditions(), "Ready=True/QuorumAvailable QuorumHealthy=False/ConfigMismatch");
    assert_eq!(
        fleet.turn(&[Up, Down, Misconfigured]),
        ["Warning QuorumLost 1 of 3 nodes give votes, 2 must. Without a vote: b, c."]
    );
    assert_eq!(fleet.conditions(), "Ready=False/QuorumUnavailable QuorumHealthy=False/Lost");
}

#[test]
fn a_quorum_that_cannot_be_opened_says_why() {
    let mut fleet = Fleet::of(&[]);
    for (reason, event) in
        [(QuorumReady::InvalidReference, "InvalidReference"), (QuorumReady::InvalidSpec, "InvalidSpec")]
    {
        fleet.obstacle = Some((reason, "Secret redis does not exist."));
        assert_eq!(fleet.settle(), [format!("Warning {event} Secret redis does not exist.")]);
        assert_eq!(fleet.conditions(), format!("Ready=False/{event}"));
    }
}

#[test]
fn a_clock_that_wanders_costs_no_write() {
    let mut fleet = Fleet::of(&[Up, Up, Up]);
    fleet.offset = 37;
    fleet.settle();
    let shown = |fleet: &Fleet| fleet.status.nodes[0].clock_offset_millis;
    assert_eq!(shown(&fleet), Some(0));
    for offset in [-80, 499, 0, -499] {
        fleet.offset = offset;
        fleet.settle();
        assert_eq!(shown(&fleet), Some(0), "{offset}");
    }
    for (offset, step) in [(-500, -500), (-540, -500), (1_260, 1_300), (i64::MAX, i64::MAX / 100 * 100)] {
        fleet.offset = offset;
        fleet.settle();
        assert_eq!(shown(&fleet), Some(step));
    }
}

#[test]
fn a_node_that_is_away_is_still_the_one_it_was() {
    let mut fleet = Fleet::of(&[Up, Up, Up]);
    fleet.offset = 900;
    fleet.settle();
    fleet.turn(&[Down, Up, Up]);
    let node = &fleet.status.nodes[0];
    assert_eq!((node.state, node.version.as_deref(), node.clock_offset_millis), (Down, Some("7.0.15"), Some(900)));
    assert_eq!(node.message.as_deref(), Some("node a (10.0.0.1:6379): gone"));
    assert_eq!(fleet.status.fingerprint.as_deref(), Some("f1"));
}
