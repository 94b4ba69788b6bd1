//! Short stories with reference nodes that answer at once, unless the story says otherwise.

use super::*;
use crate::backoff::Strategy;
use crate::marker::Membership;
use crate::op::Grant;
use crate::reference::{Call, Node as Server};
use alloc::string::ToString;

const TTL: u64 = 30_000;
const VALID: u64 = 29_698;
const STOP: u64 = 18_698;

fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(TTL),
        renew_interval: Millis(5000),
        stop_budget: Millis(11_000),
        command_timeout: Millis(500),
        drift: Drift::STANDARD,
        backoff: Backoff {
            strategy: Strategy::Exponential,
            min: Millis(100),
            max: Millis(10_000),
            limit: None,
            jitter: 10,
        },
        mutant: None,
    }
}

/// How a node treats the requests of the story.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Up,
    /// Refuses at once.
    Down,
    /// Acts, but the answer is lost.
    Deaf,
    /// Not connected: nothing is sent.
    Away,
    /// Says nothing until the request is given up.
    Silent,
}

struct Story {
    lease: Lease,
    servers: Vec<Server<&'static str>>,
    links: [Link; 3],
    now: u64,
    /// Requests without an answer, with when they are given up.
    silent: Vec<(Time, Round, Node)>,
    published: Vec<TermId>,
    renewals: Vec<Renewal>,
    sent: Vec<(Node, Op)>,
    words: u64,
}

impl Story {
    fn new() -> Self {
        let membership = Membership { generation: 1, fingerprint: "f".into() };
        let servers = (0..3)
            .map(|index| {
                let mut server = Server::new(["r0", "r1", "r2"][index].into());
                server.marker = Some(membership.marker(server.run_id.clone()));
                server.fence = 1000;
                server
            })
            .collect();
        let lease = Lease::new(config());
        Self {
            lease,
            servers,
            links: [Link::Up; 3],
            now: 1_000_000,
            silent: Vec::new(),
            published: Vec::new(),
            renewals: Vec::new(),
            sent: Vec::new(),
            words: 0,
        }
    }

    fn want(&mut self) -> Attempt {
        self.words += 1;
        let attempt = Attempt(u128::from(self.words));
        let holder = Holder("pod".into());
        self.give(Input::Want(Want { holder, attempt, floor: Token(0), entropy: Entropy(u64::MAX / 2) }));
        attempt
    }

    fn give(&mut self, input: Input) {
        self.lease.handle(Time(self.now), input);
        while let Some(effect) = self.lease.poll_effect() {
            match effect {
                Effect::Send { round, node, op, give_up_at } => self.send(round, node, op, give_up_at),
                Effect::Publish(id) => self.published.push(id),
                Effect::Renewed(renewal) => self.renewals.push(renewal),
                Effect::Changed(_) => {}
            }
        }
    }

    fn send(&mut self, round: Round, node: Node, op: Op, give_up_at: Time) {
        self.sent.push((node, op.clone()));
        let server = &mut self.servers[node.index()];
        let marker = Membership { generation: 1, fingerprint: "f".into() }.marker(server.run_id.clone());
        let call = Call { keys: alloc::vec!["a", "b"], marker, deadline: give_up_at.0, op };
        let vote = match self.links[node.index()] {
            Link::Up => server.vote(self.now, &call),
            Link::Down => Vote::Unknown,
            Link::Away => Vote::Abstained,
            Link::Deaf => {
                server.vote(self.now, &call);
                Vote::Unknown
            }
            Link::Silent => return self.silent.push((give_up_at, round, node)),
        };
        self.give(Input::Vote { round, node, vote });
    }

    fn written(&mut self) -> TermId {
        let id = self.published.last().expect("a publication").clone();
        self.give(Input::Published { attempt: id.attempt, outcome: Publication::Written });
        id
    }

