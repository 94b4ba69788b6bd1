//! The timer queue of a shard.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use redislease_core::time::Time;

/// A queue of deadlines, each with its slot.
///
/// A deadline that moves later keeps its queue entry until the entry expires, and is then inserted again: most deadlines
/// move with every renewal, and few expire. The next lease in a slot uses the entry of the one before, so that thousands
/// of short leases in a few slots fill no queue.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BinaryHeap<Reverse<(Time, u32)>>,
    /// The earliest entry of each slot.
    armed: Vec<Option<Time>>,
}

impl Timers {
    /// Makes sure that `slot` comes up at `deadline` at the latest.
    pub fn arm(&mut self, slot: u32, deadline: Option<Time>) {
        let (Some(deadline), place) = (deadline, slot as usize) else { return };
        if self.armed.len() <= place {
            self.armed.resize(place + 1, None);
        }
        if self.armed[place].is_none_or(|at| deadline < at) {
            self.armed[place] = Some(deadline);
            self.queue.push(Reverse((deadline, slot)));
        }
    }

    /// When the first entry expires. Its slot may have nothing to do then.
    pub fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// The next slot that comes up by `now`. It may have nothing to do, and has no entry any more.
    pub fn pop(&mut self, now: Time) -> Option<u32> {
        while let Some(Reverse((at, slot))) = self.queue.peek().copied()
            && at <= now
        {
            self.queue.pop();
            let armed = &mut self.armed[slot as usize];
            // Another entry is older than a deadline that moved earlier.
            if *armed == Some(at) {
                *armed = None;
                return Some(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_deadline_that_moves_later_keeps_its_entry() {
        let mut timers = Timers::default();
        timers.arm(7, Some(Time(100)));
        timers.arm(7, Some(Time(300)));
        assert_eq!(timers.queue.len(), 1);
        timers.arm(7, Some(Time(50)));
        timers.arm(7, None);
        assert_eq!(timers.next(), Some(Time(50)));
        assert_eq!(timers.pop(Time(49)), None);
        assert_eq!(timers.pop(Time(50)), Some(7));
        assert_eq!(timers.pop(Time(100)), None, "an older entry");
        assert_eq!(timers.next(), None);
    }

    proptest! {
        /// No deadline is missed however deadlines move, and no deadline wakes twice.
        #[test]
        fn every_deadline_comes_up_in_time(moves in vec((0..4_u32, 0..50_u64), 1..200)) {
            let mut timers = Timers::default();
            let mut deadlines: [Option<Time>; 4] = [None; 4];
            for (now, (slot, span)) in (0_u64..).zip(moves) {
                let now = Time(now);
                let of = usize::try_from(slot).unwrap();
                deadlines[of] = Some(now + redislease_core::time::Millis(span));
                timers.arm(slot, deadlines[of]);
                while let Some(slot) = timers.pop(now) {
                    let of = usize::try_from(slot).unwrap();
                    if deadlines[of].is_some_and(|deadline| deadline <= now) {
                        deadlines[of] = None;
                    }
                    timers.arm(slot, deadlines[of]);
                }
                prop_assert!(deadlines.iter().flatten().all(|deadline| *deadline > now));
            }
        }
    }
}
