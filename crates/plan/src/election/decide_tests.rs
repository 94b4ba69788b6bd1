use super::*;
use redislease_core::lease::{EndReason, EndingView, TermView};
use redislease_core::op::{Attempt, Holder, Token};

const REQUIRED: Readiness = Readiness { required: true, unhealthy_after: Duration::from_secs(30) };
const NOW: Time = Time(1_000_000);

fn term() -> TermId {
    TermId { attempt: Attempt(7), token: Token(42), holder: Holder("c/c-uid/n/l/a/uid-a".into()) }
}

fn held() -> View {
    let term = TermView { id: term(), valid_until: None, stop_at: None, failed_rounds: 0 };
    View { standing: Standing::Held(term), ..View::default() }
}

fn ending() -> View {
    let ending = EndingView { id: term(), reason: EndReason::Decided, sealed: true, keys_until: NOW };
    View { ending: Some(Box::new(ending)), ..View::default() }
}

fn sighting(pod: PodFacts, not_ready: Option<u64>, terminating: Option<u64>) -> Sighting {
    let ago = |seconds: Option<u64>| seconds.map(|seconds| NOW - Millis::from_secs(seconds));
    let not_running = not_ready.filter(|_| !pod.running);
    Sighting {
        facts: pod.into(),
        not_ready_since: ago(not_ready),
        not_running_since: ago(not_running),
        terminating_since: ago(terminating),
    }
}

fn a() -> PodFacts {
    PodFacts::running("a")
}

fn not_ready() -> PodFacts {
    PodFacts { ready: false, ..a() }
}

struct Case {
    view: View,
    electorate: Vec<PodFacts>,
    may_begin: bool,
    revoked: Option<EndCause>,
    fresh: bool,
    handover: Option<HandoverOrder<'static>>,
    readiness: Readiness,
}

impl Case {
    fn of(view: View) -> Self {
        let electorate = vec![PodFacts::running("a"), PodFacts::running("b")];
        Self { view, electorate, may_begin: true, revoked: None, fresh: true, handover: None, readiness: REQUIRED }
    }

    fn decide(&self, holder: HolderPod<'_>) -> String {
        let eligibility = crate::election::Eligibility { requires_ready: true, gated: None };
        let electorate = Electorate::of(self.electorate.iter().cloned().map(Arc::new), &eligibility);
        let decision = decide(&Situation {
            now: NOW,
            view: &self.view,
            holder,
            electorate: &electorate,
            handover: self.handover,
            readiness: self.readiness,
            grace_period: Duration::from_secs(10),
            may_begin: self.may_begin,
            revoked: self.revoked,
            fresh: self.fresh,
        });
        let step = match decision.step {
            Step::Keep => "keep".into(),
            Step::Want { name, .. } => format!("want {name}"),
            Step::Forget => "forget".into(),
            Step::End { proof, cause, .. } => {
                format!("{} {}", if proof { "release" } else { "seal" }, cause.as_str())
            }
            Step::LookAgain => "look again".into(),
        };
        match decision.again_at {
            Some(at) => format!("{step}, again in {} ms", at.since(NOW).0),
            None => step,
        }
    }

    fn here(&self, sighting: &Sighting, candidate: bool) -> String {
        self.decide(HolderPod::Here { sighting, candidate })
    }
}

#[test]
fn holder_pod_state_determines_the_step() {
    let graceful = PodFacts { deletion_grace: Some(Duration::from_secs(30)), ready: false, ..a() };
    let table = [
        ("is running", sighting(a(), None, None), "keep"),
        ("is deleted gracefully", sighting(graceful.clone(), Some(99), Some(1)), "keep, again in 39000 ms"),
        ("is deleted and does not stop in time", sighting(graceful.clone(), Some(99), Some(40)), "seal StopOverdue"),
        (
            "has stopped",
            sighting(PodFacts { stopped: true, finished: true, ..graceful }, None, Some(1)),
            "release HolderStopped",
        ),
        (
            "is finished, but not proven to have stopped",
            sighting(PodFacts { finished: true, ..a() }, None, None),
            "seal HolderVanished",
        ),
        ("is not Ready, for less than unhealthyAfter", sighting(not_ready(), Some(29), None), "keep, again in 1000 ms"),
        ("is not Ready for unhealthyAfter", sighting(not_ready(), Some(30), None), "seal HolderUnhealthy"),
        (
            "is excluded",
            sighting(
                PodFacts {
                    annotations: [("redislease.io/exclude".into(), "true".into())].into_iter().collect(),
                    ..a()
                },
                None,
                None,
            ),
            "seal NoLongerCandidate",
        ),
    ];
    for (what, sighting, step) in table {
        assert_eq!(Case::of(held()).here(&sighting, true), step, "holder {what}");
    }
    assert_eq!(Case::of(held()).here(&sighting(a(), None, None), false), "seal NoLongerCandidate");
}

