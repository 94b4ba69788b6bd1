use super::Verdict::{Problem, Warning};
use super::*;
use crate::cli::doctor::certificates::Certificate;

fn server() -> Server {
    Server {
        version: "7.0.15".into(),
        run_id: "3f00".into(),
        misconfigurations: Vec::new(),
        refused: Vec::new(),
        replicas: 0,
        memory: (1000, 0),
        saves: true,
        clock_offset_ms: Some(3),
        has_leader: Some(true),
    }
}

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

/// A certificate with a lifetime of 90 days, of which so many are left.
fn certificate(days: i64) -> Certificate {
    let at = |days| now() + jiff::SignedDuration::from_hours(24 * days);
    Certificate { subject: "CN=redis".into(), not_before: at(days - 90), not_after: at(days) }
}

fn node(name: &str, zone: Option<&str>, server: Server) -> NodeFacts {
    let server = Server { run_id: format!("{name}-{}", server.run_id), ..server };
    NodeFacts {
        name: name.into(),
        address: format!("{name}:6379"),
        zone: zone.map(str::to_owned),
        server: Some(Ok(server)),
        chain: Ok(vec![certificate(80)]),
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    let last_transition_time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now());
    let (type_, status, reason, message) = (type_.into(), status.into(), reason.into(), message.into());
    Condition { last_transition_time, message, observed_generation: None, reason, status, type_ }
}

fn healthy() -> QuorumFacts {
    QuorumFacts {
        name: "default".into(),
        invalid: None,
        fingerprint: Some("f00d".into()),
        secret: None,
        has_tls: true,
        has_password: true,
        report: Report {
            ready: Some(condition("Ready", "True", "QuorumAvailable", "3 of 3 nodes vote.")),
            health: Some(condition("QuorumHealthy", "True", "AllReachable", "3 of 3 nodes vote.")),
            votes_soon: true,
            created: None,
        },
        nodes: ["a", "b", "c"].map(|name| node(name, Some(name), server())).into(),
        is_led: Some(true),
        authorities: Ok(vec![certificate(80)]),
        client_chain: Ok(vec![certificate(80)]),
    }
}

/// The findings that are not OK, as `check subject: message`.
fn faults(quorum: &QuorumFacts) -> Vec<(Verdict, String)> {
    let found = super::quorum(quorum, now()).into_iter().filter(|finding| finding.verdict != Verdict::Ok);
    found.map(|one| (one.verdict, format!("{} {}: {}", one.check, one.subject, one.message))).collect()
}

fn with(change: impl FnOnce(&mut Server)) -> QuorumFacts {
    let mut quorum = healthy();
    let Some(Ok(server)) = &mut quorum.nodes[1].server else { panic!("a server") };
    change(server);
    quorum
}

fn change(change: fn(&mut QuorumFacts)) -> QuorumFacts {
    let mut quorum = healthy();
    change(&mut quorum);
    quorum
}

fn has_only_fault(quorum: &QuorumFacts, verdict: Verdict, says: &str) {
    let found = faults(quorum);
    let [(found, message)] = found.as_slice() else { panic!("{says}: {found:?}") };
    assert_eq!(*found, verdict, "{message}");
    assert!(message.starts_with(says), "{message}");
}

#[test]
fn a_healthy_quorum_has_no_fault() {
    assert_eq!(faults(&healthy()), []);
    assert!(quorum(&healthy(), now()).len() > 10);
}

#[test]
fn a_quorum_without_a_leader_is_a_problem() {
    let says = "operator quorum default: No replica of the operator leads on this quorum, so no lease moves to another pod. If \
                no replica runs, no lease is renewed either: check that";
    has_only_fault(&change(|quorum| quorum.is_led = Some(false)), Problem, says);
    let unknown = change(|quorum| quorum.is_led = None);
    has_only_fault(&unknown, Verdict::Unchecked, "operator quorum default: Whether a replica of the operator leads");
    let found = quorum(&healthy(), now());
    assert!(found.iter().any(|one| one.check == "operator" && one.verdict == Verdict::Ok), "{found:?}");
    // No replica needs to lead on a quorum that cannot be used.
    let report = Report { ready: Some(condition("Ready", "False", "InvalidReference", "Why.")), ..healthy().report };
    has_only_fault(&QuorumFacts { report, is_led: None, ..healthy() }, Problem, "status quorum default: ");
}

