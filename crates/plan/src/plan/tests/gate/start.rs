//! What must be known before a pod is started.

use super::*;

/// A process that begins to decide does not know which starts another one has sent: each gated pod gets a new version first, also
/// one with the label and the token that it must have.
#[test]
fn every_gated_pod_is_fenced_before_the_first_start_of_a_process() {
    let mut story = Story::gated();
    story.candidates(&[gated("a"), gated("b"), gated("c")]);
    story.turn();
    story.answer();
    story.holder(gated("a"));
    story.view(publishing(term(1, 7, "a")));
    story.write();
    let mut b = with_token(labelled(gated("b"), "standby"), "7");
    b.annotations.set("withdrawn.redislease.io/billing", Some("6.41"));
    story.candidates(&[gated("a"), b, gated("c")]);
    story.facts.stop_at = Some(Time(1_000_000_000));
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.changes(), [("b".into(), PodChange::Fence(42)), ("c".into(), PodChange::Fence(1))]);
    let writes = story.role_writes();
    story.role_answered("c", RoleOutcome::Conflict);
    assert_eq!(story.changes(), [("c".into(), PodChange::Fence(1))], "it is sent again");
    story.apply(&writes[0]);
    story.role_answered("b", RoleOutcome::Written(None));
    assert_eq!(story.changes(), [], "`c` is not fenced yet");
    story.apply(&writes[1]);
    story.role_answered("c", RoleOutcome::Written(None));
    story.confirm();
    assert_eq!(story.changes(), [("a".into(), PodChange::Start)]);
}

/// A start of an earlier term can still reach a pod whose label is left alone: it gets no fence.
#[test]
fn no_pod_starts_beside_a_pod_that_is_left_alone() {
    let mut story = Story::gated().asked();
    let a = with_token(labelled(PodFacts { released: true, ..gated("a") }, "standby"), "0");
    let c = labelled(gated("c"), "active");
    story.holder(a.clone());
    story.view(publishing(term(1, 7, "a")));
    story.write();
    story.candidates(&[a.clone(), c]);
    story.facts.stop_at = Some(Time(1_000_000_000));
    story.view(held(term(1, 7, "a")));
    assert_eq!((story.changes(), story.wants(&Effect::Read(Read::Lease))), (vec![], false), "{:?}", story.effects);
    story.candidates(&[a]);
    story.turn();
    assert!(story.wants(&Effect::Read(Read::Lease)), "it is started next: {:?}", story.effects);
}

/// Its lease had no turn while this process could not decide.
#[test]
fn the_pods_are_read_again_after_a_loss_of_authority_that_no_turn_has_seen() {
    for (gains, reads) in [(0, false), (1, true)] {
        let mut story = Story::gated();
        story.candidates(&[gated("a")]);
        let mut story = story.asked();
        story.holder(gated("a"));
        story.elect(term(1, 7, "a"));
        story.reads_pods = false;
        story.facts.authority_gains += gains;
        story.turn();
        assert_eq!(story.wants(&Effect::Read(Read::Startable)), reads, "{:?}", story.effects);
        assert_eq!(story.changes(), []);
    }
}

