//! Schedules renewal rounds and attempts so that thousands of leases do not start at the same instant.
//!
//! In steady state every lease renews at its own *phase*, which is derived from its attempt ID. After an outage, and when
//! one process adopts the leases of another, all are due at once: then rounds and attempts get *turns* (reserved start
//! times) at a limited rate.

use crate::op::Attempt;
use crate::time::{Millis, Time};

/// Rounds that are due within this many milliseconds start together, with one wake-up and one call for each node. A call that
/// wakes a server costs it as much as tens of leases in it. 80,000 leases that renew every 10 s are 800 in a tick, which a
/// server extends in 4 ms.
const TICK: u64 = 100;
/// Turns within this many milliseconds start together.
const TURNS: u64 = 10;

/// The rate of turns, as a multiple of the rate at which the leases renew in steady state.
const BURST: f64 = 3.0;
/// The minimum rate of turns, in rounds per second on one shard. Quorums on the same servers each have this rate.
const LEAST_RATE: f64 = 16_000.0;
/// The cost of an attempt for the servers, in renewal rounds.
const ATTEMPT: f64 = 8.0;
/// The rate of attempts, as a multiple of the rate of the leases' renewals, in rounds of the same cost.
const ATTEMPT_BURST: f64 = 2.0;
/// The cost of asking a returned node about a term, in renewal rounds. If the node does not hold the term, it is an extra round,
/// an acquire, a round that proves the grant, and a confirm. At least 4,000 terms a second are asked about. The renewals of the
/// steady state and both rounds of the joins together need less than the rate of turns, so joins delay no renewal.
const JOIN: f64 = 4.0;
/// The burst after an idle period, in milliseconds at the rate.
const SAVED: f64 = 50.0;
/// How far attempts without a turn delay those that wait for one, in milliseconds: a caller that acquires and releases thousands
/// of times a second must not delay the first attempt for a new lease noticeably.
const AHEAD: f64 = 50.0;
/// The longest wait of an attempt for its turn.
pub(super) const ATTEMPT_WAITS: Millis = Millis(60_000);

/// How long the rounds of leases that renew at `interval` are gathered: at most a thirtieth of it.
const fn tick(interval: Millis) -> u64 {
    let tick = interval.0 / 30;
    if tick == 0 {
        1
    } else if tick < TICK {
        tick
    } else {
        TICK
    }
}

/// When the round after one that started at `began` starts: at the phase of the attempt, and at most one interval later.
/// Attempt IDs are random, so the phases of many leases are evenly distributed.
pub fn next_phase(began: Time, interval: Millis, attempt: Attempt) -> Time {
    let tick = tick(interval);
    let interval = interval.0.max(1);
    let [_, _, _, _, _, _, _, _, low @ ..] = attempt.0.to_be_bytes();
    let phase = u64::from_be_bytes(low) % interval / tick * tick;
    let last = began.0.saturating_add(interval);
    // The last instant of this phase that is not after `last`.
    Time(last - (last % interval + interval - phase) % interval)
}

/// When a failed round is retried: together with others of the same tick.
pub(super) fn gathered(at: Time, interval: Millis, now: Time) -> Time {
    let gathered = Time(at.0 - at.0 % tick(interval));
    if gathered > now { gathered } else { at }
}

/// Hands out the instants of turns of one kind, at equal distances; unused capacity allows a burst. It never refuses: each caller gets its
/// instant at once.
#[derive(Clone, Debug, PartialEq)]
struct Lane {
    /// The time of the next turn without a burst, in milliseconds.
    next: f64,
    /// Milliseconds between two turns.
    step: f64,
}

impl Lane {
    fn turn(&mut self, now: Time, latest: Time) -> Time {
        let present = as_millis(now);
        self.next = self.next.max(present - SAVED) + self.step;
        let turn = if self.next <= present { now } else { Time(whole(self.next)) };
        // Turns of one tick start together.
        let gathered = Time(turn.0.div_ceil(TURNS) * TURNS);
        if turn == now { now } else { gathered.min(latest.max(now)) }
    }

