//! What the judge finds in one situation each.

use alloc::vec;

use super::*;

#[test]
fn votes_of_a_node_in_doubt_do_not_count() {
    let mut world = World::new(3, None);
    world.step(1, 5000);
    let reply = Reply { at: 0, node: Node(1), node_time: world.now + 5_005_000, sent: world.own() };
    world.now += 2;
    assert!(!world.answer(&reply));
    assert_eq!(world.seen, [Effect::Doubted(Node(1))]);
    assert!(world.judge.is_in_doubt(Node(1)) && !world.judge.is_in_doubt(Node(0)));
    world.run(100);
    assert_eq!(world.seen, [Effect::Doubted(Node(1)), Effect::Stepped(Node(1))]);
}

#[test]
fn a_jump_of_less_than_50_ms_is_tolerated() {
    let mut world = World::new(3, None);
    world.pause(45);
    world.run(2000);
    assert_eq!(world.seen, []);
    world.pause(80);
    world.run(2000);
    assert_eq!((world.stepped(), world.own_jumps()), (vec![], 1), "small jumps add up");
}

/// The pause and the answer that shows it fall into the millisecond in which the others were asked.
#[test]
fn answers_to_requests_from_the_millisecond_of_the_doubt_are_not_compared() {
    let mut world = World::new(3, None);
    world.ask(Node(1));
    world.ask(Node(2));
    world.pause(300);
    world.ask(Node(0));
    let shows_it = world.replies.pop().unwrap();
    world.answer(&shows_it);
    world.run(2000);
    assert_eq!((world.stepped(), world.own_jumps()), (vec![], 1));
}

/// A node steps during the pause: it gets a ticket, and the others do not.
#[test]
fn a_step_during_a_pause_is_found() {
    let mut world = World::new(3, None);
    world.pause(300);
    world.step(0, 40_000);
    world.run(4000);
    assert_eq!((world.stepped(), world.own_jumps()), (vec![0], 1));
}

/// A node shares the host of this process, and another one is away: nobody can tell whose clock jumped.
#[test]
fn without_a_majority_that_is_still_everything_is_void_and_nobody_gets_a_ticket() {
    let mut world = World::new(3, None);
    world.disconnect(1);
    world.pause(40_000);
    world.step(2, -40_000);
    world.run(3000);
    assert_eq!((world.stepped(), world.voids(), world.own_jumps()), (vec![], 1, 0));
    world.connect(1);
    world.run(3000);
    assert_eq!((world.stepped(), world.own_jumps()), (vec![], 1));
}

/// The connection breaks with the answer that shows the jump.
#[test]
fn a_jump_that_nobody_can_explain_makes_everything_void() {
    let mut world = World::new(3, None);
    world.pause(40_000);
    world.ask(Node(0));
    let reply = world.replies.pop().unwrap();
    world.now += 2;
    assert!(!world.answer(&reply));
    for node in 0..3 {
        world.disconnect(node);
    }
    assert_eq!((world.stepped(), world.voids()), (vec![], 1));
}

/// The answer to the comparison takes longer than the step, so it would allow no step as well.
#[test]
fn a_slow_answer_does_not_end_a_doubt() {
    let mut world = World::new(3, None);
    world.step(1, 300);
    world.ask(Node(1));
    world.servers[1].back = 400;
    world.run(900);
    assert_eq!((world.stepped(), world.voids()), (vec![1], 0));
}

/// Two pauses, and between them one node was read.
#[test]
fn nodes_that_all_move_by_different_amounts_get_no_tickets_and_everything_is_void() {
    let mut world = World::new(3, None);
    for (node, by) in [(0, 1000), (1, 3000), (2, 5000)] {
        world.step(node, by);
    }
    world.run(4000);
    assert_eq!((world.stepped(), world.own_jumps()), (vec![], 1));
    assert!(!world.judge.in_question(world.own()));
    world.step(1, 700);
    world.run(2000);
    assert_eq!(world.stepped(), [1], "the new offsets count");
}

#[test]
fn the_only_node_gets_a_ticket_at_once() {
    let mut world = World::new(1, None);
    world.step(0, 5000);
    world.run(1100);
    assert_eq!((world.stepped(), world.voids()), (vec![0], 1));
}

#[test]
fn a_step_that_cannot_be_compared_is_waited_for_without_a_ticket() {
    let mut world = World::new(5, None);
    for node in 1..5 {
        world.disconnect(node);
    }
    world.step(0, 5000);
    world.run(QUARANTINE - 3000);
    assert!(world.judge.is_in_doubt(Node(0)));
    world.run(6000);
    assert!(!world.judge.is_in_doubt(Node(0)));
    assert_eq!((world.stepped(), world.voids()), (vec![], 1), "everything is void once");
}

/// While the node was disconnected, its clock may have run apart from this one by as much as it had stepped: its next answer shows no
/// jump.
#[test]
fn a_doubt_ends_also_if_the_jump_cannot_be_seen_any_more() {
    let mut world = World::new(3, None);
    (1..3).for_each(|node| world.disconnect(node));
    world.step(0, 300);
    world.run(2000);
    world.disconnect(0);
    world.run(QUARANTINE + 1000);
    assert!(world.judge.is_in_doubt(Node(0)));
    (0..3).for_each(|node| world.connect(node));
    world.run(10);
    assert!(!world.judge.is_in_doubt(Node(0)));
    assert_eq!(world.seen.last(), Some(&Effect::Steady(Node(0))));
    assert_eq!(world.stepped(), vec![]);
}

#[test]
fn another_step_during_the_doubt_is_waited_for_again() {
    let mut world = World::new(5, None);
    for node in 1..5 {
        world.disconnect(node);
    }
    world.step(0, 5000);
    world.run(QUARANTINE / 2);
    world.step(0, 9000);
    world.run(QUARANTINE / 2 + 6000);
    assert!(world.judge.is_in_doubt(Node(0)));
    world.run(QUARANTINE / 2);
    assert!(!world.judge.is_in_doubt(Node(0)));
}

#[test]
fn a_node_without_an_answer_is_judged_when_it_answers() {
    let mut world = World::new(3, None);
    world.step(1, 9000);
    world.servers[1].back = 100;
    world.ask(Node(1));
    world.run(110);
    assert_eq!(world.seen, [Effect::Doubted(Node(1))]);
    world.disconnect(1);
    world.run(5000);
    assert_eq!(world.stepped(), []);
    world.connect(1);
    world.run(500);
    assert_eq!(world.stepped(), [1]);
}

#[test]
fn two_pauses_one_after_the_other_are_two_jumps_or_one() {
    for between in 0..40 {
        let mut world = World::new(3, None);
        world.pause(300);
        world.run(between);
        world.pause(700);
        world.run(5000);
        assert_eq!(world.stepped(), [], "{between} ms between the pauses");
        assert!((1..=2).contains(&world.own_jumps()) && !world.judge.in_question(world.own()), "{between}");
    }
}
