use serde_json::json;

use super::*;
use crate::api::RedisLease;
use crate::api::names::{self, PodRole};
use crate::election::{Candidate, PodFacts};
use crate::plan::calls::answer::{Asked, Body, Found, Stored};
use crate::plan::calls::request::LeaseName;
use crate::plan::{Priority, StatusWrite};
use crate::samples;

const MIDDLE: Entropy = Entropy(u64::MAX / 2 + 1);
const CALLER: u32 = 7;

fn new(calls: usize) -> Calls<u32> {
    Calls::new(Limits { calls, spare: 0, ..Limits::STANDARD })
}

fn lease(uid: &str) -> Arc<RedisLease> {
    let mut lease = samples::lease("n", "l", &json!({}));
    lease.metadata.uid = Some(uid.into());
    Arc::new(lease)
}

fn name() -> LeaseName {
    LeaseName { namespace: "n".into(), name: "l".into(), uid: "lease".into() }
}

fn status(priority: Priority) -> Request {
    let write = StatusWrite { priority, version: Some("4".into()), status: Arc::default(), not_after: Some(Time(50)) };
    Request::LeaseStatus { object: lease("lease"), write: Box::new(write), quorum: Some("default".into()) }
}

fn role(of: &str, version: &str) -> Request {
    let write = RoleWrite {
        version: Some(version.into()),
        token: Some("9".into()),
        not_after: Some(Time(50)),
        ..samples::role_write("p")
    };
    Request::Role { lease: LeaseName { uid: of.into(), ..name() }, write: Box::new(write), quorum: None }
}

fn read(read: Read) -> Request {
    Request::Read { lease: name(), read }
}

fn holder() -> Read {
    Read::Holder { pod: "p".into(), uid: "uid-p".into(), workload: None }
}

/// The pod in this version, as the write of [`role`] leaves it, or without its label.
fn pod(version: &str, has_label: bool) -> Candidate {
    let label = has_label.then(|| (names::role_label("l"), "active".to_owned()));
    Candidate::Pod(Arc::new(PodFacts {
        resource_version: Some(version.into()),
        labels: label.into_iter().collect(),
        annotations: [(names::token_annotation("l"), "9".to_owned())].into_iter().collect(),
        ..PodFacts::running("p")
    }))
}

/// A webhook manages the label.
fn stored(object: Option<Candidate>) -> Body {
    let label = json!({"f:metadata": {"f:labels": {"f:lease.redislease.io/l": {}}}});
    let managed_fields = serde_json::from_value(json!([{"manager": "webhook", "fieldsV1": label}])).unwrap();
    Body::Object(Stored { asked: Asked(1), object, managed_fields })
}

fn refused() -> CallError {
    CallError::Refused("why".into())
}

fn unanswered() -> CallError {
    CallError::Unanswered("late".into())
}

fn panicked() -> CallError {
    CallError::Panicked("planned".into())
}

/// Everything that happens at `now`, as text, and the numbers of the calls that are sent.
fn effects(calls: &mut Calls<u32>, now: Time) -> (Vec<String>, Vec<u64>) {
    let mut numbers = Vec::new();
    let effects = std::iter::from_fn(|| calls.poll_effect(now)).map(|effect| match effect {
        Effect::Send(number, request) => {
            numbers.push(number);
            format!("send {request}")
        }
        Effect::Outcome(ticket, outcome) => format!("{ticket} {}", shown(&outcome)),
        Effect::Answered => "answered".to_owned(),
        Effect::Unreachable(why) => format!("unreachable: {why}"),
        Effect::Reachable(after) => format!("reachable after {} ms", after.0),
    });
    let effects = effects.collect();
    (effects, numbers)
}

