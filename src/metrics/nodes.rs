//! Metrics of the Redis nodes of each quorum.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use redislease_core::quorum::{Node, majority};
use redislease_core::time::Millis;
use redislease_lock::nodes::{Config, Misconfiguration, NodeState, NodeStatus, NodesObserver, Reason};

use super::families::Families;
use super::panics::Panics;
use crate::locked::locked;

/// The states that `redislease_quorum_nodes` counts.
const STATES: [&str; 4] = NodeState::NAMES;

/// Buckets from a server on the same machine to one that exhausts the longest timeout, in seconds.
const SECONDS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.01, 0.05, 0.1, 0.5, 2.5];

const NODE: [&str; 2] = ["quorum", "redis_node"];

/// The families, registered once in a process.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    nodes: IntGaugeVec,
    required: IntGaugeVec,
    mismatch: IntGaugeVec,
    info: IntGaugeVec,
    up: IntGaugeVec,
    offset: GaugeVec,
    duration: HistogramVec,
    errors: IntCounterVec,
    restarts: IntCounterVec,
    panics: Panics,
    /// The quorum that was added last with each name. It may be added while the one before it is closing.
    newest: Arc<Mutex<BTreeMap<String, Arc<Membership>>>>,
}

/// The labels of a quorum and its nodes.
#[derive(Debug)]
struct Membership {
    quorum: String,
    fingerprint: String,
    nodes: Vec<String>,
}

impl NodeMetrics {
    /// Registers the families with `registry`. Panics of node tasks are counted in `panics`.
    ///
    /// # Errors
    /// A name is already registered.
    pub fn register(registry: &Registry, panics: &Panics) -> prometheus::Result<Self> {
        let families = Families(registry);
        let gauge = |name, help, labels: &[&str]| families.gauge(name, help, labels);
        let counter = |name, help, labels: &[&str]| families.counter(name, help, labels);
        let offset = families.add(GaugeVec::new(
            Opts::new(
                "redislease_redis_clock_offset_seconds",
                "Clock of the Redis node minus clock of this process; NaN while the node is down.",
            ),
            &NODE,
        ))?;
        let duration = families.histogram(
            "redislease_redis_command_duration_seconds",
            "Time until the Redis node answers a command. Commands without an answer are in redislease_redis_errors_total.",
            &NODE,
            &SECONDS,
        )?;
        Ok(Self {
            nodes: gauge("redislease_quorum_nodes", "Redis nodes of the quorum, by state.", &["quorum", "state"])?,
            required: gauge(
                "redislease_quorum_required_nodes",
                "Redis nodes that make a majority of the quorum.",
                &["quorum"],
            )?,
            mismatch: gauge(
                "redislease_quorum_config_mismatch",
                "Redis nodes whose marker names another configuration of the quorum.",
                &["quorum"],
            )?,
            info: gauge(
                "redislease_quorum_info",
                "Always 1; the label fingerprint is equal in all clusters that use the same quorum.",
                &["quorum", "fingerprint"],
            )?,
            up: gauge("redislease_redis_up", "1 while the Redis node votes.", &NODE)?,
            offset,
            duration,
            errors: counter(
                "redislease_redis_errors_total",
                "Requests without a vote and failed connections, by kind of error.",
                &["quorum", "redis_node", "kind"],
            )?,
            restarts: counter(
                "redislease_redis_restarts_total",
                "Restarts of the Redis node: how often it returned as another server process.",
                &NODE,
            )?,
            panics: panics.clone(),
            newest: Arc::default(),
        })
    }

    /// Adds the series of a quorum, which the returned observer updates. They are removed when the quorum is closed, or the
    /// observer is dropped. A quorum that is added with the same name takes over the series that both have.
    pub fn quorum(&self, config: &Config) -> Arc<dyn NodesObserver> {
        let fingerprint = config.membership.fingerprint.to_string();
        let nodes: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
        Arc::new(self.observer(&config.quorum, &fingerprint, nodes))
    }

    fn observer(&self, name: &str, fingerprint: &str, nodes: Vec<String>) -> QuorumSeries {
        let membership = Arc::new(Membership { quorum: name.to_owned(), fingerprint: fingerprint.to_owned(), nodes });
        let nodes = &membership.nodes;
        // Series are added and removed under one lock.
        let mut newest = locked(&self.newest);
        newest.insert(name.to_owned(), membership.clone());
        self.required.with_label_values(&[name]).set(as_gauge(majority(nodes.len())));
        self.info.with_label_values(&[name, fingerprint]).set(1);
        QuorumSeries {
            states: STATES.map(|state| self.nodes.with_label_values(&[name, state])),
            mismatch: self.mismatch.with_label_values(&[name]),
            panics: self.panics.nodes.clone(),
            nodes: nodes.iter().map(|node| self.node(name, node)).collect(),
            registration: Mutex::new(Some(Registration { membership: membership.clone(), families: self.clone() })),
        }
    }