    /// Lets time pass to `until`, waking the machine when it asks for it.
    fn pass_to(&mut self, until: u64) {
        loop {
            let given_up = self.silent.iter().map(|(at, ..)| at.0).min();
            let next = [self.lease.next_deadline().map(|at| at.0), given_up].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if let Some(at) = self.silent.iter().position(|(at, ..)| at.0 <= now) {
                let (_, round, node) = self.silent.remove(at);
                self.give(Input::Vote { round, node, vote: Vote::Unknown });
            }
            self.give(Input::Wake);
        }
        self.now = until;
        self.give(Input::Wake);
    }

    fn pass(&mut self, span: u64) {
        self.pass_to(self.now + span);
    }

    fn held(&mut self) -> TermId {
        self.want();
        self.written()
    }

    fn standing(&self) -> &Standing {
        &self.lease.view().standing
    }

    fn values(&self, node: usize) -> Vec<alloc::string::String> {
        let value = |key| self.servers[node].entry(&key, self.now).map(|entry| entry.value.to_string());
        ["a", "b"].into_iter().filter_map(value).collect()
    }

    fn drop_keys(&mut self, node: usize) {
        self.servers[node].keys.clear();
    }

    fn is_held(&self) -> bool {
        matches!(self.standing(), Standing::Held(_))
    }
}

fn term_value(attempt: Attempt, token: u64) -> alloc::string::String {
    alloc::format!("t:{attempt}:{token}:pod")
}

#[test]
fn a_term_is_taken_published_and_only_then_held() {
    let mut story = Story::new();
    let attempt = story.want();
    let Standing::Publishing(term) = story.standing().clone() else { panic!("{:?}", story.standing()) };
    assert_eq!((term.id.attempt, term.id.token), (attempt, Token(1001)));
    assert_eq!(term.valid_until, Some(Time(1_000_000 + VALID)));
    assert_eq!(term.stop_at, Some(Time(1_000_000 + STOP)));
    story.written();
    assert!(story.is_held());
    assert_eq!(story.values(0), [term_value(attempt, 1001), term_value(attempt, 1001)], "all keys or none");
}

#[test]
fn a_straggler_is_joined_at_once_and_the_term_is_renewed_every_interval() {
    let mut story = Story::new();
    let id = story.held();
    // The third grant came after the decision: a round begun after it has proven it, and then it was confirmed.
    assert_eq!(story.renewals, [Renewal::Success { took: Millis(0), left: Millis(VALID) }]);
    let sent: Vec<_> = story.sent.iter().filter(|(node, _)| node.index() == 2).map(|(_, op)| op.clone()).collect();
    assert!(matches!(sent.as_slice(), [Op::Acquire { .. }, Op::Extend { .. }, Op::Confirm { .. }]), "{sent:?}");
    assert_eq!(story.values(2), [term_value(id.attempt, 1001), term_value(id.attempt, 1001)]);
    story.pass(600_000);
    assert!(story.is_held());
    assert_eq!(story.renewals.len(), 121);
}

#[test]
fn a_node_that_dies_right_after_the_acquire_costs_nothing() {
    for dead in 0..3 {
        let mut story = Story::new();
        let id = story.held();
        story.links[dead] = Link::Down;
        story.pass(60_000);
        assert!(story.is_held(), "without node {dead}: {:?}", story.standing());
        assert_eq!(story.standing().term().map(|term| term.id.clone()), Some(id));
    }
}

#[test]
fn a_node_that_grants_and_never_confirms_is_asked_no_faster_than_failed_rounds_are() {
    let mut story = Story::new();
    story.held();
    story.pass(60_000);
    story.sent.clear();
    for _ in 0..20 {
        story.drop_keys(2);
        story.pass(1000);
    }
    let rounds = story.sent.iter().filter(|(_, op)| matches!(op, Op::Extend { .. })).count();
    // 3 nodes, and a round every 2.5 s at most.
    assert!(story.is_held() && rounds <= 3 * 9, "{rounds}");
}