fn shown(outcome: &Outcome) -> String {
    let of_role = |outcome: &RoleOutcome| match outcome {
        RoleOutcome::Written(Some(altered)) => format!("{:?} made {}", altered.manager, altered.difference()),
        RoleOutcome::Written(None) => "Written".to_owned(),
        other => format!("{other:?}"),
    };
    match outcome {
        Outcome::LeaseStatus(StatusOutcome::Written(_)) => "Written".to_owned(),
        Outcome::LeaseStatus(outcome) => format!("{outcome:?}"),
        Outcome::Role(uid, RoleAnswer { outcome, found }) => {
            let found = match found {
                Some(Found::Here(..)) => "here",
                Some(Found::Gone(_)) => "gone",
                None => "unknown",
            };
            format!("{uid} {} {found}", of_role(outcome))
        }
        Outcome::Lease(read) => format!("lease {:?}", read.as_ref().map(Option::is_some)),
        Outcome::Holder(_, read) => format!("holder {:?}", read.as_ref().map(|found| matches!(found, Found::Here(..)))),
        other => format!("{other:?}"),
    }
}

/// Sends one request and gives it the answers, one after the other. Returns the last verdict and the outcome.
fn ends(request: Request, answers: Vec<Answer>) -> (Option<Verdict>, String) {
    let mut calls = new(4);
    calls.submit(Time(0), request, CALLER);
    let mut verdict = None;
    for answer in answers {
        let (_, numbers) = effects(&mut calls, Time(0));
        let judged = calls.answered(Time(1), numbers[0], answer, MIDDLE);
        verdict = judged.map(|(_, judged)| judged.verdict);
    }
    let outcome = effects(&mut calls, Time(1)).0.into_iter().find(|effect| effect.starts_with("7 "));
    (verdict, outcome.unwrap_or_default())
}

#[test]
fn the_answer_to_a_status_write_has_a_verdict_and_an_outcome() {
    for (answer, verdict, outcome) in [
        (Ok(Body::Lease(lease("lease"))), Verdict::Done, "7 Written"),
        (Err(CallError::Conflict), Verdict::Conflict, "7 Conflict"),
        // Until the watch shows the deletion, the lease writes again: the second time, it waits.
        (Err(CallError::NotFound), Verdict::Conflict, "7 Gone"),
        (Err(refused()), Verdict::Refused, "7 Refused(\"why\")"),
        (Err(unanswered()), Verdict::Unanswered, "7 Unanswered(\"late\")"),
        (Err(CallError::Unreadable("bytes".into())), Verdict::Refused, "7 Unanswered(\"bytes\")"),
        (Err(panicked()), Verdict::Panicked, "7 Unanswered(\"a defect of RedisLease: planned\")"),
    ] {
        assert_eq!(ends(status(Priority::End), vec![answer]), (Some(verdict), outcome.to_owned()));
    }
    let (_, outcome) = ends(status(Priority::End), vec![Ok(Body::Node(true))]);
    assert!(outcome.contains("another kind"), "{outcome}");
}

#[test]
fn a_role_write_that_finds_another_object_reads_it_before_it_ends() {
    let altered =
        "7 uid-p Some(\"webhook\") made metadata.labels[lease.redislease.io/l] is absent instead of \"active\" here";
    let conflict = || Err(CallError::Conflict);
    let unchanged = "7 uid-p Refused(\"pod p is unchanged although its resource version matches, and the API server \
                     refuses the change: the object changed meanwhile\") unknown";
    for (answers, verdict, outcome) in [
        (vec![Ok(stored(Some(pod("5", true))))], Verdict::Done, "7 uid-p Written here"),
        (vec![Ok(stored(Some(pod("5", false))))], Verdict::Done, altered),
        (vec![Ok(stored(None))], Verdict::Done, "7 uid-p Written unknown"),
        (vec![Err(refused())], Verdict::Refused, "7 uid-p Refused(\"why\") unknown"),
        (vec![Err(unanswered())], Verdict::Unanswered, "7 uid-p Unanswered(\"late\") unknown"),
        (vec![conflict(), Ok(stored(Some(pod("5", true))))], Verdict::Raced, "7 uid-p Conflict here"),
        (vec![conflict(), Ok(stored(Some(pod("4", true))))], Verdict::Refused, unchanged),
        (vec![Err(CallError::NotFound), Err(CallError::NotFound)], Verdict::Done, "7 uid-p Gone gone"),
        (vec![conflict(), Err(unanswered())], Verdict::Unanswered, "7 uid-p Conflict unknown"),
        (vec![conflict(), Err(refused())], Verdict::Conflict, "7 uid-p Conflict unknown"),
    ] {
        assert_eq!(ends(role("lease", "4"), answers), (Some(verdict), outcome.to_owned()));
    }
}

