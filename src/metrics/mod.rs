//! What `/metrics` shows.
//!
//! Every counter exists from the start, at zero, because `increase()` misses a first event without a zero before it; and
//! a series vanishes with what it describes. Label values come from fixed sets or are names of our own resources.

pub mod lease;
pub mod nodes;
pub mod operator;
pub mod panics;

use prometheus::{Registry, TextEncoder};

/// The page of a process.
#[derive(Clone, Debug)]
pub struct Page {
    /// What is counted by objects of the metrics library.
    pub registry: Registry,
    /// The leases.
    pub leases: lease::LeaseMetrics,
}

impl Page {
    /// Everything, in the text format that Prometheus scrapes. With thousands of leases this takes long enough to be done
    /// on a thread that nothing else waits for.
    ///
    /// # Errors
    /// Never for the families of this crate: when a family has no series or no name.
    pub fn encode(&self) -> prometheus::Result<String> {
        let mut page = registered(&self.registry)?;
        self.leases.encode(&mut page);
        Ok(page)
    }
}

/// What is registered, as text.
fn registered(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use lease::{LeaseMetrics, Shown};
    use nodes::NodeMetrics;
    use operator::OperatorMetrics;
    use panics::Panics;

    /// The rows of the table in the README, as the page says them.
    fn rows() -> Vec<String> {
        let registry = Registry::new();
        let _operator = OperatorMetrics::register(&registry, &["lease"]).unwrap();
        let leases = LeaseMetrics::register(&registry, &["HolderStopped"]).unwrap();
        let lease = leases.lease("n", "l", "q");
        let conditions = vec![("Ready", "True")];
        let holder = Some(["c", "p", "n"]);
        lease.show(&Shown {
            active: true,
            held: true,
            waiting: false,
            holder,
            token: 1,
            candidates: [0, 0],
            conditions,
        });
        let _quorum = leases.quorum("q");
        let panics = Panics::register(&registry).unwrap();
        let _nodes = NodeMetrics::register(&registry, &panics).unwrap().quorum("q", &["a".into()], 1, &["timeout"]);
        let page = Page { registry, leases }.encode().unwrap();
        let mut rows: Vec<String> = page.lines().filter_map(|line| row(&page, line)).collect();
        rows.sort();
        rows
    }

    /// The row of a family, by the line that begins with its help.
    fn row(page: &str, line: &str) -> Option<String> {
        let (name, help) = line.strip_prefix("# HELP ")?.split_once(' ')?;
        let series = page.lines().find(|line| line.starts_with(name))?;
        let labels =
            series.split_once('{').map_or("", |(_, labels)| labels.split_once('}').map_or("", |(labels, _)| labels));
        let labels = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
        let labels: BTreeSet<&str> = labels.filter(|name| *name != "le").collect();
        let labels: Vec<String> = labels.iter().map(|name| format!("`{name}`")).collect();
        name.starts_with("redislease_").then(|| format!("| `{name}` | {} | {help} |", labels.join(" ")))
    }

    #[test]
    fn the_readme_lists_the_metrics() {
        let readme = include_str!("../../README.md");
        let listed: Vec<_> = readme.lines().filter(|line| line.starts_with("| `redislease_")).collect();
        let rows = rows();
        assert!(listed == rows, "the table in README.md should be\n{}", rows.join("\n"));
    }
}