#[test]
fn one_stopped_node_costs_an_acquire_nothing() {
    let mut story = Story::new();
    story.links[0] = Link::Silent;
    let before = story.now;
    story.want();
    assert!(matches!(story.standing(), Standing::Publishing(_)));
    assert_eq!(story.now, before);
}

#[test]
fn two_lost_nodes_end_the_belief_at_stop_at_and_nothing_is_released() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    let last_good = story.now;
    story.pass(1);
    story.links = [Link::Silent, Link::Silent, Link::Up];
    story.sent.clear();
    story.pass_to(last_good + STOP - 1);
    assert!(story.is_held(), "one millisecond before");
    story.pass_to(last_good + STOP);
    let view = story.lease.view().clone();
    assert_eq!(view.standing, Standing::Idle);
    let ending = view.ending.unwrap();
    assert_eq!((ending.id, ending.reason), (id, EndReason::Deadline));
    assert!(!story.sent.iter().any(|(_, op)| matches!(op, Op::Release { .. })), "another may still believe");
    assert!(story.sent.iter().any(|(_, op)| matches!(op, Op::Seal { .. })));
}

#[test]
fn a_process_that_wakes_after_the_end_of_validity_asks_for_no_wake_in_the_past() {
    let mut story = Story::new();
    let id = story.held();
    story.links = [Link::Silent; 3];
    story.give(Input::End { term: id, proof: false });
    story.pass(1000);
    story.now += VALID;
    story.give(Input::Wake);
    assert!(story.lease.view().ending.is_some(), "the keys may still stand");
    assert!(story.lease.next_deadline().unwrap() > Time(story.now), "{:?}", story.lease.next_deadline());
}

#[test]
fn a_quorum_that_is_back_before_stop_at_costs_nothing() {
    let mut story = Story::new();
    let id = story.held();
    story.links = [Link::Down, Link::Down, Link::Up];
    story.pass(STOP - 3000);
    assert_eq!(story.standing().term().map(|term| term.failed_rounds > 2), Some(true));
    story.links = [Link::Up; 3];
    story.pass(3000);
    assert_eq!(story.standing().term().map(|term| (term.failed_rounds, term.id.clone())), Some((0, id)));
}

#[test]
fn failed_rounds_are_retried_at_the_pace_from_start_to_start() {
    let mut story = Story::new();
    story.held();
    story.links = [Link::Down; 3];
    story.pass(5000);
    story.sent.clear();
    story.pass(2499);
    assert_eq!(story.sent.len(), 0);
    story.pass(1);
    assert_eq!(story.sent.len(), 3, "min(5 s / 2, 30 s / 10)");
}

#[test]
fn too_many_definite_misses_end_the_term_at_once_and_seal() {
    let mut story = Story::new();
    story.held();
    story.pass(5000);
    story.drop_keys(0);
    story.drop_keys(1);
    story.pass(5000);
    let view = story.lease.view();
    assert_eq!(view.ending.as_ref().map(|ending| (ending.reason, ending.sealed)), Some((EndReason::Misses, false)));
    assert_eq!(story.renewals.last(), Some(&Renewal::Lost));
    assert!(story.values(2)[0].starts_with("s:"), "the surviving key is sealed, not deleted");
}

#[test]
fn a_node_that_lost_its_keys_is_joined_again_only_after_a_later_round() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.drop_keys(0);
    story.pass(5000);
    assert!(story.values(0)[0].starts_with("p:"), "granted, not confirmed: {:?}", story.values(0));
    story.pass(5000);
    assert_eq!(story.values(0)[0], term_value(id.attempt, 1001));
    story.drop_keys(1);
    story.pass(5000);
    assert!(story.is_held(), "the join carries the next fault");
}