/// Until the watch shows the deletion, each turn may read it.
#[test]
fn a_lease_that_is_gone_is_read_again_after_a_pause() {
    for answer in [Ok(Body::Lease(lease("another"))), Err(CallError::NotFound)] {
        assert_eq!(ends(read(Read::Lease), vec![answer]).0, Some(Verdict::Conflict));
    }
}

#[test]
fn a_read_of_an_object_with_another_uid_finds_nothing() {
    for (request, answer, outcome) in [
        (read(Read::Lease), Ok(Body::Lease(lease("lease"))), "7 lease Ok(true)"),
        (read(Read::Lease), Ok(Body::Lease(lease("another"))), "7 lease Ok(false)"),
        (read(Read::Lease), Err(CallError::NotFound), "7 lease Ok(false)"),
        (read(Read::Lease), Err(refused()), "7 lease Err(\"the API server refused: why\")"),
        (read(holder()), Ok(stored(Some(pod("5", true)))), "7 holder Ok(true)"),
        (
            read(Read::Holder { pod: "p".into(), uid: "x".into(), workload: None }),
            Ok(stored(Some(pod("5", true)))),
            "7 holder Ok(false)",
        ),
        (read(holder()), Err(CallError::NotFound), "7 holder Ok(false)"),
    ] {
        assert_eq!(ends(request, vec![answer]).1, outcome);
    }
}

#[test]
fn the_answer_to_the_read_of_a_lease_serves_all_whose_read_it_replaced() {
    let mut calls = new(4);
    calls.submit(Time(0), read(Read::Lease), 1);
    calls.submit(Time(0), read(Read::Lease), 2);
    let (sent, numbers) = effects(&mut calls, Time(0));
    assert_eq!(sent, ["send RedisLease n/l"]);
    calls.submit(Time(0), read(Read::Lease), 3);
    // It has no answer, and a newer read is queued already.
    calls.answered(Time(1), numbers[0], Err(unanswered()), MIDDLE);
    let (_, numbers) = effects(&mut calls, Time(101));
    calls.answered(Time(102), numbers[0], Ok(Body::Done), MIDDLE);
    let (sent, numbers) = effects(&mut calls, Time(102));
    assert_eq!(sent, ["reachable after 101 ms", "send RedisLease n/l"]);
    calls.answered(Time(103), numbers[0], Err(CallError::NotFound), MIDDLE);
    let outcomes = effects(&mut calls, Time(103)).0;
    assert_eq!(outcomes, ["1 lease Ok(false)", "2 lease Ok(false)", "3 lease Ok(false)"]);
    // The answer to another read serves the newest caller only.
    calls.submit(Time(103), read(holder()), 1);
    calls.submit(Time(103), read(holder()), 2);
    let (_, numbers) = effects(&mut calls, Time(103));
    calls.answered(Time(104), numbers[0], Err(CallError::NotFound), MIDDLE);
    assert_eq!(effects(&mut calls, Time(104)).0, ["2 holder Ok(false)"]);
}

