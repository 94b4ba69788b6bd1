//! The page /metrics of an operator or the API server.

use std::time::Instant;

use crate::unix_time;

/// The page, and when it was read.
#[derive(Debug, Clone)]
pub struct Metrics {
    page: String,
    pub(crate) read: Instant,
    /// The same moment, in seconds since 1970.
    pub(crate) unix: f64,
}

impl Metrics {
    pub(crate) fn read_now(page: String) -> Self {
        Self { page, read: Instant::now(), unix: unix_time().as_secs_f64() }
    }

    /// The text of the page.
    pub fn text(&self) -> &str {
        &self.page
    }

    /// The lines of the series with this name that have all of these labels.
    pub fn series<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a str> {
        self.page.lines().filter(move |line| {
            let Some(rest) = line.strip_prefix(name) else { return false };
            // The label values in tests contain no quotes or braces.
            let has = |(label, value): &(&str, &str)| {
                let pair = format!("{label}=\"{value}\"");
                rest.contains(&format!("{{{pair}")) || rest.contains(&format!(",{pair}"))
            };
            rest.starts_with(['{', ' ']) && labels.iter().all(has)
        })
    }

    /// The sum of the series with this name that have all of these labels; `None` when there is no such series.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values: Vec<f64> = self
            .series(name, labels)
            .filter_map(|line| line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn series_are_found_by_name_and_labels() {
        let page = "# HELP up Up.\nup 1\nup_total{node=\"a\",kind=\"x\"} 2\nup_total{node=\"ab\",kind=\"x\"} 40\n";
        let metrics = Metrics::read_now(page.to_owned());
        assert_eq!(metrics.value("up", &[]), Some(1.0));
        assert_eq!(metrics.value("up_total", &[("kind", "x")]), Some(42.0));
        assert_eq!(metrics.value("up_total", &[("kind", "x"), ("node", "a")]), Some(2.0));
        assert_eq!(metrics.value("up_total", &[("ode", "a")]), None);
        assert_eq!(metrics.value("down", &[]), None);
    }
}
