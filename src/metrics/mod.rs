//! What is counted and shown on `/metrics`, one file a room.
//!
//! Every series exists from the start, at zero, or `increase()` would miss the first event; and it vanishes with the
//! thing it describes. Label values come from fixed sets or are names of our own resources.

pub mod lease;
pub mod nodes;
pub mod operator;
pub mod panics;

use prometheus::{Registry, TextEncoder};

/// Everything that is registered, in the text format that Prometheus scrapes.
///
/// # Errors
/// Never for the families of this room: when a family has no series or no name.
pub fn page(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lease::{LeaseMetrics, Shown};
    use nodes::NodeMetrics;
    use operator::OperatorMetrics;
    use panics::Panics;

    /// The rows of the table in the README, as the families say them.
    fn rows() -> Vec<String> {
        let registry = Registry::new();
        let _operator = OperatorMetrics::register(&registry, &["lease"]).unwrap();
        let lease = LeaseMetrics::register(&registry, &["HolderStopped"]).unwrap().lease("n", "l", "q");
        let (candidates, conditions) = ([0, 0], Vec::new());
        let holder = Some(["c", "p", "n"]);
        lease.show(&Shown { active: true, held: true, waiting: false, holder, token: 1, candidates, conditions });
        let panics = Panics::register(&registry).unwrap();
        let _nodes = NodeMetrics::register(&registry, &panics).unwrap().quorum("q", &["a".into()], 1, &["timeout"]);
        let families = registry.gather();
        families
            .iter()
            .filter(|family| family.name().starts_with("redislease_"))
            .map(|family| {
                let labels = family.get_metric()[0].get_label().iter().map(|label| format!("`{}`", label.name()));
                let labels = labels.collect::<Vec<_>>().join(" ");
                format!("| `{}` | {labels} | {} |", family.name(), family.help())
            })
            .collect()
    }

    #[test]
    fn the_readme_lists_the_metrics() {
        let readme = include_str!("../../README.md");
        let listed: Vec<_> = readme.lines().filter(|line| line.starts_with("| `redislease_")).collect();
        let rows = rows();
        assert!(listed == rows, "the table in README.md should be\n{}", rows.join("\n"));
    }
}