#[test]
fn proof_releases_at_once_and_the_next_holder_takes_a_greater_token() {
    let mut story = Story::new();
    let first = story.held();
    story.pass(7000);
    story.give(Input::End { term: first.clone(), proof: true });
    assert_eq!(*story.standing(), Standing::Idle);
    story.want();
    let second = story.written();
    assert!(second.token > first.token);
    assert_ne!(second.attempt, first.attempt);
}

#[test]
fn without_proof_the_term_is_sealed_and_its_ttl_waited_out() {
    let mut story = Story::new();
    let first = story.held();
    story.pass(5000);
    let extended = story.now;
    story.pass(1000);
    story.give(Input::End { term: first.clone(), proof: false });
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.sealed), Some(true));
    story.want();
    let refused = story.lease.view().refused_by.clone().unwrap();
    assert_eq!((refused.stage, refused.attempt), (crate::op::Stage::Sealed, first.attempt));
    let retry_at = story.lease.view().retry_at.unwrap();
    assert!(retry_at.0 > extended + TTL && retry_at.0 <= extended + TTL + 101, "{retry_at:?}");
    story.pass_to(retry_at.0);
    story.want();
    assert!(story.written().token > first.token);
}

#[test]
fn proof_after_the_seal_releases_the_sealed_keys() {
    let mut story = Story::new();
    let first = story.held();
    story.give(Input::End { term: first.clone(), proof: false });
    assert!(story.values(0)[0].starts_with("s:"));
    story.give(Input::End { term: first, proof: true });
    assert_eq!(story.values(0).len() + story.values(1).len() + story.values(2).len(), 0);
    assert_eq!(story.lease.view().ending, None);
}

#[test]
fn a_release_is_repeated_until_a_silent_node_has_heard_it() {
    let mut story = Story::new();
    let first = story.held();
    story.links[1] = Link::Silent;
    story.give(Input::End { term: first, proof: true });
    assert_eq!(story.values(1).len(), 2);
    story.pass(1000);
    story.links[1] = Link::Up;
    story.pass(5000);
    assert_eq!(story.values(1).len(), 0);
    story.sent.clear();
    story.pass(60_000);
    assert_eq!(story.sent, [], "and then nothing is left to do");
}

#[test]
fn a_failed_attempt_is_released_and_the_next_has_a_fresh_id() {
    let mut story = Story::new();
    story.links = [Link::Up, Link::Down, Link::Down];
    story.want();
    assert_eq!(*story.standing(), Standing::Idle);
    assert_eq!(story.values(0), [""; 0], "released");
    let retry_at = story.lease.view().retry_at.unwrap();
    assert!(retry_at > Time(story.now) && retry_at <= Time(story.now + 100), "a split vote waits in [0, delay]");
    story.links = [Link::Up; 3];
    story.want();
    story.pass(100);
    assert_eq!(story.written().attempt, Attempt(2));
}

#[test]
fn a_grant_whose_answer_was_lost_never_becomes_a_term() {
    let mut story = Story::new();
    story.links = [Link::Up, Link::Deaf, Link::Down];
    story.want();
    assert_eq!(story.published, []);
    story.pass(40_000);
    assert_eq!(story.values(1).len(), 0, "released, or ended by its TTL");
}

#[test]
fn an_outage_of_every_node_leaves_nothing_to_clean_up() {
    let mut story = Story::new();
    story.links = [Link::Away; 3];
    for _ in 0..50 {
        story.want();
        story.pass(11_000);
    }
    assert!(story.sent.len() <= 4 * 51, "three acquires and the release that overtook the third answer");
}

#[test]
fn two_rivals_on_one_quorum_never_both_win() {
    let mut story = Story::new();
    let hold = |node: usize, story: &mut Story, attempt: u128| {
        let marker = Membership { generation: 1, fingerprint: "f".into() }.marker(story.servers[node].run_id.clone());
        let op = Op::Acquire { attempt: Attempt(attempt), ttl: Millis(TTL), holder: Holder("rival".into()) };
        let call = Call { keys: alloc::vec!["b"], marker, deadline: u64::MAX, op };
        assert!(matches!(story.servers[node].vote(story.now, &call), Vote::Granted(_)));
    };
    hold(0, &mut story, 77);
    hold(1, &mut story, 77);
    story.want();
    assert_eq!(story.published, []);
    assert_eq!(story.values(2).len(), 0, "all keys or none: the third node's were given back");
}

