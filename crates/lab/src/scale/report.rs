//! The results as a table, and the goals.

use std::{fmt, time::Duration};

use super::writes::Writes;
use crate::Usage;

/// The table of one run, and whether it met its goals.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many leases.
    pub leases: usize,
    /// One row for each phase, in order.
    pub rows: Vec<Row>,
    /// Every goal that could be measured.
    pub goals: Vec<Goal>,
    /// The phases that could not be measured to their end, and why.
    pub failed: Vec<String>,
}

/// The cost of one phase.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The name of the phase.
    pub phase: String,
    /// The result, in words.
    pub result: String,
    /// Memory and open files of the operator at its end.
    pub(super) usage: Usage,
    /// Its duration, and the CPU time of the operator in it.
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    /// Writes to the API server, as counted by the operator and by the API server.
    pub(super) by_operator: Writes,
    pub(super) by_api_server: Writes,
}

/// A goal and its measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// What was measured.
    pub name: String,
    /// The limit, with its unit.
    pub limit: String,
    /// The figure, with its unit.
    pub measured: String,
    /// Whether the figure is within the limit.
    pub met: bool,
}

impl Report {
    /// Whether all phases could be measured and every goal is met.
    pub fn is_met(&self) -> bool {
        self.failed.is_empty() && self.goals.iter().all(|goal| goal.met)
    }

    /// The row of a phase.
    pub fn row(&self, phase: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.phase == phase)
    }
}

impl Row {
    fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// The table in Markdown, then the goals.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| leases | phase | result | memory, peak (MB) | files | CPU (s) | cores | status writes | all API writes: operator, API server |"
        )?;
        writeln!(f, "|---:|---|---|---:|---:|---:|---:|---:|---:|")?;
        for row in &self.rows {
            let [memory, peak] = [row.usage.memory, row.usage.peak].map(megabytes);
            writeln!(
                f,
                "| {} | {} | {} | {memory:.0}, {peak:.0} | {} | {:.2} | {:.3} | {:.0} | {:.0}, {:.0} |",
                self.leases,
                row.phase,
                row.result,
                row.usage.files,
                row.cpu.as_secs_f64(),
                row.cores(),
                row.by_api_server.status,
                row.by_operator.all(),
                row.by_api_server.all(),
            )?;
        }
        writeln!(f)?;
        for goal in &self.goals {
            let verdict = if goal.met { "ok" } else { "MISSED" };
            writeln!(f, "goal: {}: {} (limit {}): {verdict}", goal.name, goal.measured, goal.limit)?;
        }
        for failed in &self.failed {
            writeln!(f, "not measured: {failed}")?;
        }
        Ok(())
    }
}

/// Millions of bytes.
#[allow(clippy::cast_precision_loss, reason = "a figure for display")]
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
