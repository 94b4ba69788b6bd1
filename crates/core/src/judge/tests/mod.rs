//! A world of nodes whose clocks and connections the test controls, and a scenario for each planted bug.

mod random;
mod scenarios;

use super::*;
use crate::check::Mutant;
use alloc::vec;

const TIMEOUT: Millis = Millis(500);
const LONGEST: Millis = Millis(60_000);
const QUARANTINE: u64 = 60_602;
/// How often each node is asked in any case.
const HEARTBEAT: u64 = 1000;

#[derive(Clone, Copy)]
struct Server {
    /// Its clock less true time, in milliseconds.
    offset: i64,
    /// How fast its clock is, in thousandths of true time.
    rate: i64,
    /// The way to it and back, in milliseconds.
    there: u64,
    back: u64,
    connected: bool,
}

/// A reply on its way: when it arrives in true time, and what it says.
struct Reply {
    at: u64,
    node: Node,
    node_time: u64,
    sent: Time,
}

struct World {
    judge: Judge,
    servers: Vec<Server>,
    /// True time.
    now: u64,
    /// How far the clock of this process is behind true time.
    lost: u64,
    replies: Vec<Reply>,
    next_heartbeat: u64,
    seen: Vec<Effect>,
}

impl World {
    fn new(nodes: u8, mutant: Option<Mutant>) -> Self {
        let quorum = Quorum::of(nodes).unwrap();
        let server = Server { offset: 5_000_000, rate: 0, there: 1, back: 1, connected: true };
        let judge = Judge::new(quorum, LONGEST, Drift::STANDARD).with_mutant(mutant);
        let servers = vec![server; usize::from(nodes)];
        let mut world = Self { judge, servers, now: 10_000, lost: 0, replies: vec![], next_heartbeat: 0, seen: vec![] };
        world.run(3000);
        assert_eq!(world.seen, []);
        world
    }

    fn own(&self) -> Time {
        Time(self.now - self.lost)
    }

    fn ask(&mut self, node: Node) {
        let server = self.servers[node.index()];
        if server.connected {
            let executed = i64::try_from(self.now + server.there).unwrap();
            let node_time = executed + executed * server.rate / 1000 + server.offset;
            // A connection keeps the order.
            let last = self.replies.iter().filter(|reply| reply.node == node).map(|reply| reply.at).max();
            let at = (self.now + server.there + server.back).max(last.unwrap_or(0));
            self.replies.push(Reply { at, node, node_time: node_time.unsigned_abs(), sent: self.own() });
        }
    }

    /// Gives one reply, and returns whether its votes count.
    fn answer(&mut self, reply: &Reply) -> bool {
        let sample = Sample { node_time: reply.node_time, sent: reply.sent, received: self.own() };
        let counts = self.judge.read(self.own(), reply.node, sample);
        self.carry_out();
        counts
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.judge.poll_effect() {
            match effect {
                Effect::ReadClock(node) => self.ask(node),
                effect => self.seen.push(effect),
            }
        }
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += 1;
            if self.now >= self.next_heartbeat {
                self.next_heartbeat = self.now + HEARTBEAT;
                self.judge.quorum.nodes().for_each(|node| self.ask(node));
            }
            while let Some(at) = self.replies.iter().position(|reply| reply.at <= self.now) {
                let reply = self.replies.remove(at);
                self.answer(&reply);
            }
            self.judge.wake(self.own(), TIMEOUT);
            self.carry_out();
        }
    }

    /// The process and its clock stand still.
    fn pause(&mut self, millis: u64) {
        self.now += millis;
        self.lost += millis;
    }

    fn step(&mut self, node: u8, millis: i64) {
        self.servers[usize::from(node)].offset += millis;
    }

    fn disconnect(&mut self, node: u8) {
        self.servers[usize::from(node)].connected = false;
        self.replies.retain(|reply| reply.node != Node(node));
        self.judge.disconnected(self.own(), Node(node));
        self.carry_out();
    }

    fn connect(&mut self, node: u8) {
        self.servers[usize::from(node)].connected = true;
        self.ask(Node(node));
    }

    fn stepped(&self) -> Vec<u8> {
        let stepped = |effect: &Effect| match effect {
            Effect::Stepped(node) => Some(node.0),
            _ => None,
        };
        self.seen.iter().filter_map(stepped).collect()
    }

    fn own_jumps(&self) -> usize {
        self.seen.iter().filter(|effect| matches!(effect, Effect::Void { lost: Some(_) })).count()
    }

    fn voids(&self) -> usize {
        self.seen.iter().filter(|effect| matches!(effect, Effect::Void { .. })).count()
    }
}

/// Whether a scenario ends as it should.
type Scenario = fn(Option<Mutant>) -> bool;

