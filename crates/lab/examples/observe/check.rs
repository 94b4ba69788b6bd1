//! Evaluates the queries of a dashboard and of alerts, and collects problems.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redislease_lab::{Prometheus, Range, Result};
use serde_json::{Value, json};

use crate::{
    board::{Board, interpolate, metrics, text},
    story::Expected,
};

/// How long Prometheus may take to evaluate all rules once.
const RULES_WITHIN: Duration = Duration::from_secs(30);

/// The CPU limit of an operator. A debug build on a busy machine needs far less.
const MOST_CORES: f64 = 0.25;

pub struct Check<'a> {
    prometheus: &'a Prometheus,
    board: &'a Board,
    range: Range,
    /// The names of all metrics in Prometheus.
    known: BTreeSet<String>,
    shown: BTreeSet<String>,
    values: BTreeMap<&'a str, Vec<String>>,
    evaluated: usize,
    counts: Vec<String>,
    problems: Vec<String>,
    data: Vec<Value>,
}

impl<'a> Check<'a> {
    pub fn new(prometheus: &'a Prometheus, board: &'a Board, range: Range) -> Result<Self> {
        Ok(Self {
            prometheus,
            board,
            range,
            known: prometheus.label_values("__name__", None)?.into_iter().collect(),
            shown: BTreeSet::new(),
            values: BTreeMap::new(),
            evaluated: 0,
            counts: Vec::new(),
            problems: Vec::new(),
            data: Vec::new(),
        })
    }

    /// Each variable must have values for each combination of the variables before it.
    pub fn variables(&mut self) {
        let variables = match self.board.variables() {
            Ok(variables) => variables,
            Err(problem) => return self.problems.push(problem),
        };
        for variable in &variables {
            let selector = interpolate(variable.selector, &self.values, self.range);
            self.names(&selector, &format!("variable {}", variable.name));
            self.evaluated += 1;
            match self.prometheus.label_values(variable.label, Some(&selector)) {
                Ok(values) if values.is_empty() => {
                    self.problems.push(format!("variable {} has no values: {selector}", variable.name));
                }
                Ok(values) => {
                    println!("  variable {:<12} {}", variable.name, values.join(", "));
                    self.values.insert(variable.name, values);
                }
                Err(error) => self.problems.push(format!("variable {}: {error}", variable.name)),
            }
        }
        self.counts.push(format!("{} variables", variables.len()));
    }

    /// Each query of each panel must return data, with All for every variable and with their values.
    pub fn panels(&mut self) {
        let panels = self.board.panels();
        let mut queries = 0;
        for panel in &panels {
            let mut frames = Vec::new();
            let (mut series, mut samples) = (0, 0);
            for query in &panel.queries {
                queries += 1;
                let what = format!("panel \"{}\", query {}", panel.title, query.name);
                let selected = interpolate(query.expression, &self.values, self.range);
                self.series(&what, &selected, query.instant, true);
                let all = interpolate(query.expression, &BTreeMap::new(), self.range);
                let found = self.series(&what, &all, query.instant, true);
                self.shown.extend(metrics(&all).into_iter().map(str::to_owned));
                series += found.len();
                samples += found.iter().map(samples_of).sum::<usize>();
                frames.push(json!({"refId": query.name, "instant": query.instant, "series": found}));
            }
            println!("  panel {:<42} {series:>4} series {samples:>6} values", panel.title);
            self.data.push(json!({"panel": panel.json, "queries": frames}));
        }
        self.counts.push(format!("{} panels with {queries} queries", panels.len()));
    }

    pub fn annotations(&mut self) {
        let annotations = self.board.annotations();
        for (name, expression) in &annotations {
            let expression = interpolate(expression, &BTreeMap::new(), self.range);
            let found = self.series(&format!("annotation {name}"), &expression, false, true);
            println!("  annotation {name}: {} series", found.len());
            self.data.push(json!({"annotation": name, "series": found}));
        }
        self.counts.push(format!("{} annotations", annotations.len()));
    }

    /// No operator may use much CPU time when there is almost nothing to do.
    pub fn load(&mut self) {
        let Range { from, until, .. } = self.range;
        let expression = format!("sum by (instance) (increase(process_cpu_seconds_total[{:.0}s]))", until - from);
        for operator in self.series("the load of the operators", &expression, true, true) {
            let seconds: f64 = text(&operator["value"][1]).parse().unwrap_or_default();
            let (name, cores) = (text(&operator["metric"]["instance"]), seconds / (until - from));
            println!("  {name} used {cores:.2} cores");
            if cores > MOST_CORES {
                self.problems.push(format!("{name} used {cores:.2} cores, more than {MOST_CORES}"));
            }
        }
    }

