//! Decides whose clock jumped: that of a Redis node, or that of this process.
//!
//! A virtual machine that is paused or migrated loses that time on each of its clocks, `CLOCK_BOOTTIME` included. Then every
//! node seems to step forward by the same span. If such a process wrote a wait ticket on each node, a pause of one program would
//! take the quorum away from all clusters for one longest lease. So a jump is judged once for the whole quorum:
//!
//! 1. A reply whose offset jumped by more than [`Drift`] tolerates puts its node *in doubt*: its votes
//!    do not count, and its old offset stays. The machine asks for the TIME of every connected node.
//! 2. When all have answered or disconnected, at most two command timeouts later, the jumps of the answers are compared. *This
//!    process's clock* jumped if one value lies in the jumps of at least `max(q, 2)` nodes, among them every jump beyond the
//!    tolerance, and at least two of these exclude zero. A node that shows no jump is no contradiction: it may run on the same
//!    host as this process.
//!    If every node moved, but not alike, the value of a majority counts; without one, all count as a jump of this process.
//! 3. Otherwise the nodes that jumped *stepped*: each gets a wait ticket. If fewer than `max(q, 2)` nodes can be compared, nothing
//!    is decided: after a partition the nodes come back one by one. A doubt ends after one longest lease, as a ticket does.
//!
//! Requests that were sent before a jump of this process's clock may carry a deadline that is too late. So everything that began
//! before is [void](Effect::Void), also when it stays unknown whose clock jumped and fewer than a majority of the nodes certainly
//! did not move.
//!
//! What this cannot tell apart: a pause of this process, and nodes that step together, all of them or a majority alike. With one node,
//! or with an even number of which half is disconnected, it cannot tell a pause from a step of these nodes. It does not see jumps
//! of up to 50 ms and two round trips; the [validity](crate::lease) of each term covers the first 50 ms.

mod comparison;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::clock::{ClockWatch, Jump, Sample};
use crate::quorum::{Node, Quorum};
use crate::rules::Rules;
use crate::time::{Drift, Millis, Time};
use comparison::{Compared, Comparison, Explanation};

/// How often jumps are read again that have no common value, because a second jump came in between, or that are wide, because
/// answers were slow. Then the nodes count as stepped.
const MORE_ROUNDS: u8 = 2;
/// How often nodes in doubt are compared again while nothing new is known.
const COMPARE_AGAIN: Millis = Millis(500);

/// One thing to do for the quorum. Effects are carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send the node a request whose reply carries its TIME.
    ReadClock(Node),
    /// The node's votes do not count until [`Effect::Steady`], or until it is admitted again after [`Effect::Stepped`].
    Doubted(Node),
    /// The node's clock did not step, or so long ago that it does not matter.
    Steady(Node),
    /// The node's clock stepped: it may have ended leases early, so it gets a wait ticket.
    Stepped(Node),
    /// Every round, attempt and seal of this process that began before is void, and so is its belief in its terms: a strict
    /// extension that begins now can bring that back.
    Void {
        /// How far this process's clock fell behind, if it was that.
        lost: Option<Jump>,
    },
}

/// The clock of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct NodeClock {
    watch: ClockWatch,
    connected: bool,
    /// Since when its votes do not count.
    doubted_since: Option<Time>,
    /// The jump that began the doubt.
    doubted_for: Option<Jump>,
    /// Whether the present comparison waits for its answer.
    awaited: bool,
    answer: Option<Sample>,
}

/// The judge of one quorum in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judge {
    quorum: Quorum,
    drift: Drift,
    longest_lease: Millis,
    pub(crate) rules: Rules,
    nodes: Vec<NodeClock>,
    /// Only answers to requests sent since then are compared: from the millisecond after the one in which the comparison began. A
    /// request that was sent in that one may have been sent before the jump.
    comparing_since: Option<Time>,
    /// Whether the nodes have been asked for the present comparison.
    is_asked: bool,
    /// When the last comparison ended.
    compared_at: Time,
    /// How often the present jumps were read again.
    repeated: u8,
    /// Whether the present doubt has made everything void.
    is_void: bool,
    /// When everything that had begun became void last.
    void_at: Option<Time>,
    /// When the clock of this process was last found to have jumped.
    jumped_at: Option<Time>,
    effects: VecDeque<Effect>,
}

