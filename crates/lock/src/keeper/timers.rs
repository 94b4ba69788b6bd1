//! The timer queue of a shard.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use redislease_core::time::Time;

/// A queue of deadlines, each with its slot.
///
/// A deadline that moves later keeps its queue entry until the entry expires, and is then inserted again: most deadlines
/// move with every renewal, and few expire.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BinaryHeap<Reverse<(Time, u32)>>,
}

/// The earliest entry of one slot in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Armed(Option<Time>);

impl Timers {
    /// Makes sure that `slot` comes up at `deadline` at the latest.
    pub fn arm(&mut self, slot: u32, armed: &mut Armed, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        if armed.0.is_none_or(|at| deadline < at) {
            armed.0 = Some(deadline);
            self.queue.push(Reverse((deadline, slot)));
        }
    }

    /// When the first entry expires. Its slot may have nothing to do then.
    pub fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// The next slot that comes up by `now`, and the time of its entry. Use [`is_current`](Self::is_current) to check
    /// whether the entry is still valid.
    pub fn pop(&mut self, now: Time) -> Option<(Time, u32)> {
        let Reverse((at, _)) = self.queue.peek()?;
        if *at > now {
            return None;
        }
        self.queue.pop().map(|Reverse(entry)| entry)
    }

    /// Whether the entry that came up is the one in `armed`. If so, `armed` is cleared.
    pub fn is_current(at: Time, armed: &mut Armed) -> bool {
        let current = armed.0 == Some(at);
        if current {
            armed.0 = None;
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_deadline_that_moves_later_keeps_its_entry() {
        let (mut timers, mut armed) = (Timers::default(), Armed::default());
        timers.arm(7, &mut armed, Some(Time(100)));
        timers.arm(7, &mut armed, Some(Time(300)));
        assert_eq!(timers.queue.len(), 1);
        timers.arm(7, &mut armed, Some(Time(50)));
        timers.arm(7, &mut armed, None);
        assert_eq!(timers.next(), Some(Time(50)));
        assert_eq!(timers.pop(Time(49)), None);
        assert_eq!(timers.pop(Time(50)), Some((Time(50), 7)));
        assert!(Timers::is_current(Time(50), &mut armed));
        assert_eq!(timers.pop(Time(100)), Some((Time(100), 7)));
        assert!(!Timers::is_current(Time(100), &mut armed), "an older entry");
    }

    proptest! {
        /// No deadline is missed however deadlines move, and no deadline wakes twice.
        #[test]
        fn every_deadline_comes_up_in_time(moves in vec((0..4_u32, 0..50_u64), 1..200)) {
            let mut timers = Timers::default();
            let mut armed = [Armed::default(); 4];
            let mut deadlines: [Option<Time>; 4] = [None; 4];
            for (now, (slot, span)) in (0_u64..).zip(moves) {
                let now = Time(now);
                let of = usize::try_from(slot).unwrap();
                deadlines[of] = Some(now + redislease_core::time::Millis(span));
                timers.arm(slot, &mut armed[of], deadlines[of]);
                while let Some((at, slot)) = timers.pop(now) {
                    let of = usize::try_from(slot).unwrap();
                    if !Timers::is_current(at, &mut armed[of]) {
                        continue;
                    }
                    if deadlines[of].is_some_and(|deadline| deadline <= now) {
                        deadlines[of] = None;
                    }
                    timers.arm(slot, &mut armed[of], deadlines[of]);
                }
                prop_assert!(deadlines.iter().flatten().all(|deadline| *deadline > now));
            }
        }
    }
}
