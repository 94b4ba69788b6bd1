use super::*;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    status: Status,
}

fn lease(name: &str, status: &Value) -> LeaseSummary {
    let object = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": name, "namespace": "jobs"},
        "spec": {"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": "a"}}}},
        "status": status,
    });
    LeaseSummary::of(&serde_json::from_value(object).unwrap())
}

fn held() -> Value {
    json!({
        "holder": {"cluster": "eu-west-1", "namespace": "jobs", "pod": "invoice-runner-6c9f7d-x2x8k", "podUID": "u"},
        "attempt": "0123456789abcdef0123456789abcdef",
        "fencingToken": 1_795_238_400_000_042_i64,
        "acquireTime": jiff::Timestamp::now() - Duration::from_mins(154),
        "transitions": 3,
        "candidates": {"total": 3, "eligible": 2},
        "history": [{
            "fencingToken": 7, "cluster": "eu-west-1", "pod": "a", "reason": "HolderStopped",
            "acquireTime": "2026-11-21T07:00:00Z", "endTime": "2026-11-21T08:00:00Z",
        }],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "HeldHere", "message": "It is held.",
             "lastTransitionTime": "2026-11-21T08:00:00Z"},
            {"type": "Active", "status": "True", "reason": "HeldHere", "message": "It is held.",
             "lastTransitionTime": "2026-11-21T08:00:00Z"},
        ],
    })
}

fn printed(printer: &Printer, leases: &[LeaseSummary]) -> String {
    let mut out = Vec::new();
    printer.all(leases, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn table_has_one_line_per_lease() {
    let leases = [lease("billing", &json!({})), lease("invoice-runner", &held())];
    let table = printed(&Printer::Table(Table::for_leases(&leases, false)), &leases);
    let expected = "
NAME             ACTIVE    HOLDER                        CLUSTER     SINCE    CANDIDATES   LAST END        READY     MESSAGE
billing
invoice-runner   True      invoice-runner-6c9f7d-x2x8k   eu-west-1   154m     2/3          HolderStopped   True      It is held.
";
    assert_eq!(table, expected.trim_start());
    let table = printed(&Printer::Table(Table::for_leases(&leases, true)), &leases);
    assert!(table.starts_with("NAMESPACE   NAME ") && table.contains("\njobs        billing\n"), "{table}");
}

#[test]
fn json_is_a_list_of_summaries() {
    let leases = [lease("invoice-runner", &held())];
    let list: Value = serde_json::from_str(&printed(&Printer::List, &leases)).unwrap();
    let [only] = &list.as_array().unwrap()[..] else { panic!("{list}") };
    for (field, value) in [
        ("name", json!("invoice-runner")),
        ("namespace", json!("jobs")),
        ("active", json!("True")),
        ("ready", json!("True")),
        ("reason", json!("HeldHere")),
        ("message", json!("It is held.")),
        ("fencingToken", json!(1_795_238_400_000_042_i64)),
        ("transitions", json!(3)),
        ("lastEnd", json!("HolderStopped")),
        ("quorum", json!("default")),
    ] {
        assert_eq!(only[field], value, "{field}");
    }
    assert_eq!(only["holder"]["podUID"], "u");
    assert!(only.get("deleted").is_none() && only.get("error").is_none(), "{only}");
    assert_eq!(printed(&Printer::List, &[]), "[]\n");

    let lines = printed(&Printer::Lines, &[leases[0].clone(), leases[0].deleted()]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1], json!({"namespace": "jobs", "name": "invoice-runner", "transitions": 0, "deleted": true}));
}

#[test]
fn lease_that_cannot_be_parsed_is_shown_with_the_error() {
    let broken = json!({"metadata": {"name": "broken", "namespace": "jobs"}, "spec": {"quorumRef": 7}});
    let leases = [LeaseSummary::of(&serde_json::from_value(broken).unwrap()), lease("invoice-runner", &held())];
    let table = printed(&Printer::Table(Table::for_leases(&leases, false)), &leases);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].starts_with("broken ") && lines[1].contains("cannot be parsed: "), "{table}");
    assert!(lines[2].starts_with("invoice-runner   True "), "{table}");
}

#[test]
fn invalid_flags_are_named_in_the_error() {
    let line = Line::try_parse_from(["redislease", "-A", "billing"]);
    let message = line.expect_err("the two flags exclude each other").to_string();
    assert!(message.contains("cannot be used with") && message.contains("[NAME]"), "{message}");
    let message = Line::try_parse_from(["redislease", "-oyaml"]).expect_err("no such format").to_string();
    assert!(message.contains("'yaml'") && message.contains("[possible values: table, json]"), "{message}");
}

#[test]
fn missing_crd_error_says_how_to_install_it() {
    let line = Line::try_parse_from(["redislease"]).unwrap();
    let message = line.status.explain("list", &CallError::NotFound, "jobs");
    assert_eq!(
        message,
        "cannot list RedisLeases in namespace jobs: the API server does not know the kind RedisLease; install it with \
         `redislease crds | kubectl apply --server-side -f -`"
    );
}