#[test]
fn each_fault_of_a_server_is_one_finding() {
    let eviction = (Misconfiguration::Eviction, "maxmemory-policy is `allkeys-lru`: set it".to_owned());
    for (quorum, verdict, says) in [
        (with(|server| server.misconfigurations = vec![eviction]), Problem, "eviction node default/b: maxmemory"),
        (
            with(|server| server.misconfigurations = vec![(Misconfiguration::Cluster, "cluster".into())]),
            Problem,
            "cluster-mode node default/b: cluster.",
        ),
        (
            with(|server| server.refused = vec![("INCR".into(), "NOPERM".into()), ("DEL".into(), "NOPERM".into())]),
            Problem,
            "commands node default/b: The server refuses INCR, DEL (NOPERM): grant",
        ),
        (with(|server| server.replicas = 2), Warning, "replicas node default/b: 2 replicas are connected"),
        (with(|server| server.memory = (81, 100)), Warning, "memory node default/b: 81 of 100 bytes"),
        (
            with(|server| server.saves = false),
            Warning,
            "persistence node default/b: The server cannot save its data and may",
        ),
        (
            with(|server| server.clock_offset_ms = Some(-10_000)),
            Warning,
            "clock node default/b: The clock is 10000 ms behind",
        ),
        (
            with(|server| server.clock_offset_ms = Some(-10_001)),
            Problem,
            "clock node default/b: The clock is 10001 ms behind",
        ),
        (
            with(|server| server.clock_offset_ms = None),
            Verdict::Unchecked,
            "clock node default/b: The server does not answer TIME",
        ),
        (
            with(|server| server.clock_offset_ms = Some(1000)),
            Warning,
            "clock node default/b: The clock is 1000 ms ahead of",
        ),
    ] {
        has_only_fault(&quorum, verdict, says);
    }
}

#[test]
fn server_that_refuses_writes_for_its_disk_has_two_problems() {
    let quorum = with(|server| {
        server.saves = false;
        server.refused = vec![("SET".into(), "MISCONF Errors writing to the AOF file".into())];
    });
    let found = faults(&quorum);
    let [(Problem, commands), (Problem, persistence)] = found.as_slice() else { panic!("{found:?}") };
    assert!(commands.ends_with("fix saving to disk."), "{commands}");
    assert!(persistence.contains("cannot save its data and refuses writes (MISCONF)"), "{persistence}");
}

#[test]
fn each_fault_of_a_quorum_is_one_finding() {
    for (quorum, verdict, says) in [
        (change(|quorum| quorum.has_tls = false), Warning, "tls quorum default: Connections are not encrypted"),
        (change(|quorum| quorum.has_password = false), Warning, "login quorum default: The nodes need no password"),
        (change(|quorum| drop(quorum.nodes.pop())), Warning, "size quorum default: 2 of 2 nodes must vote"),
        (
            change(|quorum| quorum.nodes.push(node("d", Some("d"), server()))),
            Warning,
            "size quorum default: 4 nodes tolerate no more failures than 3",
        ),
        (
            change(|quorum| quorum.nodes[0].zone = Some("b".into())),
            Warning,
            "zones quorum default: 2 of 3 nodes are in zone b, so the quorum is lost",
        ),
        (change(|quorum| quorum.nodes[0].zone = None), Warning, "zones quorum default: 1 of 3 nodes name no zone"),
        (
            change(|quorum| quorum.nodes[1].server = quorum.nodes[0].server.clone()),
            Problem,
            "shared-server quorum default: The addresses of a (a:6379) and b (b:6379) lead to one server",
        ),
        (
            change(|quorum| {
                let text = "the server's certificate has expired: renew it".into();
                quorum.nodes[0].server = Some(Err(Failure { reason: Reason::Tls, text }));
            }),
            Problem,
            "tls node default/a: a:6379: the server's certificate has expired",
        ),
        (
            change(|quorum| quorum.nodes[0].chain = Ok(vec![certificate(5)])),
            Warning,
            "certificate node default/a: The server's certificate (CN=redis) expires at 2026-11-27T12:00:00Z, in 5 days",
        ),
        (
            change(|quorum| quorum.authorities = Ok(vec![certificate(5)])),
            Warning,
            "certificate quorum default: The authority in `ca.crt` (CN=redis) expires at",
        ),
        (
            change(|quorum| quorum.client_chain = Ok(vec![certificate(-1)])),
            Problem,
            "certificate quorum default: The client's certificate in `tls.crt` (CN=redis) expired at",
        ),
        (change(|quorum| quorum.invalid = Some("bad".into())), Problem, "spec quorum default: bad."),
    ] {
        has_only_fault(&quorum, verdict, says);
    }
}

