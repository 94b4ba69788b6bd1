//! Tests of a lease's status: each composes it step by step for changing inputs.

mod conditions;
mod random;
mod terms;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_core::lease::{EndReason, EndingView, Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Stage, Stored, Token};
use redislease_core::time::Time;

use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{MAX_HISTORY, QuorumIdentity};
use crate::api::{ConditionType, RedisLeaseStatus};
use crate::election::{Cluster, Electorate, Eligibility, EndCause, PodFacts};
use crate::status::{Composed, Inputs, ObservedTerms, Obstacle, QuorumOutlook, compose, renewal_notice};

const ELIGIBILITY: Eligibility = Eligibility { requires_ready: true, gated: None };

/// Tests add the number of a term to this token.
const TOKEN: u64 = 1_795_238_400_000_042;

pub(super) fn term(number: u64, pod: &str) -> TermId {
    TermId {
        attempt: Attempt(u128::from(number)),
        token: Token(TOKEN + number),
        holder: Holder(format!("eu-west-1/uid-here/jobs/billing/{pod}/uid-{pod}").into()),
    }
}

fn running(id: TermId) -> TermView {
    TermView { id, valid_until: Some(Time(9)), stop_at: Some(Time(5)), failed_rounds: 0 }
}

fn standing(standing: Standing) -> View {
    View { standing, ..View::default() }
}

fn held(number: u64, pod: &str) -> View {
    standing(Standing::Held(running(term(number, pod))))
}

fn ending(number: u64, pod: &str, reason: EndReason) -> View {
    let ending = EndingView { id: term(number, pod), reason, sealed: true, keys_until: Time(77) };
    View { ending: Some(Box::new(ending)), ..View::default() }
}

fn refused(stage: Stage, number: u64, metadata: &str) -> View {
    let by = Stored { stage, attempt: Attempt(9_999), number, metadata: metadata.into() };
    View { refused_by: Some(Box::new(by)), keys_read: true, retry_at: Some(Time(123)), ..View::default() }
}

fn acquiring() -> View {
    standing(Standing::Acquiring(Attempt(5), Holder("eu-west-1/uid-here/jobs/billing/a/uid-a".into())))
}

fn pod(name: &str, ready: bool) -> PodFacts {
    let node = Some(format!("node-of-{name}"));
    PodFacts { namespace: "jobs".into(), node, ready, ..PodFacts::running(name) }
}

/// The inputs for one lease, and its status as the API server has it.
#[derive(Default)]
struct Scenario {
    status: RedisLeaseStatus,
    now: Timestamp,
    view: Option<View>,
    observed_terms: ObservedTerms,
    withheld: bool,
    reads_keys: bool,
    is_quorum_unused: bool,
    obstacle: Option<(LeaseReady, String)>,
    pods: Option<Vec<PodFacts>>,
    /// The number of nodes that vote, of three.
    up: Option<usize>,
    mismatch: Option<String>,
    leaderless: Option<Duration>,
}

impl Scenario {
    /// A new RedisLease with two Ready pods and a healthy quorum.
    fn new() -> Self {
        Self {
            now: "2026-11-21T08:00:00.25Z".parse().unwrap(),
            view: Some(View::default()),
            reads_keys: true,
            pods: Some(vec![pod("a", true), pod("b", true)]),
            up: Some(3),
            ..Self::default()
        }
    }

    /// Pod `a` holds the lease, and status names it.
    fn held_by_a() -> Self {
        let mut scenario = Self::new();
        scenario.step_to(held(1, "a"));
        scenario
    }

    fn compose(&mut self) -> Composed {
        let electorate =
            self.pods.as_ref().map(|pods| Electorate::of(pods.iter().cloned().map(std::sync::Arc::new), &ELIGIBILITY));
        self.compose_with(electorate.as_ref())
    }

    fn compose_with(&mut self, electorate: Option<&Electorate>) -> Composed {
        if let Some(view) = &self.view {
            self.observed_terms.record_view(view);
        }
        compose(&Inputs {
            previous: &self.status,
            generation: Some(1),
            now: self.now,
            cluster: &Cluster { name: "eu-west-1".into(), uid: "uid-here".into() },
            namespace: "jobs",
            lease: "billing",
            view: self.view.as_ref(),
            observed_terms: &self.observed_terms,
            withheld: self.withheld,
            reads_keys: self.reads_keys,
            obstacle: self.obstacle.as_ref().map(|(reason, message)| Obstacle { reason: *reason, message }),
            electorate,
            no_candidates: None,
            quorum: self.up.map(|up| QuorumOutlook {
                name: "default",
                up,
                majority: 2,
                mismatch: self.mismatch.as_deref(),
            }),
            term_quorum: Some(QuorumIdentity { name: "default".into(), fingerprint: "f1".into() }),
            is_quorum_unused: self.is_quorum_unused,
            leaderless: self.leaderless,
            takeover_risk: None,
            runs_on: None,
            start: None,
            stop_risk: None,
            refused: None,
            handover: None,
        })
    }

    /// One second later, composes the status, writes it and reads it back. Checks that composing it again one minute later changes
    /// nothing.
    fn step(&mut self) -> Composed {
        self.now += Duration::from_secs(1);
        let composed = self.compose();
        let json = serde_json::to_value(&composed.status).unwrap();
        self.status = serde_json::from_value(json).unwrap();
        assert_eq!(self.status, composed.status, "the status survives serialization");
        self.now += Duration::from_mins(1);
        let again = self.compose();
        assert_eq!(again.status, self.status, "composing again changes nothing");
        assert_eq!((again.events, again.ended, again.began), (vec![], None, false));
        self.now -= Duration::from_mins(1);
        composed
    }

    fn step_to(&mut self, view: View) -> Composed {
        self.view = Some(view);
        self.step()
    }

    /// The operator restarts: the new process has observed nothing yet.
    fn restart(&mut self) {
        self.observed_terms = ObservedTerms::default();
        self.view = Some(View::default());
        (self.pods, self.up) = (None, None);
    }

    fn condition(&self, type_: ConditionType) -> &Condition {
        self.status.conditions.iter().find(|one| one.type_ == type_.as_str()).unwrap()
    }

    fn message(&self, type_: ConditionType) -> &str {
        &self.condition(type_).message
    }

    /// `Ready=True/HeldHere Active=...`
    fn conditions(&self) -> String {
        let all = self.status.conditions.iter();
        all.map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)).collect::<Vec<_>>().join(" ")
    }

    fn ready_and_active(&self) -> [&str; 4] {
        let (ready, active) = (self.condition(ConditionType::Ready), self.condition(ConditionType::Active));
        [&ready.status, &ready.reason, &active.status, &active.reason]
    }
}

/// The events as `type reason [pods] note`.
fn events(composed: &Composed) -> Vec<String> {
    let event = |notice: &crate::status::Notice| {
        let pods: Vec<&str> = notice.on_pods.iter().map(|(pod, _)| pod.as_str()).collect();
        format!(
            "{} {} [{}] {}",
            notice.reason.importance().as_str(),
            notice.reason.as_str(),
            pods.join(","),
            notice.note
        )
    };
    composed.events.iter().map(event).collect()
}

const NOTHING: [String; 0] = [];