#[test]
fn the_token_is_above_the_status_floor() {
    let mut story = Story::new();
    let want = Want {
        holder: Holder("pod".into()),
        attempt: Attempt(5),
        floor: Token(1_795_238_400_000_042),
        entropy: Entropy(0),
    };
    story.give(Input::Want(want));
    assert_eq!(story.published[0].token, Token(1_795_238_400_000_043));
    assert_eq!(story.servers[0].fence, 1_795_238_400_000_043, "the nodes go on counting from there");
}

#[test]
fn a_superseded_publication_is_sealed_and_never_released() {
    let mut story = Story::new();
    let attempt = story.want();
    story.sent.clear();
    story.give(Input::Published { attempt, outcome: Publication::Superseded });
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::Superseded));
    assert!(story.sent.iter().all(|(_, op)| matches!(op, Op::Seal { .. })), "{:?}", story.sent);
}

#[test]
fn an_unanswered_publication_is_extended_and_not_believed() {
    let mut story = Story::new();
    let attempt = story.want();
    story.give(Input::Published { attempt, outcome: Publication::Unknown });
    story.pass(100_000);
    assert!(matches!(story.standing(), Standing::Publishing(_)));
    story.written();
    assert!(story.is_held());
}

#[test]
fn a_publication_that_was_not_written_is_sent_again() {
    let mut story = Story::new();
    let attempt = story.want();
    story.give(Input::Published { attempt, outcome: Publication::NotWritten });
    assert_eq!(story.published.len(), 2);
    assert_eq!(story.published[0], story.published[1]);
}

#[test]
fn a_restarted_process_adopts_by_attempt_and_token() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.pass(20_000);
    story.give(Input::Adopt(id.clone()));
    assert_eq!(story.standing().term().map(|term| term.id.clone()), Some(id));
    assert!(story.is_held());
    story.pass(100_000);
    assert!(story.is_held());
}

#[test]
fn an_adopted_term_that_is_gone_is_lost_at_once() {
    let mut story = Story::new();
    let id = story.held();
    story.lease = Lease::new(config());
    story.pass(TTL + 1);
    story.give(Input::Adopt(id));
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::Misses));
}

#[test]
fn an_adopted_term_without_a_quorum_becomes_uncertain_then_lost() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.links = [Link::Down, Link::Down, Link::Up];
    let start = story.now;
    story.give(Input::Adopt(id.clone()));
    story.pass_to(start + 4999);
    assert!(matches!(story.standing(), Standing::Adopting(_)));
    story.pass_to(start + 5000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.pass_to(start + 30_301);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.pass_to(start + 30_302);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}

#[test]
fn an_uncertain_term_that_is_confirmed_is_held_with_the_same_token() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.links = [Link::Down, Link::Down, Link::Up];
    story.give(Input::Adopt(id.clone()));
    story.pass(6000);
    story.links = [Link::Up; 3];
    story.pass(3000);
    let Standing::Held(term) = story.standing() else { panic!("{:?}", story.standing()) };
    assert_eq!(term.id, id);
}

#[test]
fn a_term_known_from_the_status_only_can_be_sealed_and_released() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.give(Input::End { term: id.clone(), proof: false });
    assert!(story.values(1)[0].starts_with("s:"));
    story.give(Input::Adopt(id.clone()));
    assert_eq!(*story.standing(), Standing::Idle, "what is ending is not adopted");
    story.give(Input::End { term: id, proof: true });
    assert_eq!(story.values(1).len(), 0);
}