#[test]
fn what_the_operator_reports_is_a_problem_unless_it_passes() {
    let unready = |status, reason, votes_soon| Report {
        ready: Some(condition("Ready", status, reason, "Why.")),
        health: Some(condition("QuorumHealthy", "False", "Lost", "Why.")),
        votes_soon,
        created: None,
    };
    let created =
        |seconds| Report { created: Some(now() - jiff::SignedDuration::from_secs(seconds)), ..Report::default() };
    let at_risk = Some(condition("QuorumHealthy", "False", "AtRisk", "2 of 3 nodes vote."));
    for (report, verdict, says) in [
        (created(59), Warning, "The operator has not written a status for this RedisQuorum: check that it runs"),
        (created(61), Problem, "The operator has not written a status for this RedisQuorum: check that it runs"),
        (
            unready("False", "QuorumUnavailable", false),
            Problem,
            "The operator reports Ready=False (QuorumUnavailable): Why.",
        ),
        (
            unready("False", "QuorumUnavailable", true),
            Warning,
            "The operator reports Ready=False (QuorumUnavailable): Why.",
        ),
        (
            unready("False", "InvalidReference", true),
            Problem,
            "The operator reports Ready=False (InvalidReference): Why.",
        ),
        (unready("Unknown", "Starting", false), Warning, "The operator reports Ready=Unknown (Starting): Why."),
        (
            Report { health: at_risk, ..healthy().report },
            Warning,
            "The operator reports QuorumHealthy=False (AtRisk): 2 of 3 nodes vote.",
        ),
    ] {
        has_only_fault(&QuorumFacts { report, ..healthy() }, verdict, &format!("status quorum default: {says}"));
    }
}

#[test]
fn the_cluster_is_judged() {
    let only = |facts: &Facts| {
        let found = judge(facts);
        let [found] = found.as_slice() else { panic!("{found:?}") };
        (found.verdict, found.message.clone())
    };
    let kind =
        |missing_fields| Facts { kinds: vec![KindFacts { kind: "RedisLease", missing_fields }], ..Facts::default() };
    assert_eq!(only(&kind(Ok(Some(Vec::new())))).0, Verdict::Ok);
    let old = only(&kind(Ok(Some(vec!["spec.tls".into(), "spec.nodes.zone".into()]))));
    assert!(old.0 == Problem && old.1.contains("lacks spec.tls, spec.nodes.zone: run `redislease crds"), "{old:?}");
    assert_eq!(only(&kind(Ok(None))).0, Problem);
    let none = Facts { quorums: Some(Ok(Vec::new())), namespace: "system".into(), ..Facts::default() };
    assert_eq!(only(&none).0, Problem);
    for (unchecked, verdict) in [(true, Verdict::Unchecked), (false, Problem)] {
        let obstacle = Obstacle { message: "There is none.".into(), unchecked };
        let facts = Facts { quorums: Some(Err(obstacle)), ..Facts::default() };
        assert_eq!(only(&facts), (verdict, "There is none.".to_owned()));
    }
    let unknown = Facts { api_server: Some(Err("no answer".into())), ..Facts::default() };
    assert_eq!(only(&unknown).0, Verdict::Unchecked);
}