fn a_pause_of_the_process(mutant: Option<Mutant>) -> bool {
    [150, 300, 3000, 600_000].into_iter().all(|millis| {
        let mut world = World::new(3, mutant);
        world.pause(millis);
        world.run(2000);
        let contains = |effect: &Effect| match effect {
            Effect::Void { lost: Some(lost) } => lost.contains(i128::from(millis) * 100),
            _ => false,
        };
        world.stepped().is_empty() && world.seen.iter().any(contains) && !world.judge.in_question(world.own())
    })
}

fn one_node_steps(mutant: Option<Mutant>) -> bool {
    [-70_000, -200, 200, 70_000].into_iter().all(|millis| {
        let mut world = World::new(3, mutant);
        world.step(1, millis);
        world.run(2000);
        world.stepped() == [1] && world.voids() == 0
    })
}

/// The connections come back one by one after a pause.
fn a_pause_in_a_partition(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    (0..3).for_each(|node| world.disconnect(node));
    world.pause(2000);
    for node in 0..3 {
        world.run(5000);
        world.connect(node);
    }
    world.run(2000);
    world.stepped().is_empty() && world.own_jumps() == 1
}

/// Two nodes are slow to answer: their answers on the way say nothing about the pause.
fn slow_answers_to_requests_from_before(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    for node in [1_u8, 2] {
        world.servers[usize::from(node)].back = 340;
        world.ask(Node(node));
        world.servers[usize::from(node)].back = 1;
    }
    world.run(2);
    world.pause(300);
    world.ask(Node(0));
    world.run(2000);
    world.stepped().is_empty() && world.own_jumps() == 1
}

/// One node stands still with the process: they share a host.
fn a_node_on_the_same_host(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    world.pause(300);
    world.step(2, -300);
    world.run(2000);
    world.stepped().is_empty() && world.own_jumps() == 1
}

/// One node stands still with the process.
fn a_long_pause_with_clocks_that_run_apart(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(5, mutant);
    for (server, rate) in world.servers.iter_mut().zip([-4, 0, 4, 0, 0]) {
        // The clocks agree now and run apart from now on.
        server.offset -= i64::try_from(world.now).unwrap() * rate / 1000;
        server.rate = rate;
    }
    world.run(3000);
    world.pause(600_000);
    world.step(4, -600_000);
    world.run(2000);
    world.stepped().is_empty() && world.own_jumps() == 1
}

/// One of five nodes does not step.
fn three_nodes_step_alike_and_one_by_more(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(5, mutant);
    for (node, by) in [(0, 1000), (1, 1000), (2, 1000), (3, 5000)] {
        world.step(node, by);
    }
    world.run(4000);
    world.stepped() == [0, 1, 2, 3] && world.own_jumps() == 0
}

/// A node is disconnected during the pause, and its clock steps before it comes back.
fn a_disconnected_node_steps_after_the_pause(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    world.disconnect(2);
    world.pause(300);
    world.run(2000);
    world.step(2, 5000);
    world.connect(2);
    world.run(2000);
    world.stepped() == [2] && world.own_jumps() == 1
}

fn a_vote_on_a_request_from_before_the_pause(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    let late = Reply { at: 0, node: Node(0), node_time: world.now + 5_000_302, sent: world.own() };
    world.run(2);
    world.pause(300);
    world.run(2000);
    world.own_jumps() == 1 && !world.answer(&late)
}

fn attempts_wait_for_one_longest_lease(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3, mutant);
    let before = world.judge.jumped_at();
    world.pause(300);
    let paused = world.own();
    world.run(2000);
    before.is_none() && world.judge.jumped_at().is_some_and(|at| (paused..paused + Millis(1100)).contains(&at))
}

pub(crate) const FOUND: [(Mutant, Scenario); 10] = [
    (Mutant::ClockStepIgnored, one_node_steps),
    (Mutant::TicketOnEachJump, a_pause_of_the_process),
    (Mutant::TicketWithoutMajority, a_pause_in_a_partition),
    (Mutant::ReadingFromBeforeDoubt, slow_answers_to_requests_from_before),
    (Mutant::NodeWithoutJumpContradicts, a_node_on_the_same_host),
    (Mutant::JumpNotWidened, a_long_pause_with_clocks_that_run_apart),
    (Mutant::LargestSubsetDecides, three_nodes_step_alike_and_one_by_more),
    (Mutant::OffsetsForgotten, a_disconnected_node_steps_after_the_pause),
    (Mutant::VotesFromBeforeJumpKept, a_vote_on_a_request_from_before_the_pause),
    (Mutant::AttemptAfterClockJump, attempts_wait_for_one_longest_lease),
];

#[test]
fn each_scenario_ends_as_it_should_unless_its_bug_is_planted() {
    for (mutant, scenario) in FOUND {
        assert!(scenario(None), "the scenario for {mutant:?}");
        assert!(!scenario(Some(mutant)), "{mutant:?} was not found");
    }
}
