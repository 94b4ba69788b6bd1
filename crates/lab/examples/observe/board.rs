//! The dashboard as Grafana reads it: panels, variables, annotations and their expressions.

use std::{collections::BTreeMap, error::Error, fs, path::Path};

use redislease_lab::Range;
use serde_json::Value;

pub struct Board {
    json: Value,
}

pub struct Panel<'a> {
    pub title: &'a str,
    pub json: &'a Value,
    pub queries: Vec<Query<'a>>,
}

pub struct Query<'a> {
    pub name: &'a str,
    pub expression: &'a str,
    /// Whether only the end of the range is used.
    pub instant: bool,
}

/// A variable whose values are those of a label.
pub struct Variable<'a> {
    pub name: &'a str,
    pub selector: &'a str,
    pub label: &'a str,
}

impl<'a> Panel<'a> {
    fn of(json: &'a Value) -> Self {
        let query = |target: &'a Value| Query {
            name: text(&target["refId"]),
            expression: text(&target["expr"]),
            instant: target["instant"] == true,
        };
        Self { title: text(&json["title"]), json, queries: items(&json["targets"]).map(query).collect() }
    }
}

impl<'a> Variable<'a> {
    fn read(json: &'a Value) -> Result<Self, String> {
        let (name, query) = (text(&json["name"]), text(&json["query"]["query"]));
        let inside = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')'));
        let (selector, label) = inside
            .and_then(|inside| inside.rsplit_once(','))
            .ok_or_else(|| format!("the variable {name} is not of the form label_values(SELECTOR, LABEL): {query}"))?;
        Ok(Self { name, selector, label: label.trim() })
    }
}

impl Board {
    pub fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self { json: serde_json::from_str(&fs::read_to_string(file)?)? })
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    /// All panels that are not rows.
    pub fn panels(&self) -> Vec<Panel<'_>> {
        let panels = items(&self.json["panels"]).flat_map(|row| std::iter::once(row).chain(items(&row["panels"])));
        panels.filter(|panel| panel["type"] != "row").map(Panel::of).collect()
    }

    /// The variables that are queries: `label_values(SELECTOR, LABEL)`.
    pub fn variables(&self) -> Result<Vec<Variable<'_>>, String> {
        let variables = items(&self.json["templating"]["list"]).filter(|variable| variable["type"] == "query");
        variables.map(Variable::read).collect()
    }

    /// The name and expression of each annotation.
    pub fn annotations(&self) -> Vec<(&str, &str)> {
        let annotations = items(&self.json["annotations"]["list"]);
        let annotations = annotations.map(|annotation| (text(&annotation["name"]), text(&annotation["expr"])));
        annotations.filter(|(_, expression)| !expression.is_empty()).collect()
    }
}

/// Substitutes variables as Grafana does. A variable without a value matches all values.
pub fn interpolate(expression: &str, values: &BTreeMap<&str, Vec<String>>, range: Range) -> String {
    let seconds = format!("{:.0}s", range.until - range.from);
    // The greater of four scrape intervals, and a step plus one scrape interval.
    let rate = format!("{:.0}s", (range.step + 1.0).max(4.0));
    let mut expression = expression.replace("$__range", &seconds).replace("$__rate_interval", &rate);
    for name in ["cluster", "quorum", "namespace", "lease"] {
        let value = values.get(name).map_or_else(|| ".*".to_owned(), |values| format!("({})", values.join("|")));
        expression = expression.replace(&format!("\"${name}\""), &format!("\"{value}\""));
    }
    expression
}

/// The metrics in an expression, including the suffixes of histograms.
pub fn metrics(expression: &str) -> Vec<&str> {
    let words = expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words
        .filter(|word| ["redislease_", "process_", "leader_election_"].iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