    fn node(&self, quorum: &str, node: &str) -> NodeSeries {
        let labels = [quorum, node];
        let errors = |reason: Reason| self.errors.with_label_values(&[quorum, node, reason.as_str()]);
        NodeSeries {
            up: self.up.with_label_values(&labels),
            offset: self.offset.with_label_values(&labels),
            duration: self.duration.with_label_values(&labels),
            restarts: self.restarts.with_label_values(&labels),
            errors: Reason::ALL.iter().map(|reason| (*reason, errors(*reason))).collect(),
        }
    }
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The series of one quorum and its nodes.
#[derive(Debug)]
struct QuorumSeries {
    states: [IntGauge; STATES.len()],
    mismatch: IntGauge,
    panics: IntCounter,
    nodes: Vec<NodeSeries>,
    /// `None` after the quorum was closed.
    registration: Mutex<Option<Registration>>,
}

impl QuorumSeries {
    fn node(&self, node: Node) -> Option<&NodeSeries> {
        self.nodes.get(node.index())
    }
}

impl NodesObserver for QuorumSeries {
    fn changed(&self, statuses: &[NodeStatus]) {
        let registration = locked(&self.registration);
        if !registration.as_ref().is_some_and(Registration::is_newest) {
            return;
        }
        for (index, gauge) in self.states.iter().enumerate() {
            gauge.set(as_gauge(statuses.iter().filter(|status| status.state.index() == index).count()));
        }
        let mismatch = NodeState::Misconfigured(Misconfiguration::ConfigMismatch);
        self.mismatch.set(as_gauge(statuses.iter().filter(|status| status.state == mismatch).count()));
        for (status, series) in statuses.iter().zip(&self.nodes) {
            series.up.set(i64::from(status.state == NodeState::Up));
            if status.state == NodeState::Down {
                // The clock was last read before.
                series.offset.set(f64::NAN);
            }
        }
    }

    fn clock_offset(&self, node: Node, offset_ms: i64) {
        let Some(series) = self.node(node) else { return };
        let seconds = Duration::from_millis(offset_ms.unsigned_abs()).as_secs_f64();
        series.offset.set(if offset_ms < 0 { -seconds } else { seconds });
    }

    fn answered(&self, node: Node, took: Millis) {
        if let Some(series) = self.node(node) {
            series.duration.observe(Duration::from(took).as_secs_f64());
        }
    }

    fn failed(&self, node: Node, reason: Reason) {
        let Some(series) = self.node(node) else { return };
        if let Some((_, counter)) = series.errors.iter().find(|(kind, _)| *kind == reason) {
            counter.inc();
        }
    }

    fn restarted(&self, node: Node) {
        if let Some(series) = self.node(node) {
            series.restarts.inc();
        }
    }

    fn panicked(&self) {
        self.panics.inc();
    }

    fn closed(&self) {
        drop(locked(&self.registration).take());
    }
}

/// Removes the series of one quorum when dropped, but for those of a newer one with the same name.
#[derive(Debug)]
struct Registration {
    membership: Arc<Membership>,
    families: NodeMetrics,
}

impl Registration {
    fn is_newest(&self) -> bool {
        let newest = locked(&self.families.newest);
        newest.get(&self.membership.quorum).is_some_and(|newest| Arc::ptr_eq(newest, &self.membership))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (families, Membership { quorum, fingerprint, nodes }) = (&self.families, &*self.membership);
        let mut newest = locked(&families.newest);
        let newer = newest.get(quorum).filter(|newest| !Arc::ptr_eq(newest, &self.membership)).cloned();
        // An error means that the series is already removed.
        if newer.is_none() {
            newest.remove(quorum);
            for state in STATES {
                let _ = families.nodes.remove_label_values(&[quorum, state]);
            }
            let _ = families.required.remove_label_values(&[quorum]);
            let _ = families.mismatch.remove_label_values(&[quorum]);
        }
        if newer.as_ref().is_none_or(|newer| newer.fingerprint != *fingerprint) {
            let _ = families.info.remove_label_values(&[quorum, fingerprint]);
        }
        for node in nodes.iter().filter(|node| !newer.as_ref().is_some_and(|newer| newer.nodes.contains(node))) {
            let labels = [quorum.as_str(), node.as_str()];
            let _ = families.up.remove_label_values(&labels);
            let _ = families.offset.remove_label_values(&labels);
            let _ = families.duration.remove_label_values(&labels);
            let _ = families.restarts.remove_label_values(&labels);
            for reason in Reason::ALL {
                let _ = families.errors.remove_label_values(&[quorum.as_str(), node.as_str(), reason.as_str()]);
            }
        }
    }
}

/// The series of one node.
#[derive(Debug)]
struct NodeSeries {
    /// 1 while it votes.
    up: IntGauge,
    /// Its wall clock minus this process's, in seconds.
    offset: Gauge,
    /// The duration of its answers, in seconds.
    duration: Histogram,
    /// The number of times it returned as another process.
    restarts: IntCounter,
    /// Requests without a vote and failed connections, by kind.
    errors: Vec<(Reason, IntCounter)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page::registered;

