//! The gate: a circuit breaker that is closed while the API server does not answer.

use redislease_core::backoff::{Backoff, Entropy};
use redislease_core::time::Time;

/// The interval between two probes while the gate is closed.
const PROBES: Backoff = Backoff::exponential(100, 2000, 30);

/// Closes on a call without an answer and opens on any answer. While it is closed, only one probe at a time is sent, so
/// an outage costs one call in two seconds, however many calls wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    closed: Option<Closed>,
}

#[derive(Clone, Debug)]
struct Closed {
    /// The number of unanswered probes, including the call that closed the gate.
    tries: u32,
    probe_at: Time,
}

impl Gate {
    pub const fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// When the next probe is due; `None` while the gate is open.
    pub fn probe_at(&self) -> Option<Time> {
        self.closed.as_ref().map(|closed| closed.probe_at)
    }

    /// Records an answered call.
    pub const fn answered(&mut self) {
        self.closed = None;
    }

    /// Records an unanswered call. Calls that were in flight when it closed count once.
    pub fn unanswered(&mut self, now: Time, was_probe: bool, entropy: Entropy) {
        let tries = match &self.closed {
            None => 1,
            Some(closed) if was_probe => closed.tries.saturating_add(1),
            Some(_) => return,
        };
        self.closed = Some(Closed { tries, probe_at: now + PROBES.jittered(tries, entropy) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_core::time::Millis;

    #[test]
    fn it_closes_once_probes_with_growing_pauses_and_opens_on_any_answer() {
        let mut gate = Gate::default();
        // The middle of the jitter.
        let entropy = Entropy(u64::MAX / 2 + 1);
        let mut now = Time(0);
        assert!(gate.is_open());
        gate.unanswered(now, false, entropy);
        gate.unanswered(now + Millis(50), false, entropy);
        assert!(!gate.is_open());
        for pause in [100, 200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(gate.probe_at(), Some(now + Millis(pause)));
            now += Millis(pause);
            gate.unanswered(now, true, entropy);
        }
        gate.answered();
        assert!(gate.is_open());
        gate.unanswered(now, false, entropy);
        assert_eq!(gate.probe_at(), Some(now + Millis(100)));
    }
}
