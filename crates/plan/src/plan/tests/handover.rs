//! Requested handovers.

use redislease_core::op::{Stage, Stored};

use super::*;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{HandoverState, HandoverStatus};

const REQUESTED: &str = "redislease.io/handover-requested";
const TO: &str = "redislease.io/handover-to";

impl Story {
    /// Somebody requests a handover in the annotations of the lease.
    pub(super) fn request(&mut self, id: &str, to: Option<&str>) {
        self.store_request(id, to);
        self.turn();
    }

    /// The same, and the operator has not seen it yet.
    fn store_request(&mut self, id: &str, to: Option<&str>) {
        let annotations = [(REQUESTED, id)].into_iter().chain(to.map(|to| (TO, to)));
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.lease_mut().metadata.annotations = Some(annotations);
    }

    /// The handover in the status on the API server.
    fn handover(&self) -> HandoverStatus {
        self.status().handover.as_deref().expect("status.handover").clone()
    }

    /// `a` holds the lease, and the operator has ended its term for a handover to `to`. The status says so.
    fn handing_over(to: &str) -> Self {
        let mut story = Self::held_by_a();
        story.request("1", Some(to));
        assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        let write = story.status_write().unwrap();
        assert_eq!(write.priority, Priority::End);
        story.write();
        story.reported(NoticeReason::HandoverRequested);
        story
    }

    /// The keys of the ended term have expired.
    fn keys_expire(&mut self) {
        self.facts.holder = PodKnowledge::Unseen;
        self.now = Time(10_000_000);
        self.view(idle(0));
        self.answer();
    }
}

/// An attempt was refused.
fn held_by_the_other_cluster(retry_at: Time) -> View {
    let metadata = "there/uid-there/jobs/billing/x/uid-x".into();
    let value = Stored { stage: Stage::Term, attempt: Attempt(5), number: 99, metadata };
    View { refused_by: Some(Box::new(value)), keys_read: true, retry_at: Some(retry_at), ..View::default() }
}

fn four_pods(story: &mut Story) {
    story.candidates(&["a", "b", "c", "d"].map(pod));
}

#[test]
fn the_requested_pod_acquires_the_lease_when_the_keys_have_expired() {
    let mut story = Story::handing_over("pod/b");
    four_pods(&mut story);
    let HandoverStatus { id, to, from, state, message, .. } = story.handover();
    assert_eq!((id.as_str(), to.as_deref(), from.as_deref()), ("1", Some("pod/b"), Some("a")));
    assert_eq!((state, message.contains("The term of a has ended.")), (HandoverState::Running, true));
    story.keys_expire();
    assert_eq!(story.wanted().as_deref(), Some("b"));
    story.view(publishing(term(2, 8, "b")));
    assert_eq!(story.status_write().unwrap().priority, Priority::Publication, "one write");
    story.write();
    let notice = story.reported(NoticeReason::HandoverCompleted);
    assert_eq!(notice.on_pods, [("b".to_owned(), "uid-b".to_owned())]);
    let handover = story.handover();
    assert_eq!((handover.state, handover.from.as_deref()), (HandoverState::Completed, Some("a")));
    assert_eq!(handover.message, "b holds the lease with fencing token 8.");

    // The annotation is still there, and the request is handled.
    story.holder(pod("b"));
    story.view(held(term(2, 8, "b")));
    story.pods();
    story.pass(60_000);
    assert_eq!((story.commands(), story.status_write()), (vec![], None));
}

#[test]
fn a_stopped_holder_is_replaced_by_the_requested_pod_in_one_write() {
    let mut story = Story::held_by_a();
    four_pods(&mut story);
    story.pods();
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.request("1", Some("pod/c"));
    assert_eq!(story.commands(), [Command::End { term: term(1, 7, "a"), proof: true }]);
    story.facts.holder = PodKnowledge::Unseen;
    story.view(idle(0));
    assert_eq!(story.wanted().as_deref(), Some("c"));
    story.view(publishing(term(2, 8, "c")));
    story.write();
    assert_eq!(story.handover().state, HandoverState::Completed);
}

#[test]
fn an_impossible_request_ends_no_term_and_is_reported_once() {
    let table = [
        ("pod/x", "No candidate of the lease has the name x."),
        ("x", "must be pod/NAME or cluster/NAME"),
        ("pod/c", "it is not Ready"),
    ];
    for (to, problem) in table {
        let mut story = Story::held_by_a();
        story.candidates(&[pod("a"), pod("b"), PodFacts { ready: false, ..pod("c") }]);
        story.pods();
        story.pass(60_000);
        story.write();
        story.request("1", Some(to));
        assert_eq!(story.commands(), [], "{to}");
        story.write();
        let notice = story.reported(NoticeReason::HandoverFailed);
        assert!(notice.note.contains(problem), "{notice:?}");
        assert_eq!((story.handover().state, story.handover().from), (HandoverState::Refused, None));
        story.pass(60_000);
        assert_eq!((story.commands(), story.status_write()), (vec![], None));
        // A new value is a new request.
        story.request("2", Some("pod/b"));
        assert_eq!(story.commands().len(), 1, "{to}");
    }
}