#[test]
fn a_write_that_is_not_sent_has_an_outcome() {
    let mut calls = new(4);
    let withdrawn = |calls: &mut Calls<u32>, now| effects(calls, Time(now)).0;
    calls.submit(Time(0), status(Priority::Counts), 1);
    calls.submit(Time(0), status(Priority::End), 2);
    calls.withdraw(&role("lease", "4").key().unwrap());
    calls.withdraw(&status(Priority::End).key().unwrap());
    assert_eq!(withdrawn(&mut calls, 0), ["1 Withdrawn", "2 Withdrawn"]);
    calls.submit(Time(40), status(Priority::End), 3);
    calls.submit(Time(40), role("lease", "4"), 3);
    assert_eq!(withdrawn(&mut calls, 50), ["3 Withdrawn", "3 uid-p Withdrawn unknown"], "the deadline has passed");
    calls.submit(Time(50), Request::LeaseChange(("n".into(), workload())), 4);
    calls.submit(Time(50), Request::LeaseChange(("n".into(), workload())), 5);
    assert_eq!(withdrawn(&mut calls, 50), ["4 LeaseChange(Outdated)", "send the RedisLease of the workload n/w"]);
}

fn workload() -> crate::api::validated::Workload {
    crate::api::validated::Workload { kind: crate::api::validated::WorkloadKind::Deployment, name: "w".into() }
}

#[test]
fn a_process_that_leads_no_more_sends_no_decision() {
    let mut calls = new(4);
    let submit = |calls: &mut Calls<u32>, now| {
        calls.submit(Time(now), status(Priority::End), 1);
        calls.submit(Time(now), role("lease", "4"), 2);
        effects(calls, Time(now)).0
    };
    calls.decides_until("default", Time(10));
    assert_eq!(submit(&mut calls, 10), ["1 Withdrawn", "send pod n/p"], "the role is of no quorum");
    calls.decides_until("default", Time(11));
    calls.decides_until("another", Time(0));
    assert_eq!(submit(&mut calls, 10), ["send RedisLease n/l"]);
}

#[test]
fn a_role_write_moves_the_version_of_those_of_other_leases() {
    let mut calls = new(4);
    for (lease, version) in [("a", "4"), ("b", "4"), ("c", "3")] {
        calls.submit(Time(0), role(lease, version), 1);
    }
    let versions = |calls: &mut Calls<u32>| -> Vec<(u64, String)> {
        let sent = std::iter::from_fn(|| calls.poll_effect(Time(0)));
        let sent = sent.filter_map(|effect| {
            let Effect::Send(number, request) = effect else { return None };
            let Request::Role { write, .. } = &*request else { return None };
            Some((number, write.version.clone()?))
        });
        sent.collect()
    };
    let first = versions(&mut calls);
    assert_eq!(first, [(1, "4".to_owned())], "one of a lane at a time");
    calls.answered(Time(0), 1, Ok(stored(Some(pod("5", true)))), MIDDLE);
    assert_eq!(versions(&mut calls), [(2, "5".to_owned())]);
    calls.answered(Time(0), 2, Err(refused()), MIDDLE);
    assert_eq!(versions(&mut calls), [(3, "3".to_owned())], "it was decided on another version");
    calls.answered(Time(1), 3, Err(CallError::Conflict), MIDDLE);
    assert_eq!((calls.answered_at(), calls.waits_for(4)), (Some(Time(1)), true), "the object is read next");
}

