//! A page of metrics, as far as tests ask.

/// What /metrics answered.
#[derive(Debug, Clone)]
pub struct Metrics(pub(super) String);

impl Metrics {
    /// The page.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The lines of the series of one name that have all of these labels, as they stand on the page.
    pub fn series<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter(move |line| {
            let Some(rest) = line.strip_prefix(name) else { return false };
            // Values here hold neither quotes nor braces: names of objects, words of fixed sets.
            let has = |(label, value): &(&str, &str)| {
                let pair = format!("{label}=\"{value}\"");
                rest.contains(&format!("{{{pair}")) || rest.contains(&format!(",{pair}"))
            };
            rest.starts_with(['{', ' ']) && labels.iter().all(has)
        })
    }

    /// The sum over the series of one name that have all of these labels; `None` when there is none.
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
        let metrics = Metrics(page.to_owned());
        assert_eq!(metrics.value("up", &[]), Some(1.0));
        assert_eq!(metrics.value("up_total", &[("kind", "x")]), Some(42.0));
        assert_eq!(metrics.value("up_total", &[("kind", "x"), ("node", "a")]), Some(2.0));
        assert_eq!(metrics.value("up_total", &[("ode", "a")]), None);
        assert_eq!(metrics.value("down", &[]), None);
    }
}