#[test]
fn nobody_wanted_gives_an_unpublished_attempt_back() {
    let mut story = Story::new();
    story.links = [Link::Up, Link::Silent, Link::Silent];
    story.want();
    assert!(matches!(story.standing(), Standing::Acquiring(..)));
    story.give(Input::Forget);
    assert_eq!(*story.standing(), Standing::Idle);
    assert_eq!(story.values(0).len(), 0);
    story.pass(60_000);
    assert_eq!(story.published, []);
}

#[test]
fn a_slow_acquire_that_reaches_stop_at_is_given_back() {
    let mut story = Story::new();
    story.lease = Lease::new(Config { command_timeout: Millis(20_000), ..config() });
    story.links = [Link::Silent; 3];
    story.want();
    let round = story.silent[0].1;
    story.now += STOP;
    for node in [0, 1] {
        story.give(Input::Vote { round, node: Node(node), vote: Vote::Granted(Grant(5)) });
    }
    assert_eq!(story.published, []);
    assert_eq!(*story.standing(), Standing::Idle);
}

#[test]
fn a_confirm_that_is_lost_once_is_repeated() {
    let mut story = Story::new();
    story.links = [Link::Up, Link::Silent, Link::Down];
    story.want();
    let round = story.silent[0].1;
    let grant = {
        let marker = Membership { generation: 1, fingerprint: "f".into() }.marker("r1".into());
        let op = Op::Acquire { attempt: Attempt(1), ttl: Millis(TTL), holder: Holder("pod".into()) };
        story.servers[1].vote(story.now, &Call { keys: alloc::vec!["a", "b"], marker, deadline: u64::MAX, op })
    };
    story.silent.clear();
    story.give(Input::Vote { round, node: Node(1), vote: grant });
    assert_eq!(story.published, [], "round 2 to node 1 is silent");
    story.links[1] = Link::Up;
    story.pass(500);
    assert_eq!(story.published.len(), 1);
}

#[test]
fn new_durations_count_from_the_next_round() {
    let mut story = Story::new();
    story.held();
    let before = story.standing().term().and_then(|term| term.valid_until);
    story.give(Input::Configure(Config { ttl: Millis(60_000), ..config() }));
    assert_eq!(story.standing().term().and_then(|term| term.valid_until), before);
    story.pass(5000);
    assert_eq!(story.standing().term().and_then(|term| term.valid_until), Some(Time(story.now + 59_398)));
}

#[test]
fn bursts_end_at_the_limit_and_begin_again_after_one_lease() {
    let mut story = Story::new();
    let backoff = Backoff { limit: Some(2), ..config().backoff };
    story.lease = Lease::new(Config { backoff, ..config() });
    story.links = [Link::Down; 3];
    story.want();
    assert!(story.lease.view().retry_at.unwrap() <= Time(story.now + 110));
    story.pass(110);
    story.want();
    assert_eq!(story.lease.view().retry_at, Some(Time(story.now + TTL)));
    story.links = [Link::Up; 3];
    story.want();
    assert_eq!(story.published, []);
    story.give(Input::TryNow);
    assert_eq!(story.published.len(), 1, "a relevant change begins a new burst");
}

#[test]
fn a_failed_round_is_not_waited_for_once_the_quorum_is_back() {
    let mut story = Story::new();
    let id = TermId { attempt: Attempt(7), token: Token(1001), holder: Holder("pod".into()) };
    let taken = story.held();
    story.lease = Lease::new(config());
    story.links = [Link::Away; 3];
    story.give(Input::Adopt(TermId { attempt: taken.attempt, ..id }));
    assert!(matches!(story.standing(), Standing::Adopting(_)), "no node is connected yet");
    story.links = [Link::Up; 3];
    story.give(Input::TryNow);
    assert!(story.is_held(), "{:?}", story.standing());
    // A term that is well is left to its pace.
    story.sent.clear();
    story.give(Input::TryNow);
    assert_eq!(story.sent, []);
}
