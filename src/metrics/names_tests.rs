//! Checks that the code, docs/metrics.md, the chart's alerts and dashboard use the same names.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::Registry;
use redislease_core::marker::Membership;
use redislease_core::time::Millis;
use redislease_lab::{read, repository};
use redislease_lock::nodes::{Config, NodeConfig};
use redislease_plan::plan::Shown;
use serde_json::Value;

use super::Page;
use super::lease::LeaseMetrics;
use super::nodes::NodeMetrics;
use super::operator::OperatorMetrics;
use super::panics::Panics;
use super::renewals::RenewalMetrics;

/// Labels that Prometheus adds to every series of a target.
const TARGET_LABELS: [&str; 4] = ["cluster", "instance", "job", "namespace"];

/// Labels whose values are names of objects, versions, or bucket bounds.
const OPEN_LABELS: [&str; 12] = [
    "fingerprint",
    "holder_cluster",
    "holder_node",
    "holder_pod",
    "le",
    "lease",
    "lease_namespace",
    "name",
    "quorum",
    "redis_node",
    "version",
    "instance",
];

/// Metrics without a panel.
const ON_NO_PANEL: [&str; 1] = ["process_virtual_memory_bytes"];

/// A family on the page.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// A page with every family and every value of the labels with fixed values.
fn page() -> String {
    let registry = Registry::new();
    let panics = Panics::register(&registry).unwrap();
    let operator = OperatorMetrics::register(&registry, &["annotation", "lease", "quorum"], &panics).unwrap();
    let leases = LeaseMetrics::register(&registry).unwrap();
    let lease = leases.lease("n", "l", "q");
    lease.show(&Shown {
        holder: Some(["c", "p", "n"].map(str::to_owned)),
        conditions: [
            ("Ready", "True"),
            ("Active", "False"),
            ("CandidatesAvailable", "Unknown"),
            ("QuorumHealthy", "True"),
        ]
        .map(|(condition, status)| (condition.to_owned(), status.to_owned()))
        .into(),
        ..Shown::default()
    });
    let _quorum = RenewalMetrics::register(&registry).unwrap().quorum("q");
    let _nodes = NodeMetrics::register(&registry, &panics).unwrap().quorum(&config());
    operator.leads("q", true);
    Page { registry, leases }.parts().unwrap().collect()
}

fn config() -> Config {
    Config {
        quorum: "q".into(),
        nodes: vec![NodeConfig { name: "a".into(), address: "a:6379".into() }],
        key_prefix: "p".into(),
        membership: Membership { generation: 1, fingerprint: "f".into() },
        longest_lease: Millis(1000),
        command_timeout: Millis(1000),
        credentials: None,
        tls: None,
        has_statuses: false,
        connect_last: Vec::new(),
    }
}

fn families() -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in page().lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.clone_into(&mut families.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else {
            let (name, labels) = line.split_once(['{', ' ']).unwrap();
            let name = if families.contains_key(name) { name } else { base(name) };
            let family = families.get_mut(name).unwrap();
            if line.contains('{') {
                for label in labels.rsplit_once('}').unwrap().0.split("\",") {
                    let (label, value) = label.split_once("=\"").unwrap();
                    family.labels.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
                }
            }
        }
    }
    families
}

/// The family of a series of a histogram.
fn base(series: &str) -> &str {
    ["_bucket", "_sum", "_count"].iter().find_map(|suffix| series.strip_suffix(suffix)).unwrap_or(series)
}

fn unit(name: &str, family: &Family) -> &'static str {
    let stem = name.trim_end_matches("_total");
    match stem.rsplit('_').next().unwrap_or_default() {
        "seconds" if stem.ends_with("_timestamp_seconds") || stem.ends_with("start_time_seconds") => "Unix time, s",
        "seconds" => "s",
        "bytes" => "bytes",
        "ratio" => "0 to 1",
        "info" | "condition" => "1",
        "active" | "held" | "up" | "status" => "0 or 1",
        "token" => "number",
        _ if family.kind == "counter" => "count",
        _ => "number",
    }
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn rules() -> Vec<Value> {
    let rules = yaml("charts/redislease/files/alerts.yaml");
    items(&rules["groups"]).iter().flat_map(|group| items(&group["rules"]).to_vec()).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("charts/redislease/files/dashboard.json")).unwrap()
}

