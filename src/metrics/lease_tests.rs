use super::*;
use crate::metrics;
use redislease_core::lease::{Standing, TermId, TermView};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::Millis;

const REASONS: &[&str] = &["HolderStopped", "RenewDeadline"];

fn page(registry: &Registry) -> String {
    metrics::page(registry).unwrap()
}

fn assert_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|found| found == *line), "{line} is missing in\n{page}");
    }
}

/// The value of a series, by its beginning.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series} in\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn shown() -> Shown<'static> {
    Shown {
        active: true,
        held: true,
        waiting: false,
        holder: Some(["eu-west-1", "billing-0", "node-1"]),
        token: 1_795_238_400_000_042,
        candidates: [2, 1],
        conditions: vec![("Ready", "True"), ("Active", "True"), ("QuorumHealthy", "False")],
    }
}

#[test]
fn every_series_is_there_at_zero() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let page_before = page(&registry);
    assert_lines(
        &page_before,
        &[
            r#"redislease_handover_duration_seconds_count{kind="graceful"} 0"#,
            r#"redislease_handover_duration_seconds_count{kind="failover"} 0"#,
        ],
    );
    let _series = metrics.lease("jobs", "billing", "default");
    let page = page(&registry);
    for (family, rest) in [
        ("active", ""),
        ("held", ""),
        ("fencing_token", ""),
        ("expiry_timestamp_seconds", ""),
        ("unheld_seconds_total", ""),
        ("transitions_total", r#",reason="HolderStopped""#),
        ("transitions_total", r#",reason="RenewDeadline""#),
        ("renewals_total", r#",result="success""#),
        ("renewals_total", r#",result="no_quorum""#),
        ("renewals_total", r#",result="lost""#),
        ("renewals_total", r#",result="timeout""#),
    ] {
        let line =
            format!(r#"redislease_lease_{family}{{lease="billing",lease_namespace="jobs",quorum="default"{rest}}} 0"#);
        assert_lines(&page, &[&line]);
    }
    assert_eq!(page.matches("redislease_lease_candidates{").count(), 2, "{page}");
    assert_eq!(page.matches("redislease_lease_status_condition{").count(), 12, "{page}");
    assert!(!page.contains("redislease_lease_holder_info{"), "{page}");
    assert_lines(
        &page,
        &[
            r#"redislease_renew_duration_seconds_count{quorum="default"} 0"#,
            r#"redislease_renew_margin_ratio_count{quorum="default"} 0"#,
        ],
    );
}

#[test]
fn the_status_is_shown() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let series = metrics.lease("jobs", "billing", "default");
    series.show(&shown());
    series.ended("HolderStopped");
    series.ended("no such reason");
    let first = page(&registry);
    let of = r#"lease="billing",lease_namespace="jobs",quorum="default""#;
    assert_lines(
        &first,
        &[
            &format!("redislease_lease_active{{{of}}} 1"),
            &format!("redislease_lease_held{{{of}}} 1"),
            &format!("redislease_lease_fencing_token{{{of}}} 1795238400000042"),
            &format!(r#"redislease_lease_candidates{{{of},state="eligible"}} 2"#),
            &format!(r#"redislease_lease_candidates{{{of},state="ineligible"}} 1"#),
            &format!(r#"redislease_lease_transitions_total{{{of},reason="HolderStopped"}} 1"#),
            &format!(r#"redislease_lease_status_condition{{condition="Active",{of},status="True"}} 1"#),
            &format!(r#"redislease_lease_status_condition{{condition="Active",{of},status="False"}} 0"#),
            &format!(r#"redislease_lease_status_condition{{condition="QuorumHealthy",{of},status="False"}} 1"#),
            &format!(r#"redislease_lease_status_condition{{condition="CandidatesAvailable",{of},status="True"}} 0"#),
        ],
    );
    let holders = |page: &str| page.lines().filter(|line| line.starts_with("redislease_lease_holder_info{")).count();
    assert!(first.contains(r#"holder_cluster="eu-west-1",holder_node="node-1",holder_pod="billing-0""#), "{first}");
    assert_eq!(holders(&first), 1);
    series.show(&Shown { holder: Some(["eu-west-1", "billing-1", "node-1"]), ..shown() });
    let second = page(&registry);
    assert_eq!(holders(&second), 1, "one holder at a time: {second}");
    assert!(second.contains(r#"holder_pod="billing-1""#), "{second}");
    series.show(&Shown { holder: None, active: false, held: false, ..shown() });
    assert_eq!(holders(&page(&registry)), 0);
}

#[test]
fn renewals_are_counted_with_what_was_left() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let series = metrics.lease("jobs", "billing", "default");
    series.renewed(&Renewal::Success { took: Millis(4), left: Millis(15_000) }, 30_000);
    for renewal in [Renewal::NoQuorum, Renewal::Timeout, Renewal::Timeout, Renewal::Lost] {
        series.renewed(&renewal, 30_000);
    }
    let page = page(&registry);
    let of = r#"lease="billing",lease_namespace="jobs",quorum="default""#;
    for (result, count) in [("success", 1), ("no_quorum", 1), ("timeout", 2), ("lost", 1)] {
        assert_lines(&page, &[&format!(r#"redislease_lease_renewals_total{{{of},result="{result}"}} {count}"#)]);
    }
    assert_lines(
        &page,
        &[
            r#"redislease_renew_margin_ratio_bucket{quorum="default",le="0.5"} 1"#,
            r#"redislease_renew_margin_ratio_bucket{quorum="default",le="0.4"} 0"#,
            r#"redislease_renew_duration_seconds_bucket{quorum="default",le="0.005"} 1"#,
            r#"redislease_renew_duration_seconds_bucket{quorum="default",le="0.0025"} 0"#,
        ],
    );
}

#[test]
fn the_end_of_validity_is_a_time_of_day() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let series = metrics.lease("jobs", "billing", "default");
    let id = TermId { attempt: Attempt(1), token: Token(1), holder: Holder("c/n/l/p/u".into()) };
    let valid_until = Some(clock::now() + Millis(20_000));
    let term = TermView { id, valid_until, stop_at: None, failed_rounds: 0 };
    series.viewed(&View { standing: Standing::Held(term), ..View::default() });
    let expiry = value(&page(&registry), "redislease_lease_expiry_timestamp_seconds{");
    let now = Duration::from_micros(clock::unix_micros()).as_secs_f64();
    assert!((expiry - now - 20.0).abs() < 5.0, "{expiry} at {now}");
    series.viewed(&View::default());
    assert!(value(&page(&registry), "redislease_lease_expiry_timestamp_seconds{").abs() < f64::EPSILON);
}

#[test]
fn seconds_without_a_holder_are_counted_while_they_pass() {
    let total = Counter::new("unheld", "Unheld.").unwrap();
    let wait = Wait { since: Mutex::new(None), total };
    wait.count(Time(1_000));
    assert!(wait.total.get().abs() < f64::EPSILON, "nobody waits yet");
    wait.set(true, Time(2_000));
    wait.count(Time(3_500));
    assert!((wait.total.get() - 1.5).abs() < 1e-9);
    wait.set(false, Time(4_000));
    wait.count(Time(9_000));
    assert!((wait.total.get() - 2.0).abs() < 1e-9);
}

#[test]
fn whoever_looks_counts_the_wait_that_lasts() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let series = metrics.lease("jobs", "billing", "default");
    series.show(&Shown { waiting: true, ..shown() });
    let give_up = std::time::Instant::now() + Duration::from_secs(10);
    while value(&page(&registry), "redislease_lease_unheld_seconds_total{") <= 0.0 {
        assert!(std::time::Instant::now() < give_up, "nothing is counted");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_series_vanish_with_their_lease() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    let kept = metrics.lease("jobs", "kept", "default");
    let gone = metrics.lease("jobs", "gone", "default");
    let alone = metrics.lease("jobs", "alone", "other");
    for series in [&kept, &gone, &alone] {
        series.show(&shown());
        series.renewed(&Renewal::Success { took: Millis(4), left: Millis(15_000) }, 30_000);
    }
    gone.forget();
    // Its keeper still seals: what it counts, nobody sees.
    gone.show(&shown());
    gone.renewed(&Renewal::Timeout, 30_000);
    let first = page(&registry);
    assert!(!first.contains("gone"), "{first}");
    assert_lines(&first, &[r#"redislease_renew_duration_seconds_count{quorum="default"} 2"#]);

    // Created again under the same name, while the old one is still about.
    let again = metrics.lease("jobs", "gone", "default");
    drop(gone);
    let second = page(&registry);
    let of = r#"lease="gone",lease_namespace="jobs",quorum="default""#;
    assert_lines(&second, &[&format!(r#"redislease_lease_renewals_total{{{of},result="timeout"}} 0"#)]);

    drop(alone);
    let third = page(&registry);
    assert!(!third.contains(r#"quorum="other""#), "{third}");
    drop((kept, again));
    let last = page(&registry);
    assert!(!last.contains("lease_namespace") && !last.contains("quorum="), "{last}");
}

#[test]
fn handovers_are_counted_by_kind() {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry, REASONS).unwrap();
    metrics.handover(HandoverKind::Graceful, Duration::from_millis(80));
    metrics.handover(HandoverKind::Failover, Duration::from_secs(40));
    assert_lines(
        &page(&registry),
        &[
            r#"redislease_handover_duration_seconds_bucket{kind="graceful",le="0.1"} 1"#,
            r#"redislease_handover_duration_seconds_bucket{kind="failover",le="15"} 0"#,
            r#"redislease_handover_duration_seconds_bucket{kind="failover",le="60"} 1"#,
        ],
    );
}