impl Judge {
    /// Starts without an offset of any node.
    pub fn new(quorum: Quorum, longest_lease: Millis, drift: Drift) -> Self {
        let nodes = quorum.nodes().map(|_| NodeClock { watch: ClockWatch::new(drift), ..NodeClock::default() });
        Self {
            quorum,
            drift,
            longest_lease,
            rules: Rules::NONE,
            nodes: nodes.collect(),
            comparing_since: None,
            is_asked: false,
            compared_at: Time(0),
            repeated: 0,
            is_void: false,
            void_at: None,
            jumped_at: None,
            effects: VecDeque::new(),
        }
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When the machine needs [`Judge::wake`], if no reply comes before. `command_timeout` as in [`Judge::wake`].
    pub fn next_deadline(&self, command_timeout: Millis) -> Option<Time> {
        let wait = if self.is_asked { command_timeout + command_timeout } else { Millis::ZERO };
        self.comparing_since.map(|since| since + wait)
    }

    /// The node's Unix time less the process's clock, in milliseconds, if it is known.
    pub fn offset(&self, node: Node) -> Option<i128> {
        self.nodes.get(node.index())?.watch.offset()
    }

    /// Whether the node's votes do not count at present.
    pub fn is_in_doubt(&self, node: Node) -> bool {
        self.nodes.get(node.index()).is_some_and(|clock| clock.doubted_since.is_some())
    }

    /// When the clock of this process was last found to have jumped. For one longest lease after it this process begins no
    /// attempt: a node that stepped by the same amount may grant keys that another process still holds.
    pub fn jumped_at(&self) -> Option<Time> {
        self.jumped_at.filter(|_| !breaks!(self.rules, AttemptAfterClockJump))
    }

    /// Takes the TIME of one reply. Returns whether the votes in it count.
    pub fn read(&mut self, now: Time, node: Node, sample: Sample) -> bool {
        let (rules, drift) = (self.rules, self.drift);
        let began_before = self.void_at.is_some_and(|at| sample.sent < at) && !breaks!(rules, VotesFromBeforeJumpKept);
        let in_question = self.in_question(now);
        let comparing_since = self.comparing_since;
        let doubts = self.open_doubts(now);
        let Some(clock) = self.nodes.get_mut(node.index()) else { return false };
        clock.connected = true;
        let Some(jump) = jump_of(&clock.watch, sample, drift, rules) else {
            clock.watch.replace(sample);
            return !began_before;
        };
        let moved = jump.is_beyond(drift);
        if moved && breaks!(rules, ClockStepIgnored) {
            clock.watch.replace(sample);
            return true;
        }
        // An offset that becomes narrower can hide a jump that another node has shown.
        if !moved && !doubts.iter().any(|doubt| doubt.common(jump).is_some()) {
            clock.watch.narrow(sample);
        }
        if !moved && !in_question {
            // A doubt that lasted for one longest lease is not in question any more.
            let was_doubted = clock.doubted_since.take().is_some();
            clock.doubted_for = None;
            if was_doubted {
                self.effects.push_back(Effect::Steady(node));
            }
            return !began_before && !was_doubted;
        }
        let newly = moved && clock.doubted_since.is_none();
        // Another jump begins another doubt: its wait is another one.
        let again = moved && clock.doubted_for.is_some_and(|first| first.common(jump).is_none());
        if newly || again {
            (clock.doubted_since, clock.doubted_for) = (Some(now), Some(jump));
        }
        self.is_void &= !again && (!newly || in_question);
        if newly {
            self.effects.push_back(Effect::Doubted(node));
        }
        let early = breaks!(rules, ReadingFromBeforeDoubt);
        match comparing_since {
            Some(since) if clock.awaited && (sample.sent >= since || early) => {
                clock.answer = Some(sample);
                clock.awaited = false;
                self.compare_when_answered(now);
            }
            // An answer that came too late for the comparison is compared anew.
            None if newly || (self.is_in_doubt(node) && now >= self.compared_at + COMPARE_AGAIN) => {
                self.begin_comparison(now);
            }
            _ => {}
        }
        let counts = !self.is_in_doubt(node) && !moved && !began_before;
        counts && self.void_at.is_none_or(|at| sample.sent >= at || breaks!(rules, VotesFromBeforeJumpKept))
    }

    /// The connection to the node has ended.
    pub fn disconnected(&mut self, now: Time, node: Node) {
        let Some(clock) = self.nodes.get_mut(node.index()) else { return };
        clock.connected = false;
        clock.awaited = false;
        if self.comparing_since.is_some() {
            self.compare_when_answered(now);
        }
    }

    /// Time passed. `command_timeout` is the longest time for which a request waits for its reply.
    pub fn wake(&mut self, now: Time, command_timeout: Millis) {
        if self.next_deadline(command_timeout).is_some_and(|deadline| deadline <= now) {
            if self.is_asked { self.compare(now) } else { self.ask() }
        }
    }

    /// Whether a jump waits for its explanation.
    fn in_question(&self, now: Time) -> bool {
        self.comparing_since.is_some() || !self.open_doubts(now).is_empty()
    }

    /// The jumps that wait for their explanation.
    fn open_doubts(&self, now: Time) -> Vec<Jump> {
        let longest = self.drift.most(self.longest_lease);
        let open = |clock: &NodeClock| clock.doubted_since.is_some_and(|since| now < since + longest);
        self.nodes.iter().filter(|clock| open(clock)).filter_map(|clock| clock.doubted_for).collect()
    }

    fn begin_comparison(&mut self, now: Time) {
        self.comparing_since = Some(now + Millis(1));
        self.is_asked = false;
        for clock in &mut self.nodes {
            clock.answer = None;
            clock.awaited = clock.connected && clock.watch.is_known();
        }
        if breaks!(self.rules, TicketOnEachJump) {
            self.step_all_in_doubt();
        }
    }

    fn ask(&mut self) {
        self.is_asked = true;
        let awaited = self.quorum.nodes().zip(&self.nodes).filter(|(_, clock)| clock.awaited);
        self.effects.extend(awaited.map(|(node, _)| Effect::ReadClock(node)));
    }

    fn compare_when_answered(&mut self, now: Time) {
        if self.nodes.iter().all(|clock| !clock.awaited) {
            self.compare(now);
        }
    }

    fn compare(&mut self, now: Time) {
        let comparison = Comparison::new(self.compared(), self.quorum, self.drift, self.rules);
        self.comparing_since = None;
        self.nodes.iter_mut().for_each(|clock| (clock.awaited, clock.answer) = (false, None));
        match comparison.explanation() {
            Explanation::Own(lost) => self.take_own_jump(now, &comparison.nodes, lost, &[]),
            Explanation::Different | Explanation::Open if self.repeated < MORE_ROUNDS => {
                self.repeated += 1;
                return self.begin_comparison(now);
            }
            _ if comparison.all_moved() => self.take_different_jumps(now, &comparison),
            explanation => self.decide_each(now, &comparison, explanation == Explanation::Open),
        }
        self.decided(now);
    }

    /// The nodes that have answered the present comparison.
    fn compared(&self) -> Vec<Compared> {
        let one = |(node, clock): (Node, &NodeClock)| {
            let answer = clock.answer?;
            let jump = jump_of(&clock.watch, answer, self.drift, self.rules)?;
            let is_moved = jump.is_beyond(self.drift);
            // A slow answer that allows no jump as well does not contradict the reply that showed one.
            let shown = clock.doubted_for.filter(|_| !is_moved).and_then(|shown| shown.common(jump));
            Some(Compared { node, answer, jump: shown.unwrap_or(jump), is_moved: is_moved || shown.is_some() })
        };
        self.quorum.nodes().zip(&self.nodes).filter_map(one).collect()
    }

    /// Every node moved, but not alike: a node stepped while this process was paused, or this process was paused more than once.
    /// The value of a majority explains the jumps of that majority, and the others stepped. Without such a value nobody gets a
    /// ticket: it would take the quorum away from all other processes, which judge by their own clocks.
    fn take_different_jumps(&mut self, now: Time, comparison: &Comparison) {
        if let Some((lost, outliers)) = comparison.of_a_majority() {
            return self.take_own_jump(now, &comparison.nodes, lost, &outliers);
        }
        for one in &comparison.nodes {
            self.end_doubt(one, Effect::Steady(one.node), true);
        }
        self.jumped(now, comparison.nodes.iter().map(|one| one.jump).reduce(Jump::hull));
    }

    /// The clock of this process does not explain the jumps, or it `is_open` whether it does.
    fn decide_each(&mut self, now: Time, comparison: &Comparison, is_open: bool) {
        self.void_unless_a_majority_is_still(now, &comparison.nodes);
        let known = self.nodes.iter().filter(|clock| clock.watch.is_known()).count();
        let decides = !is_open && !comparison.is_too_early(known);
        let takes = decides || comparison.moved() == 0;
        for one in &comparison.nodes {
            if !one.is_moved || self.has_waited(now, one.node) {
                self.end_doubt(one, Effect::Steady(one.node), one.is_moved || takes);
            } else if decides {
                self.end_doubt(one, Effect::Stepped(one.node), true);
            }
        }
    }

    /// Without a majority of nodes that certainly did not move, the clock of this process may have jumped.
    fn void_unless_a_majority_is_still(&mut self, now: Time, compared: &[Compared]) {
        let doubts = self.open_doubts(now);
        let is_still = |one: &&Compared| !one.is_moved && doubts.iter().all(|doubt| doubt.common(one.jump).is_none());
        let still = compared.iter().filter(is_still).count();
        if !doubts.is_empty() && still < self.quorum.majority() && !self.is_void {
            self.make_void(now, None);
        }
    }

    /// The clock of this process jumped by `lost`. The outliers stepped as well.
    fn take_own_jump(&mut self, now: Time, compared: &[Compared], lost: Jump, outliers: &[Node]) {
        for (node, clock) in self.quorum.nodes().zip(&mut self.nodes) {
            match compared.iter().find(|compared| compared.node == node) {
                Some(compared) => clock.watch.replace(compared.answer),
                None if breaks!(self.rules, OffsetsForgotten) => clock.watch = ClockWatch::new(self.drift),
                // Its clock may have run apart from the others' meanwhile.
                None => clock.watch.shift(lost.widened(self.drift)),
            }
            clock.doubted_for = None;
            if clock.doubted_since.take().is_some() {
                let stepped = outliers.contains(&node);
                self.effects.push_back(if stepped { Effect::Stepped(node) } else { Effect::Steady(node) });
            }
        }
        self.jumped(now, Some(lost));
    }

    fn jumped(&mut self, now: Time, lost: Option<Jump>) {
        self.jumped_at = Some(now);
        self.make_void(now, lost);
    }

    /// Whether the node has been in doubt for one longest lease. Then every key has ended that it held when it may have stepped, on
    /// the other nodes too: a ticket would make it wait for the same once more.
    fn has_waited(&self, now: Time, node: Node) -> bool {
        let since = self.nodes.get(node.index()).and_then(|clock| clock.doubted_since);
        since.is_some_and(|since| now >= since + self.drift.most(self.longest_lease))
    }

    /// `takes` is whether the answer counts as the node's offset. While it is open whose clock jumped, that of a node that did not
    /// move by much is no evidence.
    fn end_doubt(&mut self, compared: &Compared, effect: Effect, takes: bool) {
        let Some(clock) = self.nodes.get_mut(compared.node.index()) else { return };
        if compared.is_moved {
            clock.watch.replace(compared.answer);
        } else if takes {
            clock.watch.narrow(compared.answer);
        }
        clock.doubted_for = None;
        if clock.doubted_since.take().is_some() {
            self.effects.push_back(effect);
        }
    }

    fn make_void(&mut self, now: Time, lost: Option<Jump>) {
        self.void_at = Some(now);
        self.is_void = true;
        self.effects.push_back(Effect::Void { lost });
    }

    /// The comparison has ended. What could not be decided stays in doubt.
    fn decided(&mut self, now: Time) {
        self.compared_at = now;
        self.repeated = 0;
        self.is_void &= self.in_question(now);
    }

    /// Only the planted bug `TicketOnEachJump` calls it.
    fn step_all_in_doubt(&mut self) {
        for (node, clock) in self.quorum.nodes().zip(&mut self.nodes) {
            clock.doubted_for = None;
            if clock.doubted_since.take().is_some() {
                clock.watch = ClockWatch::new(self.drift);
                self.effects.push_back(Effect::Stepped(node));
            }
        }
        self.comparing_since = None;
    }
}

fn jump_of(watch: &ClockWatch, sample: Sample, drift: Drift, rules: Rules) -> Option<Jump> {
    let jump = watch.jump(sample)?;
    Some(if breaks!(rules, JumpNotWidened) { jump } else { jump.widened(drift) })
}

#[cfg(test)]
pub(crate) mod tests;