/// The watch of pods is late: a process that led before has elected and started `c`, which this process does not know yet.
#[test]
fn the_pods_are_read_before_the_first_start_after_a_gain_of_authority() {
    let mut story = Story::gated();
    story.candidates(&[gated("a")]);
    story.reads_pods = false;
    story.turn();
    story.answer();
    story.holder(gated("a"));
    story.elect(term(2, 9, "a"));
    assert!(story.wants(&Effect::Read(Read::Startable)) && story.changes().is_empty(), "{:?}", story.effects);
    assert_eq!(story.turn(), [], "it is read once");
    story.event(Event::StartableRead { answered: false });
    assert!(!story.wants(&Effect::Read(Read::Startable)), "it is read again after a pause");
    story.pass(1000);
    assert_eq!(story.effects, [Effect::Read(Read::Startable)]);
    let mut c = labelled(pod("c"), "active");
    c.annotations.set(STARTED, Some("7.uid-c"));
    story.candidates(&[gated("a"), c]);
    story.event(Event::StartableRead { answered: true });
    let standby = story.role_writes().remove(0);
    assert_eq!((standby.pod.as_str(), standby.role), ("c", Some(PodRole::Standby)));
    assert_eq!(story.role_writes().len(), 1);
    story.write();
    story.role_stored(standby);
    assert_eq!(story.changes(), [("c".into(), PodChange::Delete)], "`a` waits for the end of `c`");
    // This process loses its authority and gains it again: another one may have decided meanwhile.
    story.candidates(&[gated("a")]);
    story.facts.authority = Authority::Renew;
    story.turn();
    story.facts.authority = Authority::Lead;
    story.turn();
    assert!(story.wants(&Effect::Read(Read::Startable)), "{:?}", story.effects);
    assert_eq!(story.changes(), []);
    // The answer to the read before the loss counts for nothing.
    story.facts.authority = Authority::Renew;
    story.turn();
    story.event(Event::StartableRead { answered: true });
    story.facts.authority = Authority::Lead;
    story.turn();
    assert!(story.wants(&Effect::Read(Read::Startable)), "{:?}", story.effects);
    // So does one that comes after the gain.
    story.facts.authority = Authority::Renew;
    story.turn();
    story.facts.authority = Authority::Lead;
    story.turn();
    assert!(!story.wants(&Effect::Read(Read::Startable)), "it is read again after that answer: {:?}", story.effects);
    story.event(Event::StartableRead { answered: true });
    assert!(story.wants(&Effect::Read(Read::Startable)) && story.changes().is_empty(), "{:?}", story.effects);
}

/// The withdrawal writes what the pod already has: without the fence, the API server would store nothing, and the late start
/// would still match the version.
#[test]
fn an_unanswered_start_is_fenced_when_the_term_is_lost() {
    let mut story = Story::gated();
    let standby = labelled(gated("a"), "standby");
    story.candidates(std::slice::from_ref(&standby));
    story.turn();
    story.answer();
    story.holder(standby);
    story.elect(term(1, 7, "a"));
    story.confirm();
    assert_eq!(story.changes(), [("a".into(), PodChange::Start)]);
    story.role_answered("a", RoleOutcome::Unanswered("timeout".into()));
    assert_eq!(story.changes(), [("a".into(), PodChange::Start)], "it is repeated");
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.role_answered("a", RoleOutcome::Withdrawn);
    let changes: Vec<_> = story.role_writes().into_iter().map(|write| (write.role, write.change)).collect();
    assert!(changes.contains(&(Some(PodRole::Standby), PodChange::Fence(1))), "{changes:?}");
}

/// `a` was started for the term 7 and runs; `b` holds the term 8, and the status names it. The deletion of `a` is pending.
fn b_follows_a() -> Story {
    let mut story = Story::started_a();
    let a = PodFacts { node: Some("node-1".into()), ready: true, ..story.pod("a") };
    story.candidates(&[a.clone(), story.pod("b")]);
    story.holder(a);
    story.lose(term(1, 7, "a"));
    story.accept_standby();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    story.holder(gated("b"));
    story.elect(term(2, 8, "b"));
    assert!(story.ready().message.ends_with("was started for an earlier term, may still run and is deleted first."));
    story.write();
    story
}

impl Story {
    /// The API server accepts the deletion of `a`, which is terminating now.
    fn delete_a(&mut self) {
        self.change_a(|a| a.deletion_grace = Some(core::time::Duration::from_secs(30)));
        self.role_answered("a", RoleOutcome::Written(None));
    }

    /// Changes what is known about `a`.
    fn change_a(&mut self, change: impl FnOnce(&mut PodFacts)) {
        let (mut a, b) = (self.pod("a"), self.pod("b"));
        change(&mut a);
        self.candidates(&[a, b]);
    }

    fn starts_b(&mut self) -> bool {
        self.confirm();
        self.changes().contains(&("b".into(), PodChange::Start))
    }
}