#[test]
fn missing_holder_is_released_on_proof_only() {
    let case = Case::of(held());
    assert_eq!(case.decide(HolderPod::Gone { stopped: true }), "release HolderStopped");
    assert_eq!(case.decide(HolderPod::Gone { stopped: false }), "seal HolderVanished");
    assert_eq!(case.decide(HolderPod::Unseen), "keep", "a pod that was not listed yet may exist");
}

#[test]
fn timeout_ends_no_term_without_a_fresh_read() {
    let case = Case { fresh: false, ..Case::of(held()) };
    assert_eq!(case.here(&sighting(not_ready(), Some(99), None), true), "look again");
    let graceful = PodFacts { deletion_grace: Some(Duration::ZERO), ..a() };
    assert_eq!(case.here(&sighting(graceful, None, Some(99)), true), "look again");
}

#[test]
fn not_ready_holder_stays_if_readiness_is_ignored() {
    let readiness = Readiness { required: false, unhealthy_after: Duration::from_secs(30) };
    let case = Case { readiness, ..Case::of(held()) };
    assert_eq!(case.here(&sighting(not_ready(), Some(9999), None), true), "keep");
    let pending = PodFacts { ready: false, running: false, ..a() };
    assert_eq!(case.here(&sighting(pending.clone(), Some(29), None), true), "keep, again in 1000 ms");
    assert_eq!(case.here(&sighting(pending, Some(30), None), true), "seal HolderUnhealthy", "it cannot be scheduled");
}

#[test]
fn revoked_term_is_released_on_proof_only() {
    let case = Case { revoked: Some(EndCause::Suspended), may_begin: false, ..Case::of(held()) };
    assert_eq!(case.here(&sighting(a(), None, None), true), "seal Suspended");
    assert_eq!(case.decide(HolderPod::Gone { stopped: true }), "release Suspended");
    assert_eq!(case.decide(HolderPod::Unseen), "seal Suspended");
}

#[test]
fn proof_after_the_seal_releases_the_keys() {
    let case = Case::of(ending());
    assert_eq!(case.decide(HolderPod::Gone { stopped: true }), "release HolderStopped");
    assert_eq!(case.decide(HolderPod::Gone { stopped: false }), "want a");
}

#[test]
fn next_holder_is_the_first_eligible_pod() {
    assert_eq!(Case::of(View::default()).decide(HolderPod::Unseen), "want a");
    let blocked = Case { may_begin: false, ..Case::of(View::default()) };
    assert_eq!(blocked.decide(HolderPod::Unseen), "forget");
    let nobody = Case { electorate: vec![], ..Case::of(View::default()) };
    assert_eq!(nobody.decide(HolderPod::Unseen), "forget");
}

#[test]
fn attempt_continues_while_its_pod_is_eligible() {
    let acquiring = |holder: &str| {
        let standing = Standing::Acquiring(Attempt(7), Holder(holder.into()));
        Case::of(View { standing, ..View::default() })
    };
    assert_eq!(acquiring("c/c-uid/n/l/b/uid-b").decide(HolderPod::Unseen), "want b");
    assert_eq!(acquiring("c/c-uid/n/l/z/uid-z").decide(HolderPod::Unseen), "want a");
}

#[test]
fn a_handover_elects_its_target_and_its_last_holder_last() {
    let mut case = Case::of(View::default());
    let mut wanted = |order, pods: &[&str]| {
        case.handover = order;
        case.electorate = pods.iter().map(|name| PodFacts::running(name)).collect();
        case.decide(HolderPod::Unseen)
    };
    let order = |to| Some(HandoverOrder { to, from: "a" });
    assert_eq!(wanted(None, &["a", "b", "c"]), "want a");
    assert_eq!(wanted(order(None), &["a", "b", "c"]), "want b");
    assert_eq!(wanted(order(Some("c")), &["a", "b", "c"]), "want c");
    assert_eq!(wanted(order(Some("c")), &["a", "b"]), "want b", "the target is not eligible any more");
    assert_eq!(wanted(order(Some("c")), &["a"]), "want a", "no other pod is left");
    assert_eq!(wanted(order(Some("c")), &[]), "forget");
}
