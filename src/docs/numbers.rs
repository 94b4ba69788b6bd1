//! Compares numbers in the pages with what they count.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{read, repository};

fn page(file: &str) -> String {
    read(Path::new(file))
}

/// The page without its line breaks: a sentence can continue on the next line.
fn sentences(file: &str) -> String {
    page(file).split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ")
}

fn assert_says(file: &str, sentence: &str) {
    assert!(sentences(file).contains(sentence), "{file} does not say: {sentence}");
}

#[test]
fn the_page_on_measurements_counts_tests_and_panels() {
    let tests = fs::read_dir(repository().join("charts/redislease/tests")).expect("the tests of the chart").flatten();
    let tests = tests
        .filter(|entry| entry.path().is_file())
        .map(|entry| fs::read_to_string(entry.path()).expect("a test of the chart"));
    let cases: usize = tests.map(|text| text.matches("\n  - it: ").count()).sum();
    assert_says("docs/measurements.md", &format!("{cases} cases of helm-unittest"));

    let dashboard: Value = serde_json::from_str(&page("charts/redislease/files/dashboard.json")).expect("JSON");
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rows = items(&dashboard["panels"]);
    let mut panels: Vec<Value> = rows.iter().flat_map(|row| items(&row["panels"])).chain(rows.clone()).collect();
    panels.retain(|panel| panel["type"] != "row");
    let queries: usize = panels.iter().map(|panel| items(&panel["targets"]).len()).sum();
    let alerts = page("charts/redislease/files/alerts.yaml").matches("- alert: ").count();
    let count = format!("{} panels with {queries} queries; with the {alerts} alerts", panels.len());
    assert_says("docs/measurements.md", &count);
}

/// The section of docs/measurements.md whose figures the other pages repeat.
const LATEST: &str = "commit 09e0dac";

/// What one row of its tables says.
struct Row {
    leases: u32,
    phase: String,
    /// From the end of the wait or of the outage until all leases are active.
    seconds: Option<f64>,
    megabytes: u32,
    cores: String,
}

fn latest() -> Vec<Row> {
    let page = page("docs/measurements.md");
    let section =
        page.split("\n### ").find(|section| section.lines().next().is_some_and(|title| title.ends_with(LATEST)));
    let rows = section.expect("the section").lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let leases = cells.get(1)?.parse().ok()?;
        let phase = cells.iter().position(|cell| ["start", "hold", "outage"].contains(cell))?;
        let seconds =
            cells[phase + 1].split_once("all active ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let megabytes = cells[phase + 2].split(", ").last()?.parse().ok()?;
        Some(Row { leases, phase: cells[phase].to_owned(), seconds, megabytes, cores: cells[phase + 5].to_owned() })
    });
    rows.collect()
}

#[test]
fn figures_for_sizing_are_those_of_the_latest_measurement() {
    let rows = latest();
    let of =
        |leases: u32, phase: &'static str| rows.iter().filter(move |row| row.leases == leases && row.phase == phase);
    let seconds =
        |leases: u32, phase: &'static str| of(leases, phase).filter_map(|row| row.seconds).collect::<Vec<_>>();
    let once = |phase| *seconds(1000, phase).last().expect("a run with 1,000 leases");
    let between = |phase| {
        let found = seconds(10_000, phase);
        let (least, most) = found.iter().fold((f64::MAX, 0.0), |(least, most), &now| (now.min(least), now.max(most)));
        format!("{least:.0} to {most:.0} s")
    };
    let small = rows.iter().filter(|row| row.leases == 1000).map(|row| row.megabytes).max().expect("rows");
    let large: Vec<u32> = of(10_000, "outage").map(|row| row.megabytes).collect();
    let (least, most) = (large.iter().min().expect("rows"), large.iter().max().expect("rows"));
    let cores = &of(10_000, "hold").next_back().expect("a run with 10,000 leases").cores;

    let install = "docs/install.md";
    assert_says(install, &format!("| {small} MB with 1,000 leases, {least} to {most} MB with 10,000;"));
    assert_says(install, &format!("1,000 leases, {cores} with 10,000 |"));
    assert_says(
        install,
        &format!("1,000 leases took {:.1} s after a start and {:.1} s after an outage", once("start"), once("outage")),
    );
    assert_says(install, &format!("and 10,000 took {} and {}.", between("start"), between("outage")));
    let values = format!("Measured memory: {small} MB with 1,000 leases, {most} MB with 10,000.");
    assert_says("charts/redislease/values.yaml", &values);
}