    /// Each alert must evaluate without an error, and its expression must hold or not hold according to the faults of the
    /// run.
    pub fn alerts(&mut self, expected: &[(&str, Expected)]) -> Result<()> {
        let rules = self.prometheus.wait_for_rules(RULES_WITHIN)?;
        let expressions = self.prometheus.rule_expressions()?;
        for (alert, health) in &rules {
            let what = format!("alert {alert}");
            if health != "ok" {
                self.problems.push(format!("{what}: {health}"));
            }
            let expression = expressions.get(alert).map(String::as_str).unwrap_or_default();
            let found = self.series(&what, expression, false, false);
            let points: BTreeSet<String> = found.iter().flat_map(times_of).collect();
            #[allow(clippy::cast_precision_loss, reason = "few points")]
            let seconds = points.len() as f64 * self.range.step;
            println!("  {what:<40} its expression held for {seconds:>3.0} s");
            let Some((_, expected)) = expected.iter().find(|(name, _)| name == alert) else {
                self.problems.push(format!("{what}: the run defines no expectation for it"));
                continue;
            };
            match (expected, points.is_empty()) {
                (Expected::Holds, true) => self.problems.push(format!("{what} did not see the fault: {expression}")),
                (Expected::Never, false) => self.problems.push(format!("{what} saw a fault that did not happen")),
                _ => {}
            }
        }
        for (alert, _) in expected {
            if !rules.contains_key(*alert) {
                self.problems.push(format!("there is no alert {alert}"));
            }
        }
        self.counts.push(format!("{} alerts", rules.len()));
        Ok(())
    }

    /// The collected data, for pictures.
    pub fn data(&self) -> Value {
        let Range { from, until, step } = self.range;
        json!({"from": from, "until": until, "step": step, "dashboard": self.board.json(), "panels": self.data})
    }

    /// Prints the result. Returns whether there are no problems.
    pub fn report(&self) -> bool {
        let base = |name: &str| {
            let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            stem.filter(|stem| self.known.contains(&format!("{stem}_bucket"))).unwrap_or(name).to_owned()
        };
        let shown: BTreeSet<String> = self.shown.iter().map(|name| base(name)).collect();
        let ours: BTreeSet<String> =
            self.known.iter().filter(|name| !metrics(name).is_empty()).map(|name| base(name)).collect();
        let hidden: Vec<&str> = ours.difference(&shown).map(String::as_str).collect();
        println!(
            "\n{} metrics; on no panel: {}",
            ours.len(),
            if hidden.is_empty() { "none".to_owned() } else { hidden.join(", ") }
        );
        println!("{}: {} evaluations", self.counts.join(", "), self.evaluated);
        for problem in &self.problems {
            println!("problem: {problem}");
        }
        println!("{}", if self.problems.is_empty() { "every query has data" } else { "NOT MET" });
        self.problems.is_empty()
    }

    fn names(&mut self, expression: &str, what: &str) {
        for name in metrics(expression) {
            if !self.known.contains(name) {
                let problem = format!("{what} uses the unknown metric {name}");
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
    }

    /// The series of an expression. A missing finite value is a problem if data is required.
    fn series(&mut self, what: &str, expression: &str, instant: bool, must_have_data: bool) -> Vec<Value> {
        self.names(expression, what);
        self.evaluated += 1;
        let found = if instant {
            self.prometheus.query_at(expression, self.range.until)
        } else {
            self.prometheus.query_range(expression, self.range)
        };
        match found {
            Ok(found) => {
                if must_have_data && found.iter().map(samples_of).sum::<usize>() == 0 {
                    self.problems.push(format!("{what} is empty: {expression}"));
                }
                found
            }
            Err(error) => {
                self.problems.push(format!("{what}: {error}"));
                Vec::new()
            }
        }
    }
}

/// The time and value of each point of a series.
fn points_of(series: &Value) -> impl Iterator<Item = &Value> {
    series["values"].as_array().into_iter().flatten().chain(series.get("value"))
}

fn samples_of(series: &Value) -> usize {
    points_of(series).filter(|point| text(&point[1]).parse::<f64>().is_ok_and(f64::is_finite)).count()
}

fn times_of(series: &Value) -> impl Iterator<Item = String> + '_ {
    points_of(series).map(|point| point[0].to_string())
}