#[test]
fn a_target_that_holds_the_lease_completes_the_handover() {
    for to in ["pod/a", "cluster/here"] {
        let mut story = Story::held_by_a();
        story.request("1", Some(to));
        assert_eq!(story.commands(), []);
        story.write();
        assert_eq!(story.handover().state, HandoverState::Completed);
        story.reported(NoticeReason::HandoverCompleted);
    }
}

#[test]
fn a_request_waits_until_the_term_is_confirmed_and_needs_a_holder() {
    let mut story = Story::publishing_by_a();
    story.store_request("1", None);
    story.holder(pod("a"));
    story.write();
    assert!(!story.ends_a_term(), "not confirmed yet");
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);

    let mut free = Story::wanting_a();
    free.request("1", None);
    free.view(held_by_the_other_cluster(free.now + Millis(60_000)));
    assert_eq!(free.commands(), []);
    free.write();
    assert_eq!(free.handover().state, HandoverState::Refused);
    assert!(free.handover().message.contains("No pod of this cluster holds the lease"));
}

#[test]
fn another_cluster_has_time_to_acquire_the_lease() {
    let mut story = Story::handing_over("cluster/there");
    let ended = story.now;
    story.facts.holder = PodKnowledge::Unseen;
    story.pass(30_400);
    story.view(idle(0));
    story.write();
    assert_eq!(story.wanted(), None);
    let ready = story.status().condition(ConditionType::Ready).unwrap();
    assert!(ready.message.contains("hands it over to the cluster there"), "{ready:?}");
    // 30 s * 1.01 + 2 ms + 10 s after the decision.
    story.now = ended + Millis(40_301);
    story.answer();
    assert_eq!(story.wanted(), None);
    story.pass(2);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("b"));
    let mut failed = story.clone();

    story.view(held_by_the_other_cluster(story.now + Millis(60_000)));
    story.write();
    story.reported(NoticeReason::HandoverCompleted);
    let handover = story.handover();
    assert_eq!((handover.state, handover.message.contains("there")), (HandoverState::Completed, true), "{handover:?}");

    failed.view(publishing(term(2, 8, "b")));
    failed.write();
    failed.reported(NoticeReason::HandoverFailed);
    let handover = failed.handover();
    assert_eq!(handover.state, HandoverState::Failed);
    assert_eq!(
        handover.message,
        "The cluster there did not acquire the lease in time. b holds the lease with fencing token 8."
    );
}

#[test]
fn a_handover_that_another_cluster_ends_has_failed() {
    let mut story = Story::handing_over("cluster/typo");
    story.facts.holder = PodKnowledge::Unseen;
    story.pass(30_400);
    story.view(idle(0));
    story.write();
    story.pass(60_000);
    story.answer();
    story.view(held_by_the_other_cluster(story.now + Millis(60_000)));
    story.write();
    story.reported(NoticeReason::HandoverFailed);
    let handover = story.handover();
    let says = "The cluster typo did not acquire the lease. x of cluster there holds the lease.";
    assert_eq!((handover.state, handover.message.as_str()), (HandoverState::Failed, says));
}

#[test]
fn the_next_process_continues_a_running_handover() {
    for (to, wanted) in [("pod/b", Some("b")), ("cluster/there", None)] {
        let mut before = Story::handing_over(to);
        four_pods(&mut before);
        let mut story = Story::new();
        four_pods(&mut story);
        story.now = before.now;
        story.facts.lease = before.facts.lease.clone();
        story.turn();
        story.view(View::default());
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        story.facts.holder = PodKnowledge::Unseen;
        story.pass(30_400);
        story.view(idle(0));
        story.answer();
        assert_eq!(story.wanted().as_deref(), wanted, "{to}");
    }
}

#[test]
fn a_term_that_ends_for_another_reason_is_followed_by_the_requested_pod() {
    let mut story = Story::held_by_a();
    four_pods(&mut story);
    story.pods();
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    story.write();
    story.request("1", Some("pod/d"));
    story.write();
    assert_eq!((story.handover().state, story.handover().from.as_deref()), (HandoverState::Running, Some("a")));
    story.keys_expire();
    assert_eq!(story.wanted().as_deref(), Some("d"));
}

#[test]
fn a_handover_that_another_pod_ends_has_failed() {
    let table = [
        ("pod/c", "b", "The pod c could not be elected. b holds the lease with fencing token 8."),
        ("pod/b", "a", "The pod b could not be elected. a holds the lease with fencing token 8."),
        ("", "a", "No other pod could be elected. a holds the lease with fencing token 8."),
    ];
    for (to, holder, message) in table {
        let mut story = Story::held_by_a();
        four_pods(&mut story);
        story.pods();
        story.request("1", Some(to));
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        story.write();
        story.candidates(&[pod(holder)]);
        story.keys_expire();
        assert_eq!(story.wanted().as_deref(), Some(holder), "{to:?}");
        story.view(publishing(term(2, 8, holder)));
        story.write();
        story.reported(NoticeReason::HandoverFailed);
        assert_eq!((story.handover().state, story.handover().message.as_str()), (HandoverState::Failed, message));
    }
}