#[test]
fn the_next_pod_starts_when_the_one_before_is_proven_to_have_stopped() {
    let mut story = b_follows_a();
    assert!(!story.starts_b(), "{:?}", story.effects);
    story.delete_a();
    assert!(!story.starts_b(), "it is terminating: {:?}", story.effects);
    let says = "a, which was started for an earlier term, was asked to stop and may still run.";
    assert!(story.ready().message.ends_with(says));
    story.pass(20_000);
    assert!(!story.starts_b());
    story.change_a(|a| (a.stopped, a.finished) = (true, true));
    story.turn();
    assert!(story.starts_b(), "{:?}", story.effects);
}

#[test]
fn the_next_pod_starts_when_the_one_before_is_gone_or_must_have_stopped() {
    let mut story = b_follows_a();
    story.delete_a();
    // 30 s, and the gracePeriod of 10 s.
    story.pass(39_999);
    assert!(!story.starts_b());
    assert_eq!(story.reconciler.next_deadline(), Some(story.now + Millis(1)));
    story.pass(1);
    assert!(story.starts_b(), "{:?}", story.effects);

    let mut story = b_follows_a();
    let b = story.pod("b");
    story.candidates(&[b]);
    story.role_answered("a", RoleOutcome::Gone);
    assert!(story.starts_b(), "{:?}", story.effects);
}

/// Without the term of `b`, another cluster would start its pod beside `a`.
#[test]
fn a_request_ends_no_term_while_a_pod_of_an_earlier_one_cannot_be_deleted() {
    let mut story = b_follows_a();
    story.role_answered("a", refusal("the policy forbids it"));
    story.write();
    story.suspend();
    let message = story.ready().message;
    assert!(message.starts_with("The operator cannot stop the pod a: the policy forbids it."), "{message}");
    story.write();
    for _ in 0..10 {
        assert_eq!((story.commands(), story.starts_b()), (vec![], false), "{:?}", story.effects);
        story.pass(60_000);
    }
    story.delete_a();
    assert_eq!(story.commands(), [end(term(2, 8, "b"))], "{:?}", story.effects);
}

/// Only the answer says whether `a` stops, and a new process has none either.
#[test]
fn a_request_ends_no_term_before_the_deletion_of_an_earlier_pod_is_answered() {
    for is_restarted in [false, true] {
        let mut story = b_follows_a();
        if is_restarted {
            story.restart();
        }
        story.suspend();
        assert!(!story.ends_a_term(), "{:?}", story.effects);
        story.view(held(term(2, 8, "b")));
        assert!(!story.ends_a_term(), "{:?}", story.effects);
        story.delete_a();
        assert!(story.ends_a_term(), "{:?}", story.effects);
    }
}

#[test]
fn a_refused_deletion_starts_nothing_and_the_condition_says_so() {
    let mut story = b_follows_a();
    story.role_answered("a", refusal("the policy forbids it"));
    let message = story.ready().message;
    let says = "b is not started: a, which was started for an earlier term, may still run, and cannot be deleted: the policy forbids it";
    assert!(message.ends_with(says), "{message}");
    // Its label follows the new term.
    assert_eq!(story.changes(), [("a".into(), PodChange::None)]);
    story.write();
    for outcome in [RoleOutcome::Conflict, RoleOutcome::Written(None)] {
        story.role_answered("a", outcome);
        assert!(story.status_write().is_none(), "the condition stays as it is: {:?}", story.effects);
    }
    for _ in 0..100 {
        story.pass(10_000);
        assert!(!story.starts_b(), "{:?}", story.effects);
        assert!(!story.ends_a_term(), "it is not the fault of `b`");
        let outcome = refusal("the policy forbids it");
        story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-a".into(), outcome });
    }
}

#[test]
fn a_started_pod_that_is_no_candidate_any_more_delays_the_next_start_too() {
    let mut story = b_follows_a();
    let (a, b) = (story.pod("a"), story.pod("b"));
    story.candidates(&[b]);
    story.facts.strays = vec![Arc::new(a.clone())];
    story.turn();
    assert!(!story.starts_b(), "{:?}", story.effects);
    story.facts.strays = vec![Arc::new(PodFacts { stopped: true, finished: true, ..a })];
    story.turn();
    assert!(story.starts_b(), "{:?}", story.effects);
}

