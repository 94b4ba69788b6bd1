use super::*;
use crate::metrics::renewals::RenewalMetrics;
use redislease_core::lease::{Standing, TermId, TermView};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::Millis;
use redislease_plan::election::EndCause;
use redislease_plan::status::TermEnd;

/// The labels of the lease in most tests.
const OF: &str = r#"lease="billing",lease_namespace="jobs",quorum="default""#;

fn metrics() -> (Registry, LeaseMetrics, RenewalMetrics) {
    let registry = Registry::new();
    let metrics = LeaseMetrics::register(&registry).unwrap();
    let renewals = RenewalMetrics::register(&registry).unwrap();
    (registry, metrics, renewals)
}

fn page((registry, metrics, _): &(Registry, LeaseMetrics, RenewalMetrics)) -> String {
    let mut page = crate::metrics::page::registered(registry).unwrap();
    page.extend(metrics.parts());
    page
}

fn assert_lines(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|found| found == *line), "{line} is missing in\n{page}");
    }
}

/// The value of a series, by its prefix.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series} in\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn conditions(conditions: &[(&str, &str)]) -> Vec<(String, String)> {
    conditions.iter().map(|(condition, status)| ((*condition).to_owned(), (*status).to_owned())).collect()
}

fn shown() -> Shown {
    Shown {
        active: true,
        held: true,
        waiting: false,
        holder: Some(["eu-west-1", "billing-0", "node-1"].map(str::to_owned)),
        token: 1_795_238_400_000_042,
        candidates: [2, 1],
        conditions: conditions(&[("Ready", "True"), ("Active", "True"), ("QuorumHealthy", "False")]),
    }
}

