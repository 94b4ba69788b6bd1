//! What a lease's status says, as short stories: one world, one status, one turn after the other.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_core::lease::{EndReason, EndingView, Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Stage, Stored, Token};
use redislease_core::time::Time;

use crate::api::conditions::LeaseReady;
use crate::api::lease_status::MAX_HISTORY;
use crate::api::validated::Readiness;
use crate::api::{ConditionType, RedisLeaseStatus};
use crate::plan::{Electorate, EndCause, PodFacts};
use crate::status::{Composed, Inputs, Obstacle, QuorumOutlook, Witness, compose, renewal_notice};

const REQUIRED: Readiness = Readiness::Required { unhealthy_after: Duration::from_secs(30) };

/// The newest token a status shows, before any arithmetic of the tests on it.
const TOKEN: u64 = 1_795_238_400_000_042;

pub(super) fn term(number: u64, pod: &str) -> TermId {
    TermId {
        attempt: Attempt(u128::from(number)),
        token: Token(TOKEN + number),
        holder: Holder(format!("eu-west-1/jobs/billing/{pod}/uid-{pod}").into()),
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
    View { ending: Some(ending), ..View::default() }
}

fn refused(stage: Stage, number: u64, metadata: &str) -> View {
    let by = Stored { stage, attempt: Attempt(9_999), number, metadata: metadata.into() };
    View { refused_by: Some(by), retry_at: Some(Time(123)), ..View::default() }
}

fn acquiring() -> View {
    standing(Standing::Acquiring(Attempt(5), Holder("eu-west-1/jobs/billing/a/uid-a".into())))
}

fn pod(name: &str, ready: bool) -> PodFacts {
    PodFacts {
        namespace: "jobs".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        resource_version: None,
        labels: [].into(),
        annotations: [].into(),
        created: None,
        node: Some(format!("node-of-{name}")),
        ready,
        finished: false,
        deletion_grace: None,
        stopped: false,
    }
}

/// Everything around one lease, and its status as the API server holds it.
struct World {
    status: RedisLeaseStatus,
    now: Timestamp,
    view: Option<View>,
    witness: Witness,
    expired: bool,
    obstacle: Option<(LeaseReady, String)>,
    pods: Option<Vec<PodFacts>>,
    /// Nodes that give votes, of three.
    up: Option<usize>,
    mismatch: Option<String>,
    leaderless: Option<Duration>,
}

impl World {
    /// Two ready pods, a healthy quorum, a resource that was just created.
    fn new() -> Self {
        Self {
            status: RedisLeaseStatus::default(),
            now: "2026-11-21T08:00:00.25Z".parse().unwrap(),
            view: Some(View::default()),
            witness: Witness::default(),
            expired: false,
            obstacle: None,
            pods: Some(vec![pod("a", true), pod("b", true)]),
            up: Some(3),
            mismatch: None,
            leaderless: None,
        }
    }

    /// `a` holds, and everybody knows.
    fn held_by_a() -> Self {
        let mut world = Self::new();
        world.turn(held(1, "a"));
        world
    }

    fn look(&mut self) -> Composed {
        let electorate = self.pods.as_ref().map(|pods| Electorate::of(pods, REQUIRED));
        if let Some(view) = &self.view {
            self.witness.saw(view);
        }
        compose(&Inputs {
            previous: &self.status,
            generation: Some(1),
            now: self.now,
            cluster: "eu-west-1",
            namespace: "jobs",
            lease: "billing",
            view: self.view.as_ref(),
            witness: &self.witness,
            expired: self.expired,
            obstacle: self.obstacle.as_ref().map(|(reason, message)| Obstacle { reason: *reason, message }),
            electorate: electorate.as_ref(),
            quorum: self.up.map(|up| QuorumOutlook {
                name: "default",
                fingerprint: "f1",
                up,
                majority: 2,
                mismatch: self.mismatch.as_deref(),
            }),
            leaderless: self.leaderless,
        })
    }

    /// A second later: what is composed is written, and read back. A further look a minute later must change nothing.
    fn settle(&mut self) -> Composed {
        self.now += Duration::from_secs(1);
        let composed = self.look();
        let json = serde_json::to_value(&composed.status).unwrap();
        self.status = serde_json::from_value(json).unwrap();
        assert_eq!(self.status, composed.status, "the API server keeps what is written");
        self.now += Duration::from_secs(60);
        let again = self.look();
        assert_eq!(again.status, self.status, "nothing has happened");
        assert_eq!((again.events, again.ended, again.began), (vec![], None, false));
        self.now -= Duration::from_secs(60);
        composed
    }

    fn turn(&mut self, view: View) -> Composed {
        self.view = Some(view);
        self.settle()
    }

    /// The process ends and another begins: it has seen nothing yet.
    fn restart(&mut self) {
        self.witness = Witness::default();
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

fn told(composed: &Composed) -> Vec<String> {
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

#[test]
fn one_patch_publishes_a_term() {
    let mut world = World::new();
    let composed = world.turn(standing(Standing::Publishing(running(term(1, "a")))));
    assert!(composed.began);
    assert_eq!(told(&composed), ["Normal Acquired [a] term 1795238400000043: a in eu-west-1"]);
    assert_eq!(
        serde_json::to_value(&world.status).unwrap(),
        serde_json::json!({
            "observedGeneration": 1,
            "attempt": "00000000000000000000000000000001",
            "fencingToken": TOKEN + 1,
            "holder": {"cluster": "eu-west-1", "namespace": "jobs", "pod": "a", "podUID": "uid-a", "node": "node-of-a"},
            "quorum": {"name": "default", "fingerprint": "f1"},
            "acquireTime": "2026-11-21T08:00:01Z",
            "transitions": 1,
            "lastTransition": {
                "time": "2026-11-21T08:00:01Z", "reason": "Acquired", "to": "a",
                "message": "a took the lease with token 1795238400000043.",
            },
            "candidates": {"total": 2, "eligible": 2},
            "conditions": world.status.conditions,
        })
    );
    assert_eq!(
        world.conditions(),
        "Ready=True/HeldHere Active=True/HeldHere CandidatesAvailable=True/StandbyAvailable \
         QuorumHealthy=True/MajorityReachable"
    );
    // The answer to the write, and every renewal after it, is no news.
    let before = world.status.clone();
    assert_eq!(told(&world.turn(held(1, "a"))), NOTHING);
    assert_eq!(world.status, before);
}

#[test]
fn a_holder_that_has_stopped_hands_over_at_once() {
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("b", true)]);
    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = world.turn(View::default());
    assert_eq!(
        told(&composed),
        ["Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason HolderStopped)"]
    );
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
    assert_eq!((&world.status.holder, &world.status.attempt, &world.status.acquire_time), (&None, &None, &None));
    assert_eq!(world.status.fencing_token, Some(1_795_238_400_000_043));

    world.leaderless = Some(Duration::from_millis(1_234));
    let composed = world.turn(held(2, "b"));
    assert_eq!(
        told(&composed),
        ["Normal Acquired [b] term 1795238400000044: b in eu-west-1 (was a, reason HolderStopped, leaderless 1.2s)"]
    );
    let transition = world.status.last_transition.clone().unwrap();
    assert_eq!((transition.from.as_deref(), transition.to.as_deref()), (Some("a"), Some("b")));
    assert_eq!(transition.reason, "HolderStopped");
    assert_eq!(world.status.transitions, 3);
    assert_eq!(world.status.history[0].pod, "a");
}

#[test]
fn a_term_ended_without_proof_stays_named_until_its_keys_have_ended() {
    for (cause, reason) in [
        (EndCause::HolderVanished, "Normal Stopping"),
        (EndCause::StopOverdue, "Normal Stopping"),
        (EndCause::HolderUnhealthy, "Warning HolderUnhealthy"),
        (EndCause::NoLongerCandidate, "Normal Stopping"),
        (EndCause::QuorumChanged, "Normal Stopping"),
    ] {
        let mut world = World::held_by_a();
        world.witness.decided(term(1, "a").attempt, cause, false);
        // The keeper has not heard of it yet: nothing is said.
        assert_eq!(told(&world.turn(held(1, "a"))), NOTHING);
        let composed = world.turn(ending(1, "a", EndReason::Decided));
        let [event] = &told(&composed)[..] else { panic!("{composed:?}") };
        assert!(
            event.starts_with(&format!("{reason} [a] term 1795238400000043: a in eu-west-1 must stop: ")),
            "{event}"
        );
        assert_eq!(composed.ended.map(crate::status::TermEnd::as_str), Some(cause.as_str()));
        assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Stopping"]);
        assert_eq!(world.status.holder.as_ref().unwrap().pod, "a");
        assert!(world.status.attempt.is_some());
        assert_eq!(world.status.history[0].reason, cause.as_str());

        // Another attempt may begin while the sealed keys still stand.
        let view = View { standing: acquiring().standing, ..ending(1, "a", EndReason::Decided) };
        let before = world.status.clone();
        world.turn(view);
        assert_eq!(world.status, before);

        let composed = world.turn(View::default());
        let released = format!(
            "Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason {})",
            cause.as_str()
        );
        assert_eq!(told(&composed), [released]);
        assert_eq!(composed.ended, None, "it is counted once");
        assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
        assert_eq!(world.status.holder, None);
        assert_eq!(world.status.history.len(), 1);
    }
}

#[test]
fn a_lost_term_is_said_to_be_lost() {
    for (reason, word) in [
        (EndReason::Deadline, "RenewDeadline"),
        (EndReason::Misses, "KeysMissing"),
        (EndReason::NeverConfirmed, "NeverConfirmed"),
    ] {
        let mut world = World::held_by_a();
        world.up = Some(1);
        let composed = world.turn(ending(1, "a", reason));
        let [event] = &told(&composed)[..] else { panic!("{composed:?}") };
        assert!(
            event.starts_with("Warning LeaseLost [a] term 1795238400000043: a in eu-west-1 lost the lease: "),
            "{event}"
        );
        assert_eq!(
            world.conditions(),
            "Ready=False/QuorumUnavailable Active=False/LeaseLost CandidatesAvailable=True/StandbyAvailable \
             QuorumHealthy=False/Lost"
        );
        assert_eq!(world.status.last_transition.as_ref().unwrap().reason, word);
        assert_eq!(told(&world.turn(View::default())), NOTHING);
        assert_eq!(world.ready_and_active(), ["False", "QuorumUnavailable", "False", "Unheld"]);
        world.up = Some(2);
        world.now += Duration::from_secs(14);
        let composed = world.turn(held(2, "b"));
        let tail = format!("b in eu-west-1 (was a, reason {word}, leaderless 16s)");
        assert!(told(&composed)[0].ends_with(&tail), "{composed:?}");
    }
}

#[test]
fn an_outage_that_is_over_in_time_costs_no_write() {
    let mut world = World::held_by_a();
    let before = world.status.clone();
    for up in [2, 1, 0, 1, 2, 3] {
        world.up = Some(up);
        assert_eq!(told(&world.settle()), NOTHING);
        assert_eq!(world.status, before, "{up} nodes give votes");
    }
}

#[test]
fn a_restart_that_confirms_the_term_writes_nothing() {
    let mut world = World::held_by_a();
    let before = world.status.clone();
    world.restart();
    world.settle();
    assert_eq!(world.status, before, "the keeper has not heard of the term yet");
    let mut adopted = running(term(1, "a"));
    (adopted.valid_until, adopted.stop_at) = (None, None);
    world.turn(standing(Standing::Adopting(adopted.clone())));
    assert_eq!(world.status, before);

    let composed = world.turn(standing(Standing::Uncertain(adopted)));
    assert_eq!(told(&composed), NOTHING);
    assert_eq!(world.ready_and_active(), ["Unknown", "Starting", "Unknown", "Starting"]);
    assert_eq!(world.status.attempt, before.attempt);
    (world.pods, world.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    world.turn(held(1, "a"));
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!((world.status.transitions, world.status.fencing_token), (1, before.fencing_token));
}

#[test]
fn what_was_given_up_is_never_taken_back() {
    let mut world = World::held_by_a();
    world.witness.decided(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    world.turn(ending(1, "a", EndReason::Decided));
    let before = world.status.clone();
    // Another operator that still renews it reads this status.
    world.restart();
    world.turn(held(1, "a"));
    assert_eq!(world.status, before);
    // It seals again: the reason stays the first.
    world.turn(ending(1, "a", EndReason::Decided));
    assert_eq!(world.status, before);
    let composed = world.turn(View::default());
    assert_eq!(told(&composed).len(), 1, "{composed:?}");
    assert_eq!(world.status.history[0].reason, "NoLongerCandidate");
    assert_eq!(world.status.holder, None);
}

#[test]
fn a_greater_token_in_status_is_never_overwritten() {
    let mut world = World::new();
    world.turn(held(5, "b"));
    let before = world.status.clone();
    for late in
        [standing(Standing::Publishing(running(term(4, "a")))), held(4, "a"), ending(4, "a", EndReason::Superseded)]
    {
        world.witness = Witness::default();
        world.turn(late);
        assert_eq!(world.status, before);
    }
}

#[test]
fn without_a_keeper_nothing_is_known_until_the_keys_have_ended() {
    let mut world = World::held_by_a();
    world.restart();
    world.view = None;
    world.obstacle = Some((LeaseReady::InvalidReference, "Secret redis does not exist.".into()));
    let composed = world.settle();
    assert_eq!(told(&composed), ["Warning InvalidReference [] Secret redis does not exist."]);
    assert_eq!(world.ready_and_active(), ["False", "InvalidReference", "Unknown", "Starting"]);
    world.expired = true;
    let composed = world.settle();
    assert!(told(&composed)[0].starts_with("Warning LeaseLost [a] term 1795238400000043: "), "{composed:?}");
    assert_eq!(world.ready_and_active(), ["False", "InvalidReference", "False", "Unheld"]);
    assert_eq!(world.status.holder, None);
}

#[test]
fn an_obstacle_shows_while_the_lease_is_held() {
    for reason in [LeaseReady::Suspended, LeaseReady::InvalidReference, LeaseReady::InvalidSpec] {
        let mut world = World::held_by_a();
        world.obstacle = Some((reason, "Why.".into()));
        world.settle();
        assert_eq!(world.condition(ConditionType::Ready).message, "Why.");
        assert_eq!(world.condition(ConditionType::Ready).status, "False");
        assert_eq!(world.condition(ConditionType::Active).reason, "HeldHere");
    }
    let mut world = World::held_by_a();
    world.obstacle = Some((LeaseReady::QuorumUnavailable, "Why.".into()));
    world.settle();
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
}

#[test]
fn suspending_stops_the_holder_and_unsuspending_begins_a_new_term() {
    let mut world = World::held_by_a();
    world.obstacle = Some((LeaseReady::Suspended, "The spec says suspend: true.".into()));
    world.witness.decided(term(1, "a").attempt, EndCause::Suspended, false);
    world.turn(ending(1, "a", EndReason::Decided));
    assert_eq!(world.ready_and_active(), ["False", "Suspended", "False", "Stopping"]);
    world.turn(View::default());
    assert_eq!(world.ready_and_active(), ["False", "Suspended", "False", "Unheld"]);
    world.obstacle = None;
    world.turn(held(2, "a"));
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!(world.status.fencing_token, Some(1_795_238_400_000_044));
}

#[test]
fn every_refusal_of_a_spec_is_told_once_in_its_own_words() {
    let mut world = World::new();
    world.view = None;
    for (reason, event) in
        [(LeaseReady::InvalidSpec, "InvalidSpec"), (LeaseReady::InvalidReference, "InvalidReference")]
    {
        for message in ["One thing.", "Another thing."] {
            world.obstacle = Some((reason, message.into()));
            assert_eq!(told(&world.settle()), [format!("Warning {event} [] {message}")]);
        }
    }
}

#[test]
fn a_first_start_waits_for_its_quorum() {
    let mut world = World::new();
    (world.up, world.pods) = (None, None);
    world.settle();
    assert_eq!(world.conditions(), "Ready=Unknown/Starting Active=False/Unheld");
    world.up = Some(0);
    world.settle();
    assert_eq!(world.conditions(), "Ready=False/QuorumUnavailable Active=False/Unheld QuorumHealthy=False/Lost");
    assert_eq!(
        world.message(ConditionType::Ready),
        "Fewer than a majority of the nodes of quorum default give votes. No term can begin."
    );
    (world.up, world.pods) = (Some(3), Some(vec![pod("a", true)]));
    world.settle();
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn candidates_are_counted_and_named() {
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("a", true), pod("b", false)]);
    world.settle();
    assert_eq!(world.condition(ConditionType::CandidatesAvailable).reason, "OnlyHolder");
    assert_eq!(
        serde_json::to_value(&world.status.candidates).unwrap(),
        serde_json::json!({"total": 2, "eligible": 1, "ineligible": [{"pod": "b", "reason": "NotReady"}]})
    );
    world.pods = Some(vec![pod("a", false), pod("b", false)]);
    let composed = world.settle();
    assert_eq!(told(&composed), NOTHING, "a holder that flaps keeps the lease");
    assert_eq!(world.condition(ConditionType::CandidatesAvailable).reason, "NoCandidate");
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);

    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = world.turn(View::default());
    let message = "No pod may be elected: a (NotReady), b (NotReady).";
    assert_eq!(told(&composed)[1], format!("Warning NoCandidate [] {message}"));
    assert_eq!(world.ready_and_active(), ["False", "NoCandidate", "False", "Unheld"]);
    assert_eq!(world.message(ConditionType::Ready), message);
    world.pods = Some(vec![]);
    world.settle();
    assert_eq!(world.message(ConditionType::Ready), "No pod matches the candidates in the spec.");
}

#[test]
fn a_passive_cluster_is_ready_and_stays_so_try_after_try() {
    let mut world = World::new();
    let peer = refused(Stage::Term, 7, "us-east-1/jobs/billing/x/uid-x");
    assert_eq!(told(&world.turn(peer.clone())), NOTHING);
    assert_eq!(world.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(world.message(ConditionType::Active), "x of cluster us-east-1 holds the lease.");
    assert_eq!(world.status.holder, None);
    let before = world.status.clone();
    world.turn(acquiring());
    world.turn(peer);
    assert_eq!(world.status, before);
    world.restart();
    world.settle();
    assert_eq!(world.status, before, "a restart has not tried yet");
    (world.pods, world.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    world.turn(View { retry_at: Some(Time(500)), ..View::default() });
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"], "a try that nobody refused");
}

#[test]
fn a_peer_that_stops_is_no_holder() {
    let mut world = World::new();
    world.turn(refused(Stage::Sealed, 7, "us-east-1/jobs/billing/x/uid-x"));
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn two_clusters_of_one_name_are_told_apart() {
    let mut world = World::new();
    let namesake = refused(Stage::Term, 7, "eu-west-1/jobs/billing/x/uid-x");
    let composed = world.turn(namesake.clone());
    let message = "x is no pod of this cluster and holds the lease under the same cluster name, eu-west-1: \
                   give each cluster on the quorum its own name.";
    assert_eq!(told(&composed), [format!("Warning ClusterNameConflict [] {message}")]);
    assert_eq!(world.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(world.condition(ConditionType::QuorumHealthy).reason, "ClusterNameConflict");
    let before = world.status.clone();
    world.turn(acquiring());
    assert_eq!(world.status, before);
    world.turn(namesake);
    assert_eq!(world.status, before);
}

#[test]
fn what_this_cluster_left_behind_is_no_conflict() {
    // An attempt for a pod of ours that was never published.
    let mut world = World::new();
    assert_eq!(told(&world.turn(refused(Stage::Term, 7, "eu-west-1/jobs/billing/b/uid-b"))), NOTHING);
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
    assert_eq!(world.condition(ConditionType::QuorumHealthy).reason, "MajorityReachable");
    // A term of a pod that is gone, on a node that missed the release.
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("b", true)]);
    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    world.turn(View::default());
    world.turn(refused(Stage::Term, TOKEN + 1, "eu-west-1/jobs/billing/a/uid-a"));
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn another_lease_on_the_same_key_is_named() {
    let mut world = World::new();
    let composed = world.turn(refused(Stage::Term, 7, "eu-west-1/jobs/invoices/x/uid-x"));
    let message = "RedisLease jobs/invoices of cluster eu-west-1 holds a key of this lease.";
    assert_eq!(told(&composed), [format!("Warning KeyHeldByOtherLease [] {message}")]);
    assert_eq!(world.ready_and_active(), ["False", "KeyHeldByOtherLease", "False", "Unheld"]);
    let before = world.status.clone();
    world.turn(acquiring());
    assert_eq!(world.status, before);

    world.turn(refused(Stage::Term, 7, "\u{1b}[31mme"));
    let shown = world.message(ConditionType::Ready);
    assert_eq!(shown, "A value that is no holder's name holds a key of this lease: \"\\u{1b}[31mme\".");
}

#[test]
fn a_mismatch_is_shown_while_a_majority_votes() {
    let mut world = World::held_by_a();
    world.mismatch = Some("node r3: its marker names another configuration".into());
    world.settle();
    let condition = world.condition(ConditionType::QuorumHealthy);
    assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("ConfigMismatch", "False"));
    assert_eq!(condition.message, "node r3: its marker names another configuration");
}

#[test]
fn a_condition_s_time_moves_with_its_status_alone() {
    let mut world = World::held_by_a();
    let since = world.condition(ConditionType::Active).last_transition_time.clone();
    world.turn(held(1, "a"));
    assert_eq!(world.condition(ConditionType::Active).last_transition_time, since);
    world.witness.decided(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    world.turn(ending(1, "a", EndReason::Decided));
    let stopping = world.condition(ConditionType::Active).last_transition_time.clone();
    assert!(stopping > since);
    world.turn(View::default());
    assert_eq!(world.condition(ConditionType::Active).reason, "Unheld");
    assert_eq!(world.condition(ConditionType::Active).last_transition_time, stopping, "False stays False");
}

#[test]
fn foreign_conditions_stay() {
    let mut world = World::held_by_a();
    let foreign = Condition { type_: "Audited".into(), ..world.condition(ConditionType::Ready).clone() };
    world.status.conditions.push(foreign.clone());
    world.turn(ending(1, "a", EndReason::Deadline));
    assert_eq!(world.status.conditions.last(), Some(&foreign));
    assert_eq!(world.status.conditions.len(), 5);
}

#[test]
fn history_keeps_the_latest_terms() {
    let mut world = World::new();
    for number in 1..=15 {
        let pod = if number % 2 == 0 { "a" } else { "b" };
        world.turn(held(number, pod));
        // Every third end happens while the API server is away: the next status is the next term's.
        if number % 3 != 0 {
            world.turn(ending(number, pod, EndReason::Deadline));
        }
    }
    let tokens: Vec<i64> = world.status.history.iter().map(|past| past.fencing_token).collect();
    let expected: Vec<i64> = (5..=14).rev().map(|number| i64::try_from(TOKEN).unwrap() + number).collect();
    assert_eq!(tokens, expected);
    assert_eq!(tokens.len(), MAX_HISTORY);
    assert_eq!(world.status.transitions, 15 + 14, "each term begins, and all but the last have ended");
    let reasons: Vec<&str> = world.status.history.iter().map(|past| past.reason.as_str()).take(3).collect();
    assert_eq!(reasons, ["RenewDeadline", "RenewDeadline", "Unobserved"]);
}

#[test]
fn renewals_that_fail_are_told_once() {
    let failing = |rounds| {
        let mut term = running(term(1, "a"));
        term.failed_rounds = rounds;
        standing(Standing::Held(term))
    };
    assert_eq!(renewal_notice(&failing(0), &failing(1)), None);
    let notice = renewal_notice(&failing(1), &failing(2)).unwrap();
    assert_eq!((notice.reason.as_str(), notice.reason.importance().as_str()), ("RenewFailing", "Warning"));
    assert_eq!(notice.on_pods, [("a".to_owned(), "uid-a".to_owned())]);
    assert!(notice.note.starts_with("term 1795238400000043: renewals of the lease of a fail"), "{}", notice.note);
    assert!(renewal_notice(&failing(0), &failing(4)).is_some(), "views in between may be missed");
    assert_eq!(renewal_notice(&failing(2), &failing(3)), None);
    assert_eq!(renewal_notice(&failing(3), &failing(0)), None);
}

mod any_world {
    use super::*;
    use proptest::prelude::*;

    fn views() -> impl Strategy<Value = Option<View>> {
        let number = 1..6_u64;
        let pod = prop::sample::select(vec!["a", "b", "gone"]);
        let reason = prop::sample::select(vec![
            EndReason::Decided,
            EndReason::Misses,
            EndReason::Deadline,
            EndReason::NeverConfirmed,
            EndReason::Superseded,
        ]);
        let metadata = prop::sample::select(vec![
            "eu-west-1/jobs/billing/x/uid-x",
            "us-east-1/jobs/billing/x/uid-x",
            "eu-west-1/jobs/invoices/x/uid-x",
            "me",
        ]);
        (0..9_u8, number, pod, reason, metadata).prop_map(|(kind, number, pod, reason, metadata)| {
            let term = running(term(number, pod));
            Some(match kind {
                0 => return None,
                1 => View::default(),
                2 => acquiring(),
                3 => standing(Standing::Publishing(term)),
                4 => standing(Standing::Held(term)),
                5 => standing(Standing::Adopting(term)),
                6 => standing(Standing::Uncertain(term)),
                7 => ending(number, pod, reason),
                _ => refused(Stage::Term, number, metadata),
            })
        })
    }

    type Turn = (Option<View>, Option<usize>, Option<bool>, Option<(EndCause, bool)>, bool, bool);

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let cause = (prop::sample::select(EndCause::ALL.to_vec()), any::<bool>());
        let turn = (
            views(),
            prop::option::of(0..=3_usize),
            prop::option::of(any::<bool>()),
            prop::option::of(cause),
            any::<bool>(),
            any::<bool>(),
        );
        prop::collection::vec(turn, 1..25)
    }

    proptest! {
        /// Whatever happens in whatever order, also what never does: nothing is said twice, no token falls, and what
        /// belongs together is there together.
        #[test]
        fn a_status_is_consistent(turns in turns()) {
            let mut world = World::new();
            for (view, up, ready, decided, obstacle, expired) in turns {
                let before = world.status.clone();
                world.view = view;
                world.up = up;
                world.pods = ready.map(|ready| vec![pod("a", ready), pod("b", !ready)]);
                world.expired = expired;
                world.obstacle = obstacle.then(|| (LeaseReady::Suspended, "Suspended.".into()));
                if let (Some((cause, proof)), Some(attempt)) = (decided, before.attempt.as_deref()) {
                    world.witness.decided(attempt.parse().unwrap(), cause, proof);
                }
                let composed = world.settle();
                let status = &world.status;
                prop_assert!(status.fencing_token >= before.fencing_token);
                prop_assert!(status.transitions >= before.transitions);
                prop_assert!(status.history.len() <= MAX_HISTORY);
                prop_assert!(status.history.windows(2).all(|two| two[0].fencing_token > two[1].fencing_token));
                prop_assert_eq!(status.attempt.is_some(), status.holder.is_some());
                prop_assert_eq!(status.attempt.is_some(), status.acquire_time.is_some());
                let active = &world.condition(ConditionType::Active).status;
                prop_assert!(status.attempt.is_some() || active == "False");
                prop_assert_eq!(composed.began, status.fencing_token > before.fencing_token);
                if status.attempt == before.attempt {
                    prop_assert_eq!(&status.holder, &before.holder);
                    let was = before.conditions.iter().find(|one| one.type_ == "Active");
                    if let (Some(_), Some(was)) = (&status.attempt, was) {
                        prop_assert!(was.status != "False" || active == "False", "given up, then taken back");
                    }
                }
            }
        }
    }
}
