//! When the next attempt may begin after one that failed.

use alloc::boxed::Box;

use crate::backoff::Entropy;
use crate::lease::config::Config;
use crate::lease::view::Refusal;
use crate::op::Stored;
use crate::time::{Millis, Time};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Retry {
    /// Failed attempts of the present burst.
    pub tries: u32,
    /// Earliest start of the next attempt.
    pub not_before: Time,
    pub refused_by: Option<Box<Stored>>,
    pub refusal: Option<Refusal>,
    /// Whether `refused_by` is known: nodes have answered an attempt or a read of the keys.
    pub keys_read: bool,
}

impl Retry {
    /// The last failure counts no more.
    pub const fn reset(&mut self, now: Time) {
        (self.tries, self.not_before) = (0, now);
    }

    pub fn forget_refusal(&mut self) {
        (self.refused_by, self.refusal, self.keys_read) = (None, None, false);
    }

    /// The nodes have shown this term, or none, to a read of the keys. Only an attempt can tell how long it lasts.
    pub fn keys_were_read(&mut self, by: Option<&Stored>) {
        let attempt = |by: Option<&Stored>| by.map(|by| by.attempt);
        self.refusal = self.refusal.filter(|_| attempt(by) == attempt(self.refused_by.as_deref()));
        self.refused_by = by.cloned().map(Box::new);
        self.keys_read = true;
    }

    /// Sets the earliest start of the next attempt. Nodes with another's term report when they can be `free_at`. Everything
    /// else (another attempt in round 1, a grant that nobody confirmed, silence) is waited for at random, so that two
    /// contenders do not meet again: over the whole delay if the votes were `split`. When the policy has no delay left, the lease waits
    /// for the `last_end` of the keys that were shown, or for one TTL.
    pub fn failed(
        &mut self,
        config: &Config,
        now: Time,
        free_at: Time,
        last_end: Option<Time>,
        split: bool,
        entropy: Entropy,
    ) {
        let backoff = config.backoff;
        if free_at > now {
            return self.reset(free_at + entropy.up_to(backoff.min));
        }
        self.tries = self.tries.saturating_add(1);
        if backoff.exhausted(self.tries) {
            // One node alone may have shown it, and not every key is one of ours.
            let end = last_end.map_or(now + config.ttl, |end| end.max(now) + entropy.up_to(backoff.min));
            return self.reset(end.min(now + config.ttl));
        }
        let delay =
            if split { entropy.up_to(backoff.delay(self.tries)) } else { backoff.jittered(self.tries, entropy) };
        self.not_before = now + delay.max(Millis(1));
    }
}