#[test]
fn without_an_eligible_pod_the_result_of_a_handover_to_a_cluster_is_unknown() {
    let mut story = Story::handing_over("cluster/there");
    story.candidates(&[]);
    story.facts.holder = PodKnowledge::Unseen;
    story.now = Time(10_000_000);
    story.view(idle(0));
    story.write();
    assert_eq!(story.handover().state, HandoverState::Unknown);
    assert_eq!(story.handover().from.as_deref(), Some("a"));
    // The next request is handled.
    story.request("2", None);
    story.write();
    assert_eq!(story.handover().state, HandoverState::Refused);
}

#[test]
fn without_an_eligible_pod_a_read_of_the_keys_shows_that_the_other_cluster_holds_the_lease() {
    let mut story = Story::handing_over("cluster/there");
    story.candidates(&[]);
    story.facts.holder = PodKnowledge::Unseen;
    // The time of the other cluster is over. It has acquired the lease since the last read.
    story.now += Millis(41_000);
    story.view(idle(0));
    assert_eq!(story.handover().state, HandoverState::Running);
    assert!(
        story.status_write().is_none_or(|write| write.status.handover.clone().unwrap().state == HandoverState::Running)
    );
    if story.status_write().is_some() {
        story.write();
    }
    story.pass(LEASE);
    assert!(story.commands().contains(&Command::ReadKeys), "{:?}", story.effects);
    story.view(held_by_the_other_cluster(Time(10_000_000)));
    story.write();
    assert_eq!(story.handover().state, HandoverState::Completed);
}

#[test]
fn a_request_is_refused_while_no_new_term_can_begin() {
    let mut story = Story::held_by_a();
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "It is missing.".into());
    story.turn();
    story.write();
    story.request("1", None);
    assert_eq!(story.commands(), []);
    story.write();
    assert_eq!(story.handover().message, "No new term can begin. It is missing.");
}

#[test]
fn a_handover_that_another_replica_completed_does_not_block_the_next_one() {
    let mut story = Story::handing_over("pod/b");
    let handover = story.status_mut().handover.as_mut().unwrap();
    (handover.id, handover.state) = ("2".into(), HandoverState::Completed);
    story.request("3", Some("nonsense"));
    story.write();
    assert_eq!((story.handover().id.as_str(), story.handover().state), ("3", HandoverState::Refused));
}

#[test]
fn another_request_replaces_a_running_one_that_finds_no_candidate() {
    let mut story = Story::handing_over("");
    story.candidates(&[]);
    story.facts.holder = PodKnowledge::Unseen;
    story.now = Time(10_000_000);
    story.view(idle(0));
    story.write();
    story.pass(600_000);
    assert_eq!((story.handover().id.as_str(), story.handover().state), ("1", HandoverState::Running));
    let waiting = story.clone();
    story.request("2", Some("pod/b"));
    story.write();
    let HandoverStatus { id, to, from, state, .. } = story.handover();
    assert_eq!((id.as_str(), to.as_deref(), from.as_deref()), ("2", Some("pod/b"), Some("a")));
    assert_eq!(state, HandoverState::Running);
    story.candidates(&[pod("a"), pod("b")]);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("b"));
    story.view(publishing(term(2, 8, "b")));
    story.write();
    assert_eq!((story.handover().id.as_str(), story.handover().state), ("2", HandoverState::Completed));

    let mut wrong = waiting.clone();
    wrong.request("2", Some("nonsense"));
    wrong.write();
    assert_eq!((wrong.handover().id.as_str(), wrong.handover().state), ("2", HandoverState::Refused));
    let mut here = waiting.clone();
    here.request("2", Some("cluster/here"));
    here.write();
    assert_eq!((here.handover().id.as_str(), here.handover().state), ("2", HandoverState::Refused));
    here.candidates(&[pod("a"), pod("b")]);
    here.answer();
    assert!(here.wanted().is_some(), "nobody else is asked");
    // What an attempt under way acquires is the result of the first request.
    let mut acquires = waiting.clone();
    acquires.candidates(&[pod("a"), pod("b")]);
    acquires.answer();
    acquires.view(acquiring(term(2, 8, "b")));
    acquires.request("2", Some("pod/c"));
    acquires.view(publishing(term(2, 8, "b")));
    acquires.write();
    assert_eq!((acquires.handover().id.as_str(), acquires.handover().state), ("1", HandoverState::Completed));
    // Another cluster gets the time to acquire the lease.
    let mut elsewhere = waiting;
    elsewhere.request("2", Some("cluster/there"));
    elsewhere.write();
    elsewhere.candidates(&[pod("a"), pod("b")]);
    elsewhere.answer();
    assert_eq!((elsewhere.handover().id.as_str(), elsewhere.wanted()), ("2", None));
}