#[test]
fn missing_right_is_a_problem_only_of_the_operator() {
    let account = || Identity::ServiceAccount("system/operator".into());
    let (missing, needed) = (
        "may not patch pods, which is needed to label pods: use the roles of the chart.",
        "rights that the operator needs",
    );
    let caller = "Use --service-account to check those of the operator.";
    for (identity, allowed, verdict, says) in [
        (account(), Ok(true), Verdict::Ok, format!("Service account system/operator has all 2 {needed}.")),
        (account(), Ok(false), Problem, format!("Service account system/operator {missing}")),
        (Identity::Pod, Ok(true), Verdict::Ok, format!("The service account of this pod has all 2 {needed}.")),
        (Identity::Pod, Ok(false), Problem, format!("The service account of this pod {missing}")),
        (Identity::Caller, Ok(true), Verdict::Ok, format!("Your identity has all 2 {needed}. {caller}")),
        (
            Identity::Caller,
            Ok(false),
            Verdict::Unchecked,
            format!("Your identity lacks 1 of the 2 {needed}, such as: patch pods. {caller}"),
        ),
        (account(), Err("forbidden".into()), Verdict::Unchecked, "patch pods: forbidden.".into()),
    ] {
        let right = |right: &str, allowed| RightFacts { right: right.into(), needed_for: "to label pods", allowed };
        let rights = vec![right("list pods", Ok(true)), right("patch pods", allowed)];
        let found = judge(&Facts { identity, rights, ..Facts::default() });
        let [found] = found.as_slice() else { panic!("{says}: {found:?}") };
        assert_eq!((found.verdict, &found.message), (verdict, &says));
    }
}

#[test]
fn leases_that_move_with_a_replica_are_named() {
    let judged = |at_risk: Result<_, String>| {
        let leases = at_risk.map(|at_risk| LeaseFacts { at_risk, ..LeaseFacts::default() });
        judge(&Facts { leases: Some(leases), ..Facts::default() })
    };
    assert_eq!(judged(Ok(vec![]))[0].verdict, Verdict::Ok);
    assert_eq!(judged(Err("no answer".into()))[0].verdict, Verdict::Unchecked);
    let risky = |count: usize| (0..count).map(|number| (format!("jobs/{number}"), "It can move.".to_owned())).collect();
    let found = judged(Ok(risky(1)));
    assert_eq!((found[0].verdict, found[0].subject.as_str()), (Warning, "lease jobs/0"));
    assert_eq!(found[0].message, "It can move. See docs/guarantees.md.");
    let found = judged(Ok(risky(12)));
    assert_eq!((found.len(), found[10].message.as_str()), (11, "2 more leases have such durations."));
}

#[test]
fn leases_that_cannot_be_read_are_problems_and_invalid_ones_are_warnings() {
    let unreadable = vec![("jobs/a".to_owned(), "granularity: unknown variant `Zone`".to_owned())];
    let invalid = vec![("jobs/b".to_owned(), "spec.leaseDuration is too long".to_owned())];
    let leases = LeaseFacts { unreadable, invalid, ..LeaseFacts::default() };
    let mut found = judge(&Facts { leases: Some(Ok(leases)), ..Facts::default() });
    let second = found.remove(1);
    assert_eq!((second.verdict, second.subject.as_str()), (Warning, "lease jobs/b"));
    assert_eq!(second.message, "spec.leaseDuration is too long");
    assert_eq!((found[0].verdict, found[0].check, found[0].subject.as_str()), (Problem, "leases", "lease jobs/a"));
    assert!(found[0].message.contains("ignores it: granularity: unknown variant `Zone`. Correct"), "{found:?}");
    assert_eq!((found[1].verdict, found.len()), (Verdict::Ok, 2));
}

#[test]
fn quorums_with_other_servers_need_another_fingerprint() {
    let found = |second: QuorumFacts| -> Vec<String> {
        let quorums = vec![healthy(), QuorumFacts { name: "second".into(), ..second }];
        let facts = Facts { quorums: Some(Ok(quorums)), ..Facts::default() };
        judge(&facts).into_iter().filter(|one| one.check == "fingerprint").map(|one| one.message).collect()
    };
    assert_eq!(found(healthy()), [""; 0], "the same servers");
    let elsewhere =
        || QuorumFacts { nodes: ["d", "e", "f"].map(|name| node(name, Some(name), server())).into(), ..healthy() };
    assert!(found(elsewhere())[0].contains("the same fingerprint f00d"), "{:?}", found(elsewhere()));
    assert_eq!(found(QuorumFacts { fingerprint: Some("beef".into()), ..elsewhere() }), [""; 0]);
}