#[test]
fn who_waits_for_an_answer_gets_the_next_one_of_any_call() {
    let mut calls = new(4);
    calls.await_answer();
    calls.probe();
    let (sent, numbers) = effects(&mut calls, Time(5));
    assert_eq!((sent, calls.answered_at()), (vec!["send namespace kube-system".to_owned()], None));
    calls.answered(Time(6), numbers[0], Err(unanswered()), MIDDLE);
    calls.submit(Time(6), read(holder()), 1);
    assert_eq!(effects(&mut calls, Time(6)).0, ["unreachable: no answer from the API server: late"]);
    let at = calls.next_deadline().unwrap();
    let (sent, numbers) = effects(&mut calls, at);
    assert_eq!(sent, ["send namespace kube-system"]);
    assert!(calls.waits_for(numbers[0]));
    calls.answered(at, numbers[0], Err(refused()), MIDDLE);
    assert!(!calls.waits_for(numbers[0]));
    let reachable = format!("reachable after {} ms", at.0 - 6);
    assert_eq!(effects(&mut calls, at).0, ["answered", &reachable, "send pod n/p"]);
    assert_eq!(calls.answered_at(), Some(at));
    assert!(calls.answered(at, numbers[0], Ok(Body::Done), MIDDLE).is_none(), "it was answered before");
    calls.submit(at, read(Read::Lease), 1);
    let (_, numbers) = effects(&mut calls, at);
    calls.answered(at + Millis(1), numbers[0], Err(panicked()), MIDDLE);
    assert_eq!(calls.answered_at(), Some(at), "a panic is no answer of the API server");
}

/// Its encryption key is lost: the API server answers each read of it with an error, and everything else.
#[test]
fn a_secret_that_is_never_read_is_given_up_and_other_reads_go_on() {
    let secret = Request::Secret { namespace: "n".into(), quorum: "q".into(), name: "s".into() };
    for (request, outcome) in [(secret, Some("1 Secret(Err(Unanswered(\"late\")))")), (read(Read::Lease), None)] {
        let mut calls = new(4);
        let mut now = Time(0);
        calls.submit(now, request, 1);
        let mut seen: Vec<(Time, String)> = Vec::new();
        for _ in 0..40 {
            calls.submit(now, read(holder()), 2);
            let (shown, numbers) = effects(&mut calls, now);
            let sent: Vec<_> = shown.iter().filter(|text| text.starts_with("send")).cloned().collect();
            seen.extend(shown.into_iter().map(|text| (now, text)));
            for (number, sent) in numbers.into_iter().zip(sent) {
                let is_other = sent.contains("pod n/p") || sent.contains("kube-system");
                let answer = if is_other { CallError::NotFound } else { unanswered() };
                calls.answered(now, number, Err(answer), MIDDLE);
            }
            now += Millis(250);
        }
        let told = seen.iter().filter(|(_, text)| text.contains("unreachable")).count();
        assert_eq!(told, 2, "then the object counts as the reason: {seen:?}");
        let given = seen.iter().find(|(_, text)| text.starts_with("1 "));
        assert_eq!(given.map(|(_, text)| text.as_str()), outcome, "{seen:?}");
        assert!(given.is_none_or(|(at, _)| *at >= Time(5000)), "a short outage changes nothing: {given:?}");
    }
}