/// Title and queries of each panel.
fn panels() -> Vec<(String, Vec<String>)> {
    let dashboard = dashboard();
    let rows = items(&dashboard["panels"]);
    let panels = rows.iter().flat_map(|row| std::iter::once(row).chain(items(&row["panels"])));
    let queries =
        |panel: &Value| items(&panel["targets"]).iter().map(|target| text(target, "expr").to_owned()).collect();
    panels
        .filter(|panel| panel["type"] != "row")
        .map(|panel| (text(panel, "title").to_owned(), queries(panel)))
        .collect()
}

/// The series that an expression selects, each with the labels that its selector names.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "_:".contains(character);
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|character: char| is_name(character) || character == '"') {
        rest = &rest[start..];
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted.split_once('"').map_or("", |(_, rest)| rest);
            continue;
        }
        let (word, after) = rest.split_at(rest.find(|character| !is_name(character)).unwrap_or(rest.len()));
        rest = after;
        if !["redislease_", "process_", "leader_election_"].iter().any(|prefix| word.starts_with(prefix)) {
            continue;
        }
        let matchers = after.strip_prefix('{').and_then(|after| after.split_once('}')).map_or("", |(inside, _)| inside);
        let labels = matchers.split(',').filter_map(|matcher| matcher.split_once(['=', '!'])).map(|(label, _)| label);
        found.push((word.to_owned(), labels.map(|label| label.trim().to_owned()).collect()));
    }
    found
}

/// The families that an expression uses. Each must exist and have the labels.
fn used(expression: &str, families: &BTreeMap<String, Family>, by: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (series, labels) in selectors(expression) {
        let histogram =
            families.get(base(&series)).filter(|family| family.kind == "histogram" && series != base(&series));
        let plain = families.get(&series).filter(|family| family.kind != "histogram");
        let Some(family) = histogram.or(plain) else { panic!("{by} uses {series}, which /metrics does not show") };
        for label in labels {
            let known = family.labels.contains_key(&label) || TARGET_LABELS.contains(&label.as_str());
            assert!(known, "{by} selects {series} by the label {label}, which it does not have");
        }
        used.insert(if histogram.is_some() { base(&series).to_owned() } else { series });
    }
    used
}

#[test]
fn selectors_are_found_in_expressions() {
    let expression =
        r#"sum by (redis_node) (rate(redislease_a_total{quorum=~"$quorum",x!="redislease_b"}[5m])) / process_c > 0"#;
    let found = vec![
        ("redislease_a_total".to_owned(), vec!["quorum".to_owned(), "x".to_owned()]),
        ("process_c".to_owned(), vec![]),
    ];
    assert_eq!(selectors(expression), found);
}

#[test]
fn the_documentation_lists_every_metric() {
    let row = |(name, family): (&String, &Family)| {
        let labels = family.labels.keys().filter(|label| *label != "le").map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(" ");
        format!("| `{name}` | {} | {labels} | {} | {} |", family.kind, unit(name, family), family.help)
            .replace("|  |", "| |")
    };
    let families = families();
    let mut wanted: Vec<String> = families.iter().map(row).collect();
    let docs = read("docs/metrics.md");
    let (metrics, values) = docs.split_once("\n### Values of labels\n").unwrap();
    let rows = |part: &str| {
        let mut rows: Vec<String> = part.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        rows.sort_unstable();
        rows
    };
    assert_rows(&rows(metrics), &mut wanted, "of metrics");
    let mut wanted = Vec::new();
    for (name, family) in &families {
        for (label, values) in &family.labels {
            if !OPEN_LABELS.contains(&label.as_str()) {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                wanted.push(format!("| `{name}` | `{label}` | {} |", values.join(", ")));
            }
        }
    }
    assert_rows(&rows(values), &mut wanted, "of labels");
}

fn assert_rows(listed: &[String], wanted: &mut [String], tables: &str) {
    wanted.sort();
    assert!(listed == wanted, "the rows of the tables {tables} in docs/metrics.md should be\n{}", wanted.join("\n"));
}

