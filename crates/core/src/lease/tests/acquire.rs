//! Taking the lease.

use super::*;

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
fn one_stopped_node_costs_an_acquire_nothing() {
    let mut story = Story::new();
    story.links[0] = Link::Silent;
    let before = story.now;
    story.want();
    assert!(matches!(story.standing(), Standing::Publishing(_)));
    assert_eq!(story.now, before);
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
