//! Metrics of the Redis nodes of each quorum.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use super::panics::Panics;

/// The states that `redislease_quorum_nodes` counts.
pub const STATES: [&str; 4] = ["up", "down", "quarantined", "misconfigured"];

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
}

impl NodeMetrics {
    /// Registers the families with `registry`. Panics of node tasks are counted in `panics`.
    ///
    /// # Errors
    /// A name is already registered.
    pub fn register(registry: &Registry, panics: &Panics) -> prometheus::Result<Self> {
        let gauge = |name, help, labels: &[&str]| -> prometheus::Result<IntGaugeVec> {
            let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok(family)
        };
        let counter = |name, help, labels: &[&str]| -> prometheus::Result<IntCounterVec> {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok(family)
        };
        let offset = GaugeVec::new(
            Opts::new("redislease_redis_clock_offset_seconds", "Clock of the Redis node minus clock of this process."),
            &NODE,
        )?;
        registry.register(Box::new(offset.clone()))?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "redislease_redis_command_duration_seconds",
                "Time until the Redis node answers a command. Commands without an answer are in redislease_redis_errors_total.",
            )
            .buckets(SECONDS.to_vec()),
            &NODE,
        )?;
        registry.register(Box::new(duration.clone()))?;
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
        })
    }

    /// The counter of panics in node tasks.
    pub const fn panics(&self) -> &Panics {
        &self.panics
    }

    /// Adds the series of one quorum. They are removed when the registration is dropped, which must happen before a
    /// quorum with the same name is added.
    pub fn quorum(
        &self,
        name: &str,
        fingerprint: &str,
        nodes: &[String],
        majority: usize,
        kinds: &[&'static str],
    ) -> (QuorumSeries, Registration) {
        self.required.with_label_values(&[name]).set(as_gauge(majority));
        self.info.with_label_values(&[name, fingerprint]).set(1);
        let series = QuorumSeries {
            states: STATES.map(|state| self.nodes.with_label_values(&[name, state])),
            mismatch: self.mismatch.with_label_values(&[name]),
            nodes: nodes.iter().map(|node| self.node(name, node, kinds)).collect(),
        };
        let registration = Registration {
            quorum: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
            nodes: nodes.to_vec(),
            kinds: kinds.to_vec(),
            families: self.clone(),
        };
        (series, registration)
    }

    fn node(&self, quorum: &str, node: &str, kinds: &[&'static str]) -> NodeSeries {
        let labels = [quorum, node];
        NodeSeries {
            up: self.up.with_label_values(&labels),
            offset: self.offset.with_label_values(&labels),
            duration: self.duration.with_label_values(&labels),
            restarts: self.restarts.with_label_values(&labels),
            errors: kinds.iter().map(|kind| (*kind, self.errors.with_label_values(&[quorum, node, kind]))).collect(),
        }
    }
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The series of one quorum and its nodes.
#[derive(Debug)]
pub struct QuorumSeries {
    states: [IntGauge; STATES.len()],
    mismatch: IntGauge,
    nodes: Vec<NodeSeries>,
}

impl QuorumSeries {
    /// The series of each node, in the order of the configuration.
    pub fn nodes(&self) -> &[NodeSeries] {
        &self.nodes
    }

    /// Sets the number of nodes in each of [`STATES`], and of nodes with another configuration.
    pub fn show(&self, states: [usize; STATES.len()], mismatch: usize) {
        for (gauge, count) in self.states.iter().zip(states) {
            gauge.set(as_gauge(count));
        }
        self.mismatch.set(as_gauge(mismatch));
    }
}

/// Removes the series of one quorum when dropped.
#[derive(Debug)]
pub struct Registration {
    quorum: String,
    fingerprint: String,
    nodes: Vec<String>,
    kinds: Vec<&'static str>,
    families: NodeMetrics,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let families = &self.families;
        let quorum = self.quorum.as_str();
        // An error means that the series is already removed.
        for state in STATES {
            let _ = families.nodes.remove_label_values(&[quorum, state]);
        }
        let _ = families.required.remove_label_values(&[quorum]);
        let _ = families.mismatch.remove_label_values(&[quorum]);
        let _ = families.info.remove_label_values(&[quorum, &self.fingerprint]);
        for node in &self.nodes {
            let labels = [quorum, node.as_str()];
            let _ = families.up.remove_label_values(&labels);
            let _ = families.offset.remove_label_values(&labels);
            let _ = families.duration.remove_label_values(&labels);
            let _ = families.restarts.remove_label_values(&labels);
            for kind in &self.kinds {
                let _ = families.errors.remove_label_values(&[quorum, node, kind]);
            }
        }
    }
}

/// The series of one node.
#[derive(Clone, Debug)]
pub struct NodeSeries {
    /// 1 while it votes.
    pub up: IntGauge,
    /// Its wall clock minus this process's, in seconds.
    pub offset: Gauge,
    /// The duration of its answers, in seconds.
    pub duration: Histogram,
    /// The number of times it returned as another process.
    pub restarts: IntCounter,
    errors: Vec<(&'static str, IntCounter)>,
}

impl NodeSeries {
    /// Counts one error. An unregistered kind is ignored.
    pub fn error(&self, kind: &str) {
        if let Some((_, counter)) = self.errors.iter().find(|(name, _)| *name == kind) {
            counter.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    fn page(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn every_series_exists_at_zero_and_is_removed_with_its_quorum() {
        let registry = Registry::new();
        let metrics = NodeMetrics::register(&registry, &Panics::register(&registry).unwrap()).unwrap();
        let (_, kept) = metrics.quorum("kept", "f0", &["a".into()], 1, &["timeout"]);
        let (quorum, registration) = metrics.quorum("q", "f1", &["a".into(), "b".into()], 2, &["timeout", "auth"]);
        quorum.nodes()[1].error("auth");
        quorum.show([1, 1, 0, 0], 1);
        let before = page(&registry);
        for line in [
            r#"redislease_quorum_nodes{quorum="q",state="misconfigured"} 0"#,
            r#"redislease_quorum_nodes{quorum="q",state="up"} 1"#,
            r#"redislease_quorum_required_nodes{quorum="q"} 2"#,
            r#"redislease_quorum_config_mismatch{quorum="q"} 1"#,
            r#"redislease_quorum_info{fingerprint="f1",quorum="q"} 1"#,
            r#"redislease_redis_up{quorum="q",redis_node="a"} 0"#,
            r#"redislease_redis_clock_offset_seconds{quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_command_duration_seconds_count{quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_errors_total{kind="timeout",quorum="q",redis_node="b"} 0"#,
            r#"redislease_redis_errors_total{kind="auth",quorum="q",redis_node="b"} 1"#,
            r#"redislease_redis_restarts_total{quorum="q",redis_node="a"} 0"#,
        ] {
            assert!(before.contains(line), "{line} is missing in\n{before}");
        }
        drop(registration);
        let after = page(&registry);
        assert!(!after.contains(r#"quorum="q""#), "{after}");
        assert!(after.contains(r#"quorum="kept""#), "{after}");
        drop(kept);
    }
}