/// Another process has ended the term, and this one does not see it yet.
#[test]
fn a_pod_starts_only_when_a_direct_read_of_the_status_names_the_term() {
    let mut story = Story::elected_a();
    story.pods();
    assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
    let mut ended = story.facts.lease.as_deref().unwrap().clone();
    ended.status.as_mut().unwrap().attempt = None;
    story.event(Event::LeaseRead(Ok(Some(Arc::new(ended)))));
    assert_eq!(story.changes(), []);
    story.pass(1000);
    // While the read is under way, somebody writes to the pod: the answer may be older than its new version.
    let changed = PodFacts { resource_version: Some("9".into()), ..story.pod("a") };
    story.candidates(&[changed, story.pod("b")]);
    story.confirm();
    assert_eq!(story.changes(), [], "{:?}", story.effects);
    story.confirm();
    assert_eq!(story.changes(), [("a".into(), PodChange::Start)]);
    assert_eq!(story.role_writes()[0].version.as_deref(), Some("9"));
}

/// The status that the watch has shown may be old: another process may have published the term whose token the pod carries.
#[test]
fn no_started_pod_is_deleted_before_a_read_shows_that_the_status_names_no_term() {
    let mut a = with_token(labelled(pod("a"), "standby"), "7");
    a.annotations.set(STARTED, Some("7.uid-a"));
    let mut story = Story::gated();
    story.candidates(&[a]);
    story.turn();
    story.write();
    story.view(idle(0));
    assert_eq!(story.changes(), [], "{:?}", story.effects);
    story.read_lease();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)], "{:?}", story.effects);
}

/// The quorum of the new lease may be misspelt, or without a majority: nothing could start in the place of the pod.
#[test]
fn a_lease_that_was_created_again_deletes_no_started_pod_while_it_can_elect_none() {
    let cases: [fn(&mut Story, bool); 3] = [
        |story, is| Arc::make_mut(&mut story.facts.quorum).up = if is { 1 } else { 3 },
        |story, is| {
            let obstacle = (LeaseReady::QuorumUnavailable, "it does not exist".to_owned());
            Arc::make_mut(&mut story.facts.quorum).obstacle = Some(obstacle).filter(|_| is);
        },
        |story, is| story.lease_mut().spec.suspend = is,
    ];
    // Whether the API server, which answers everything else, is asked to delete `a`.
    let deletes = |story: &mut Story| {
        (0..5).any(|_| {
            story.answer();
            while story.status_write().is_some() {
                story.write();
            }
            if story.wants(&Effect::Read(Read::Lease)) {
                story.read_lease();
            }
            story.changes().contains(&("a".into(), PodChange::Delete))
        })
    };
    for prevent in cases {
        let a = with_token(labelled(Story::started_a().pod("a"), "standby"), "7");
        let mut story = Story::gated();
        story.candidates(&[a]);
        prevent(&mut story, true);
        assert!(!deletes(&mut story), "{:?}", story.effects);
        story.view(idle(0));
        assert!(!deletes(&mut story), "{:?}", story.effects);
        prevent(&mut story, false);
        assert!(deletes(&mut story), "{:?}", story.effects);
    }
}

/// The fence of `a` was stored before its own start was sent.
#[test]
fn a_pod_whose_start_is_unanswered_is_fenced_again() {
    let mut story = Story::gated().asked();
    story.holder(gated("b"));
    story.elect(term(1, 7, "b"));
    assert_eq!(story.changes(), [("a".into(), PodChange::Fence(1))]);
    story.apply(&story.role_writes()[0]);
    story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-a".into(), outcome: RoleOutcome::Written(None) });
    story.lose(term(1, 7, "b"));
    story.holder(gated("a"));
    story.elect(term(2, 8, "a"));
    story.role_answered("b", RoleOutcome::Withdrawn);
    story.accept();
    story.confirm();
    assert_eq!(story.changes(), [("a".into(), PodChange::Start)], "{:?}", story.effects);
    story.role_answered("a", RoleOutcome::Unanswered("timeout".into()));
    story.view(ending(term(2, 8, "a"), EndReason::Deadline));
    story.role_answered("a", RoleOutcome::Withdrawn);
    assert_eq!(story.changes(), [("a".into(), PodChange::Fence(2))], "{:?}", story.effects);
}