/// An admission webhook hangs on each write of a pod, and of a status.
#[test]
fn a_write_that_is_never_answered_waits_longer_and_is_told_apart_from_an_outage() {
    let mut calls = new(4);
    let (mut now, mut waits, mut outcomes, mut statuses) = (Time(0), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..40 {
        let Request::Role { lease, mut write, quorum } = role("lease", "4") else { unreachable!() };
        (write.role, write.not_after) = (Some(PodRole::Standby), None);
        calls.submit(now, Request::Role { lease, write, quorum }, 7);
        let mut status = status(Priority::Counts);
        let Request::LeaseStatus { write, .. } = &mut status else { unreachable!() };
        write.not_after = None;
        calls.submit(now, status, 8);
        calls.submit(now, read(Read::Lease), 1);
        while let Some(effect) = calls.poll_effect(now) {
            match effect {
                Effect::Send(number, request) => {
                    let answer = match &*request {
                        Request::Role { write, .. } => {
                            waits.push(write.waits);
                            Err(unanswered())
                        }
                        Request::LeaseStatus { .. } => Err(unanswered()),
                        _ => Err(CallError::NotFound),
                    };
                    calls.answered(now, number, answer, MIDDLE);
                }
                Effect::Outcome(7, Outcome::Role(_, answer)) => outcomes.push(answer.outcome),
                Effect::Outcome(8, Outcome::LeaseStatus(outcome)) => statuses.push(outcome),
                _ => {}
            }
        }
        now += Millis(250);
    }
    assert!(statuses.contains(&StatusOutcome::AtFault("late".into())), "{statuses:?}");
    assert_eq!(waits[..3], [false, true, true]);
    assert!(matches!(outcomes[..2], [RoleOutcome::Unanswered(_), RoleOutcome::Unanswered(_)]), "{outcomes:?}");
    assert!(outcomes[2..].iter().any(|outcome| *outcome == RoleOutcome::AtFault("late".into())), "{outcomes:?}");
}

fn quorum() -> crate::api::RedisQuorum {
    let quorum = json!({"metadata": {"name": "default", "namespace": "system"}, "spec": {"nodes": []}});
    serde_json::from_value(quorum).unwrap()
}

/// The terms of a tenant end, all at once.
#[test]
fn the_name_of_the_leader_waits_for_one_call_of_a_tenant_with_many_ending_terms() {
    let mut calls = new(1);
    for number in 0..50 {
        let mut ending = status(Priority::End);
        if let Request::LeaseStatus { object, .. } = &mut ending {
            let mut other = object.as_ref().clone();
            other.metadata.uid = Some(format!("uid-{number}"));
            *object = Arc::new(other);
        }
        calls.submit(Time(0), ending, number);
    }
    calls.submit(Time(0), Request::QuorumStatus(Box::new(quorum())), 99);
    let (first, numbers) = effects(&mut calls, Time(0));
    assert!(first.len() == 1 && !first[0].contains("default"), "{first:?}");
    calls.answered(Time(1), numbers[0], Err(CallError::Conflict), MIDDLE);
    let (second, _) = effects(&mut calls, Time(1));
    assert!(second.iter().any(|sent| sent.contains("send") && sent.contains("default")), "{second:?}");
}

#[test]
fn calls_that_decide_who_is_active_are_more_urgent_than_counts_and_events() {
    let event = |number| Request::Event {
        namespace: "n".into(),
        key: ("uid".into(), crate::status::NoticeReason::Acquired),
        not_before: Time(number),
    };
    let priorities = [
        (status(Priority::End), Priority::End),
        (read(holder()), Priority::End),
        (read(Read::Node { node: "k".into(), uid: "u".into() }), Priority::End),
        (Request::ClusterUid, Priority::End),
        (Request::QuorumStatus(Box::new(quorum())), Priority::End),
        (status(Priority::Publication), Priority::Publication),
        (read(Read::Lease), Priority::Publication),
        (role("lease", "4"), Priority::Active),
        (Request::Workload(("n".into(), workload())), Priority::Active),
        (Request::LeaseChange(("n".into(), workload())), Priority::Standby),
        (status(Priority::Counts), Priority::Counts),
        (event(0), Priority::Events),
    ];
    for (request, priority) in &priorities {
        assert_eq!(request.priority(), *priority, "{request}");
    }
    let mut calls = new(1);
    calls.submit(Time(0), event(3), 1);
    calls.submit(Time(0), status(Priority::Counts), 2);
    calls.submit(Time(0), read(holder()), 3);
    let (sent, numbers) = effects(&mut calls, Time(0));
    assert_eq!(sent, ["send pod n/p"]);
    calls.keep_only(Priority::Events, Time(4));
    assert!(calls.has(Priority::End) && calls.has(Priority::Events) && !calls.has(Priority::Counts));
    assert_eq!(calls.lengths(), [0, 0, 0, 0, 0, 1]);
    calls.answered(Time(2), numbers[0], Err(CallError::NotFound), MIDDLE);
    assert_eq!(effects(&mut calls, Time(2)).0, ["3 holder Ok(false)"]);
    assert_eq!(effects(&mut calls, Time(3)).0, ["send event n/Acquired"]);
}