    fn status(name: &str, state: NodeState) -> NodeStatus {
        NodeStatus {
            name: name.into(),
            address: format!("{name}:6379"),
            state,
            reason: None,
            message: String::new(),
            last_refusal: None,
            version: String::new(),
            clock_offset_ms: None,
        }
    }

    #[test]
    fn every_series_exists_at_zero_and_is_removed_with_its_quorum() {
        let registry = Registry::new();
        let metrics = NodeMetrics::register(&registry, &Panics::register(&registry).unwrap()).unwrap();
        let kept = metrics.observer("kept", "f0", vec!["a".into()]);
        let quorum = metrics.observer("q", "f1", vec!["a".into(), "b".into()]);
        quorum.failed(Node(1), Reason::Auth);
        let mismatch = NodeState::Misconfigured(Misconfiguration::ConfigMismatch);
        quorum.changed(&[status("a", NodeState::Up), status("b", mismatch)]);
        quorum.answered(Node(0), Millis(3));
        quorum.clock_offset(Node(0), -1500);
        quorum.restarted(Node(0));
        // A node that the quorum does not have is ignored.
        quorum.failed(Node(2), Reason::Auth);
        let before = registered(&registry).unwrap();
        for line in [
            r#"redislease_quorum_nodes{quorum="q",state="down"} 0"#,
            r#"redislease_quorum_nodes{quorum="q",state="misconfigured"} 1"#,
            r#"redislease_quorum_nodes{quorum="q",state="up"} 1"#,
            r#"redislease_quorum_required_nodes{quorum="q"} 2"#,
            r#"redislease_quorum_config_mismatch{quorum="q"} 1"#,
            r#"redislease_quorum_info{fingerprint="f1",quorum="q"} 1"#,
            r#"redislease_redis_up{quorum="q",redis_node="a"} 1"#,
            r#"redislease_redis_up{quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_clock_offset_seconds{quorum="q",redis_node="a"} -1.5"#,
            r#"redislease_redis_clock_offset_seconds{quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_command_duration_seconds_sum{quorum="q",redis_node="a"} 0.003"#,
            r#"redislease_redis_command_duration_seconds_count{quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_errors_total{kind="timeout",quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_errors_total{kind="auth",quorum="q",redis_node="b"} 1"#,
            r#"redislease_redis_restarts_total{quorum="q",redis_node="a"} 1"#,
        ] {
            assert!(before.contains(line), "{line} is missing in\n{before}");
        }
        quorum.closed();
        quorum.failed(Node(1), Reason::Auth);
        let after = registered(&registry).unwrap();
        assert!(!after.contains(r#"quorum="q""#), "{after}");
        assert!(after.contains(r#"quorum="kept""#), "{after}");
        drop(kept);
    }

    /// The machine of the leader's lock keeps the old connections for a moment longer than the leases do.
    #[test]
    fn a_quorum_that_is_closed_after_its_successor_was_added_leaves_the_series_of_the_successor() {
        let registry = Registry::new();
        let metrics = NodeMetrics::register(&registry, &Panics::register(&registry).unwrap()).unwrap();
        let old = metrics.observer("q", "f1", vec!["a".into(), "b".into()]);
        old.changed(&[status("a", NodeState::Up), status("b", NodeState::Up)]);
        let new = metrics.observer("q", "f2", vec!["a".into(), "c".into()]);
        new.changed(&[status("a", NodeState::Up), status("c", NodeState::Down)]);
        old.changed(&[status("a", NodeState::Down), status("b", NodeState::Down)]);
        old.closed();
        let page_after = registered(&registry).unwrap();
        for line in [
            r#"redislease_quorum_nodes{quorum="q",state="up"} 1"#,
            r#"redislease_quorum_required_nodes{quorum="q"} 2"#,
            r#"redislease_quorum_info{fingerprint="f2",quorum="q"} 1"#,
            r#"redislease_redis_up{quorum="q",redis_node="a"} 1"#,
            r#"redislease_redis_up{quorum="q",redis_node="c"} 0"#,
        ] {
            assert!(page_after.contains(line), "{line} is missing in\n{page_after}");
        }
        assert!(!page_after.contains(r#"redis_node="b""#) && !page_after.contains("f1"), "{page_after}");
        drop(new);
        assert!(!registered(&registry).unwrap().contains(r#"quorum="q""#));
    }

    #[test]
    fn the_clock_of_a_node_without_a_connection_is_not_known() {
        let registry = Registry::new();
        let metrics = NodeMetrics::register(&registry, &Panics::register(&registry).unwrap()).unwrap();
        let quorum = metrics.observer("q", "f1", vec!["a".into()]);
        quorum.clock_offset(Node(0), -1500);
        quorum.changed(&[status("a", NodeState::Down)]);
        let unknown = r#"redislease_redis_clock_offset_seconds{quorum="q",redis_node="a"} NaN"#;
        assert!(registered(&registry).unwrap().contains(unknown), "{}", registered(&registry).unwrap());
        quorum.clock_offset(Node(0), 20);
        assert!(!registered(&registry).unwrap().contains("} NaN"));
    }
}