#[test]
fn every_counter_is_there_at_zero() {
    let world = metrics();
    assert_lines(
        &page(&world),
        &[
            r#"redislease_handover_duration_seconds_count{kind="graceful"} 0"#,
            r#"redislease_handover_duration_seconds_count{kind="failover"} 0"#,
        ],
    );
    assert!(!page(&world).contains("redislease_lease_"), "no lease, no family: {}", page(&world));
    let _lease = world.1.lease("jobs", "billing", "default");
    let _quorum = world.2.quorum("default");
    let page = page(&world);
    for (family, rest) in [
        ("active", ""),
        ("held", ""),
        ("fencing_token", ""),
        ("expiry_timestamp_seconds", ""),
        ("unheld_seconds_total", ""),
        ("transitions_total", ""),
        ("renewals_total", r#",result="success""#),
        ("renewals_total", r#",result="failure""#),
        ("candidates", r#",state="eligible""#),
    ] {
        assert_lines(&page, &[&format!("redislease_lease_{family}{{{OF}{rest}}} 0")]);
    }
    assert_lines(
        &page,
        &[
            r#"redislease_transitions_total{quorum="default",reason="RenewDeadline"} 0"#,
            r#"redislease_renewals_total{quorum="default",result="no_quorum"} 0"#,
            r#"redislease_renew_duration_seconds_count{quorum="default"} 0"#,
            r#"redislease_renew_margin_ratio_count{quorum="default"} 0"#,
        ],
    );
}

#[test]
fn a_lease_with_everything_has_fifteen_series() {
    let world = metrics();
    let lease = world.1.lease("jobs", "billing", "default");
    let conditions = conditions(&CONDITIONS.map(|condition| (condition, "True")));
    lease.show(&Shown { conditions, ..shown() });
    assert_eq!(page(&world).matches(OF).count(), 15, "{}", page(&world));
}

#[test]
fn the_status_is_shown() {
    let world = metrics();
    let lease = world.1.lease("jobs", "billing", "default");
    lease.show(&shown());
    lease.ended();
    let first = page(&world);
    assert_lines(
        &first,
        &[
            "# TYPE redislease_lease_active gauge",
            &format!("redislease_lease_active{{{OF}}} 1"),
            &format!("redislease_lease_held{{{OF}}} 1"),
            &format!("redislease_lease_fencing_token{{{OF}}} 1795238400000042"),
            &format!(r#"redislease_lease_candidates{{{OF},state="eligible"}} 2"#),
            &format!(r#"redislease_lease_candidates{{{OF},state="ineligible"}} 1"#),
            &format!("redislease_lease_transitions_total{{{OF}}} 1"),
            &format!(r#"redislease_lease_status_condition{{{OF},condition="Active",status="True"}} 1"#),
            &format!(r#"redislease_lease_status_condition{{{OF},condition="QuorumHealthy",status="False"}} 1"#),
            &format!(
                r#"redislease_lease_holder_info{{{OF},holder_cluster="eu-west-1",holder_pod="billing-0",holder_node="node-1"}} 1"#
            ),
        ],
    );
    assert_eq!(first.matches("redislease_lease_status_condition{").count(), 3, "{first}");
    let holders = |page: &str| page.matches("redislease_lease_holder_info{").count();
    lease.show(&Shown { holder: Some(["eu-west-1", "billing-1", "node-1"].map(str::to_owned)), ..shown() });
    let second = page(&world);
    assert!(holders(&second) == 1 && second.contains(r#"holder_pod="billing-1""#), "one at a time: {second}");
    lease.show(&Shown { holder: None, active: false, held: false, ..shown() });
    assert_eq!(holders(&page(&world)), 0);
}

#[test]
fn renewals_are_counted_with_what_was_left() {
    let world = metrics();
    let (lease, quorum) = (world.1.lease("jobs", "billing", "default"), world.2.quorum("default"));
    let success = Renewal::Success { took: Millis(4), left: Some(Millis(15_000)) };
    for renewal in [success, Renewal::NoQuorum, Renewal::Timeout, Renewal::Timeout, Renewal::Lost] {
        lease.renewed(&renewal);
        quorum.renewed(&renewal, 30_000);
    }
    quorum.ended(TermEnd::Decided(EndCause::HolderStopped));
    let page = page(&world);
    for (result, count) in [("success", 1), ("no_quorum", 1), ("timeout", 2), ("lost", 1)] {
        assert_lines(&page, &[&format!(r#"redislease_renewals_total{{quorum="default",result="{result}"}} {count}"#)]);
    }
    assert_lines(
        &page,
        &[
            &format!(r#"redislease_lease_renewals_total{{{OF},result="success"}} 1"#),
            &format!(r#"redislease_lease_renewals_total{{{OF},result="failure"}} 4"#),
            r#"redislease_transitions_total{quorum="default",reason="HolderStopped"} 1"#,
            r#"redislease_renew_margin_ratio_bucket{quorum="default",le="0.5"} 1"#,
            r#"redislease_renew_margin_ratio_bucket{quorum="default",le="0.4"} 0"#,
            r#"redislease_renew_duration_seconds_bucket{quorum="default",le="0.005"} 1"#,
            r#"redislease_renew_duration_seconds_bucket{quorum="default",le="0.0025"} 0"#,
        ],
    );
}

#[test]
fn the_end_of_validity_is_a_time_of_day() {
    let world = metrics();
    let lease = world.1.lease("jobs", "billing", "default");
    let id = TermId { attempt: Attempt(1), token: Token(1), holder: Holder("c/n/l/p/u".into()) };
    let valid_until = Some(clock::now() + Millis(20_000));
    let term = TermView { id, valid_until, stop_at: None, failed_rounds: 0 };
    lease.viewed(&View { standing: Standing::Held(term), ..View::default() });
    let expiry = value(&page(&world), "redislease_lease_expiry_timestamp_seconds{");
    let now = Duration::from_micros(clock::unix_micros()).as_secs_f64();
    assert!((expiry - now - 20.0).abs() < 5.0, "{expiry} at {now}");
    lease.viewed(&View::default());
    assert!(value(&page(&world), "redislease_lease_expiry_timestamp_seconds{").abs() < f64::EPSILON);
}

#[test]
fn seconds_without_a_holder_are_counted_while_they_pass() {
    let lease = LeaseRecord::default();
    let unheld = || locked(&lease.status).unheld_ms;
    lease.count_wait(Time(1_000));
    assert_eq!(unheld(), 0, "the lease does not wait yet");
    locked(&lease.status).waiting_since = Some(Time(2_000));
    lease.count_wait(Time(3_500));
    assert_eq!(unheld(), 1500);
    lease.count_wait(Time(4_000));
    locked(&lease.status).waiting_since = None;
    lease.count_wait(Time(9_000));
    assert_eq!(unheld(), 2000);
}

#[test]
fn each_read_counts_the_current_wait() {
    let world = metrics();
    world.1.lease("jobs", "billing", "default").show(&Shown { waiting: true, ..shown() });
    let give_up = std::time::Instant::now() + Duration::from_secs(10);
    while value(&page(&world), "redislease_lease_unheld_seconds_total{") <= 0.0 {
        assert!(std::time::Instant::now() < give_up, "nothing is counted");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_series_vanish_with_what_they_describe() {
    let world = metrics();
    let _kept = world.1.lease("jobs", "kept", "default");
    let gone = world.1.lease("jobs", "gone", "default");
    world.1.remove(&gone);
    // The keeper still seals its keys; its counts are not shown.
    gone.show(&shown());
    gone.renewed(&Renewal::Timeout);
    assert!(!page(&world).contains("gone"), "{}", page(&world));

    // Created again with the same name while the old record still exists.
    let again = world.1.lease("jobs", "gone", "default");
    world.1.remove(&gone);
    let of = r#"lease="gone",lease_namespace="jobs",quorum="default""#;
    assert_lines(&page(&world), &[&format!(r#"redislease_lease_renewals_total{{{of},result="failure"}} 0"#)]);
    world.1.remove(&again);
    assert!(!page(&world).contains("gone"), "{}", page(&world));

    drop(world.2.quorum("other"));
    assert!(!page(&world).contains(r#"quorum="other""#), "{}", page(&world));
}

#[test]
fn names_cannot_break_a_line() {
    let world = metrics();
    let _lease = world.1.lease("jobs", "billing", "a\"b\\c\nd");
    assert_lines(
        &page(&world),
        &[r#"redislease_lease_active{lease="billing",lease_namespace="jobs",quorum="a\"b\\c\nd"} 0"#],
    );
}

#[test]
fn handovers_are_counted_by_kind() {
    let world = metrics();
    world.1.handover(true, Duration::from_millis(80));
    world.1.handover(false, Duration::from_secs(40));
    assert_lines(
        &page(&world),
        &[
            r#"redislease_handover_duration_seconds_bucket{kind="graceful",le="0.1"} 1"#,
            r#"redislease_handover_duration_seconds_bucket{kind="failover",le="15"} 0"#,
            r#"redislease_handover_duration_seconds_bucket{kind="failover",le="60"} 1"#,
        ],
    );
}

#[test]
fn a_long_page_has_short_parts_and_each_header_once() {
    let all = metrics();
    let records: Vec<_> = (0..1000).map(|number| all.1.lease("jobs", &format!("l{number:04}"), "default")).collect();
    // Only one lease has a holder, and it is in the middle.
    records[500].show(&shown());
    let parts: Vec<String> = all.1.parts().collect();
    let longest = parts.iter().map(String::len).max().unwrap();
    assert!(parts.len() > 5 && longest < PART + 4096, "{} parts of at most {longest} bytes", parts.len());
    let page = parts.concat();
    for family in FAMILIES {
        let headers = page.matches(&format!("# TYPE {} ", family.name)).count();
        assert_eq!(headers, 1, "{}", family.name);
    }
    assert_eq!(page.matches("redislease_lease_active{").count(), 1000);
    let info = page.lines().position(|line| line.starts_with("redislease_lease_holder_info{")).unwrap();
    assert!(page.lines().nth(info - 1).unwrap().starts_with("# TYPE redislease_lease_holder_info"));
    drop(records);
}