    /// Counts something that starts now without a turn.
    fn started(&mut self, now: Time) {
        let present = as_millis(now);
        let next = self.next.max(present - SAVED) + self.step;
        self.next = next.min(self.next.max(present + AHEAD));
    }
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of an uptime are far below 2^52")]
const fn as_millis(time: Time) -> f64 {
    time.0 as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an instant, rounded down")]
const fn whole(millis: f64) -> u64 {
    millis as u64
}

/// The turns of the leases that one shard drives.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// The rate of the renewal rounds of all leases in steady state, per millisecond.
    steady: f64,
    rounds: Lane,
    attempts: Lane,
    joins: Lane,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl Turns {
    /// The turns of a shard without leases.
    pub fn new() -> Self {
        let lane = || Lane { next: 0.0, step: 0.0 };
        let mut turns = Self { steady: 0.0, rounds: lane(), attempts: lane(), joins: lane() };
        turns.changed();
        turns
    }

    /// Adds a lease that renews at `interval`.
    pub fn add(&mut self, interval: Millis) {
        self.steady += 1.0 / as_millis(Time(interval.0.max(1)));
        self.changed();
    }

    /// Removes a lease that renews at `interval`.
    pub fn remove(&mut self, interval: Millis) {
        self.steady = (self.steady - 1.0 / as_millis(Time(interval.0.max(1)))).max(0.0);
        self.changed();
    }

    fn changed(&mut self) {
        let least = LEAST_RATE / 1000.0;
        self.rounds.step = 1.0 / (BURST * self.steady).max(least);
        self.joins.step = JOIN * self.rounds.step;
        self.attempts.step = ATTEMPT / (ATTEMPT_BURST * self.steady).max(least);
    }

    /// When a round that is due now starts: at `latest` at the latest, which its term needs.
    pub fn round(&mut self, now: Time, latest: Time) -> Time {
        self.rounds.turn(now, latest)
    }

    /// When an attempt that is due now starts.
    pub fn attempt(&mut self, now: Time) -> Time {
        self.attempts.turn(now, now + ATTEMPT_WAITS)
    }

    /// Counts an attempt that starts now without a turn: the next turns are later, by 50 ms at most.
    pub fn attempt_started(&mut self, now: Time) {
        self.attempts.started(now);
    }

    /// When the round of a term starts that asks a returned node. `None` if its next round is due before this turn: it asks
    /// the node too. So a node that returns again and again causes no more rounds than this rate.
    pub fn join(&mut self, now: Time, due: Time) -> Option<Time> {
        let at = self.joins.next.max(as_millis(now) - SAVED) + self.joins.step;
        (as_millis(due) > at).then(|| self.joins.turn(now, due))
    }

    /// Other leases have reserved all turns before `until`: for a checker that drives few leases.
    #[cfg(feature = "check")]
    pub fn reserve(&mut self, until: Time) {
        for lane in [&mut self.rounds, &mut self.attempts, &mut self.joins] {
            lane.next = lane.next.max(as_millis(until));
        }
    }

    /// Starts a new sequence of turns: reserved turns are replaced.
    pub fn restart(&mut self, now: Time) {
        let present = as_millis(now);
        self.rounds.next = self.rounds.next.min(present);
        self.attempts.next = self.attempts.next.min(present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const INTERVAL: Millis = Millis(10_000);

    proptest! {
        #[test]
        fn the_next_round_comes_within_one_interval(began in 0..1_u64 << 40, interval in 1..60_000_u64, attempt: u128) {
            let next = next_phase(Time(began), Millis(interval), Attempt(attempt));
            prop_assert!(next > Time(began) && next <= Time(began + interval), "{next:?}");
            let after = next_phase(next, Millis(interval), Attempt(attempt));
            prop_assert_eq!(after, next + Millis(interval), "then there is one round per interval");
        }

        #[test]
        fn a_failed_round_is_tried_again_no_later(at in 1000..1_u64 << 40, before in 0..500_u64) {
            let now = Time(at - before);
            let again = gathered(Time(at), INTERVAL, now);
            prop_assert!(again <= Time(at) && (again > now || again == Time(at)));
        }
    }

    #[test]
    fn rounds_of_one_instant_are_spread_over_the_interval() {
        let mut ticks = alloc::collections::BTreeMap::<u64, usize>::new();
        let mut word = 1_u128;
        for _ in 0..10_000 {
            word = word.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            *ticks.entry(next_phase(Time(123_456), INTERVAL, Attempt(word ^ (word >> 64))).0).or_default() += 1;
        }
        let most = ticks.values().max().unwrap();
        assert!(ticks.len() > 90 && *most < 160, "{} ticks of at most {most}", ticks.len());
        assert!(ticks.keys().all(|at| at % TICK == 0));
    }

    #[test]
    fn a_round_that_began_late_returns_to_its_phase() {
        let attempt = Attempt(277);
        let first = next_phase(Time(0), INTERVAL, attempt);
        assert_eq!(first, Time(200), "gathered with the others of its tick");
        for late in [0, 1, 300, 9_999] {
            assert_eq!(next_phase(first + Millis(late), INTERVAL, attempt), first + INTERVAL, "{late}");
        }
    }

    fn turns(count: usize, mut next: impl FnMut() -> Time) -> Vec<u64> {
        (0..count).map(|_| next().0).collect()
    }

    #[test]
    fn a_few_begin_at_once_and_many_at_the_rate() {
        let mut of = Turns::new();
        let now = Time(1_000_000);
        let few = turns(800, || of.round(now, now + Millis(60_000)));
        assert!(few.iter().all(|at| *at == now.0), "{:?}", few.last());
        let many = turns(160_000, || of.round(now, now + Millis(60_000)));
        let last = many.last().unwrap() - now.0;
        assert!((9_900..=10_100).contains(&last), "160,000 rounds at 16,000 a second take 10 s, not {last} ms");
        assert!(many.is_sorted());
    }

    #[test]
    fn the_rate_grows_with_the_leases() {
        let mut of = Turns::new();
        for _ in 0..100_000 {
            of.add(INTERVAL);
        }
        let now = Time(1_000_000);
        let all = turns(100_000, || of.round(now, now + Millis(60_000)));
        let last = all.last().unwrap() - now.0;
        assert!((3_200..=3_400).contains(&last), "three times as fast as in steady state: {last} ms");
        let attempts = turns(10_000, || of.attempt(now));
        let last = attempts.last().unwrap() - now.0;
        assert!((3_900..=4_100).contains(&last), "2,500 attempts a second: {last} ms");
        for _ in 0..100_000 {
            of.remove(INTERVAL);
        }
        assert!(of.steady < 1e-6);
    }

    #[test]
    fn no_round_waits_longer_than_its_term_allows() {
        let mut of = Turns::new();
        let now = Time(1_000_000);
        turns(80_000, || of.round(now, now + Millis(60_000)));
        assert_eq!(of.round(now, now + Millis(77)), now + Millis(77));
        assert_eq!(of.round(now, now - Millis(77)), now, "an overdue round starts at once");
        turns(1_000_000, || of.attempt(now));
        assert_eq!(of.attempt(now), now + ATTEMPT_WAITS);
        of.restart(now);
        assert!(of.attempt(now) <= now + Millis(20));
    }

    #[test]
    fn joins_come_at_a_quarter_of_the_rate_and_before_the_renewals_or_not_at_all() {
        let now = Time(1_000_000);
        for (leases, most) in [(10_000, 2_600), (100_000, 13_400)] {
            let mut of = Turns::new();
            (0..leases).for_each(|_| of.add(INTERVAL));
            let last = (0..leases).map_while(|_| of.join(now, now + Millis(60_000))).last().unwrap();
            assert!((most * 9 / 10..=most).contains(&last.since(now).0), "{leases}: {last:?}");
            assert_eq!(of.round(now, now), now, "joins have turns of their own");
            assert!(of.attempt(now) <= now);
        }
        let mut of = Turns::new();
        let due = now + Millis(1000);
        let asked = (0..10_000).map_while(|_| of.join(now, due)).collect::<Vec<_>>();
        assert!((4_000..=4_200).contains(&asked.len()), "{}", asked.len());
        assert!(asked.iter().all(|at| *at <= due));
        assert_eq!(of.join(now, due), None, "the renewal comes before the turn");
        assert_eq!(of.join(now + Millis(100), due), None, "a node that returns again gets no more");
        assert!(of.join(now + Millis(100), due + INTERVAL).is_some());
    }

    #[test]
    fn attempts_without_a_turn_delay_the_others_by_50_milliseconds_at_most() {
        let mut of = Turns::new();
        let now = Time(1_000_000);
        for _ in 0..160 {
            of.attempt_started(now);
        }
        let after = of.attempt(now);
        assert!((20..=40).contains(&after.since(now).0), "160 attempts at 2000 a second, less the burst: {after:?}");
        for _ in 0..100_000 {
            of.attempt_started(now);
        }
        let last = of.attempt(now);
        assert!((50..=60).contains(&last.since(now).0), "{last:?}");
        let waiting = turns(4000, || of.attempt(now));
        for _ in 0..10 {
            of.attempt_started(now);
        }
        let next = of.attempt(now);
        assert!(
            next.0 - waiting.last().unwrap() <= 10,
            "turns that are reserved later than that are not delayed: {next:?}"
        );
    }
}