#[test]
fn the_dashboard_uses_metrics_that_exist() {
    let (families, dashboard) = (families(), dashboard());
    let mut shown = BTreeSet::new();
    for (title, queries) in panels() {
        assert!(!title.is_empty() && !queries.is_empty() && queries.iter().all(|query| !query.is_empty()), "{title}");
        for query in queries {
            let used = used(&query, &families, &format!("the panel {title:?}"));
            assert!(!used.is_empty(), "the panel {title:?} shows no metric: {query}");
            shown.extend(used);
        }
    }
    for variable in items(&dashboard["templating"]["list"]) {
        used(text(&variable["query"], "query"), &families, text(variable, "name"));
    }
    for annotation in items(&dashboard["annotations"]["list"]) {
        used(text(annotation, "expr"), &families, text(annotation, "name"));
    }
    let hidden: Vec<&str> = families.keys().map(String::as_str).filter(|name| !shown.contains(*name)).collect();
    assert_eq!(hidden, ON_NO_PANEL, "metrics on no panel");
}

#[test]
fn the_dashboard_keeps_its_address_and_its_order() {
    let dashboard = dashboard();
    assert_eq!(text(&dashboard, "uid"), "redislease");
    let rows: Vec<&str> = items(&dashboard["panels"])
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|row| text(row, "title"))
        .collect();
    let order = ["At a glance", "Leases", "Renewals", "Redis quorum", "Handover and safety", "Operator"];
    assert_eq!(rows, order);
    let variables = items(&dashboard["templating"]["list"]);
    let variables: Vec<&str> = variables.iter().map(|variable| text(variable, "name")).collect();
    assert_eq!(variables, ["datasource", "cluster", "quorum", "namespace", "lease"]);
    let annotations = items(&dashboard["annotations"]["list"]);
    assert!(annotations.iter().any(|annotation| annotation["name"] == "Holder changed"), "{annotations:?}");
    let mut titles: Vec<String> = panels().into_iter().map(|(title, _)| title).collect();
    titles.sort_unstable();
    titles.dedup();
    assert_eq!(titles.len(), panels().len(), "two panels have the same title");
}

#[test]
fn alerts_are_complete_and_each_has_a_runbook() {
    let families = families();
    let docs = read("docs/metrics.md");
    let mut pages = BTreeSet::new();
    for rule in rules() {
        let (alert, severity) = (text(&rule, "alert"), text(&rule["labels"], "severity"));
        assert!(!used(text(&rule, "expr"), &families, alert).is_empty(), "{alert} uses no metric");
        assert!(["critical", "warning"].contains(&severity), "{alert}: {severity}");
        for annotation in ["summary", "description"] {
            assert!(text(&rule["annotations"], annotation).ends_with('.'), "{alert} has no {annotation}");
        }
        let page = format!("docs/runbooks/{alert}.md");
        assert_eq!(text(&rule["annotations"], "runbook_url"), page);
        let content = read(&page);
        assert!(content.starts_with(&format!("# {alert}\n\nSeverity: {severity}. ")), "the head of {page}");
        for part in ["What it means", "What is at risk", "How to check", "What to do"] {
            assert!(content.contains(&format!("\n## {part}\n")), "{page} has no part {part:?}");
        }
        let row = format!("| [{alert}](runbooks/{alert}.md) | {severity} | ");
        assert!(docs.contains(&row), "docs/metrics.md has no row {row:?}");
        pages.insert(format!("{alert}.md"));
    }
    let found = std::fs::read_dir(repository().join("docs/runbooks")).unwrap();
    let found: BTreeSet<String> = found.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, pages, "one page for each alert");
}

#[test]
fn each_alert_is_tested_when_it_fires_and_in_an_ordinary_handover() {
    let (mut fires, mut quiet) = (BTreeSet::new(), BTreeSet::new());
    for file in ["leases", "quorums", "operator", "handover"] {
        let tests = yaml(&format!("tests/alerts/{file}.yaml"));
        for case in items(&tests["tests"]).iter().flat_map(|test| items(&test["alert_rule_test"])) {
            let alert = text(case, "alertname").to_owned();
            match (items(&case["exp_alerts"]).is_empty(), file) {
                (false, _) => fires.insert(alert),
                (true, "handover") => quiet.insert(alert),
                (true, _) => false,
            };
        }
    }
    let alerts: BTreeSet<String> = rules().iter().map(|rule| text(rule, "alert").to_owned()).collect();
    assert_eq!(fires, alerts, "alerts that a test lets fire");
    assert_eq!(quiet, alerts, "alerts of the test of a handover");
}
