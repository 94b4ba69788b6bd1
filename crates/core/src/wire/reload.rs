//! Recovery from a lost script cache: the scripts are loaded once, and calls that were not executed are sent again in
//! order.
//!
//! Redis answers calls in order, so every call that was sent before the scripts is answered before them. Until then
//! nothing new is sent. Calls that were not executed are sent again before the waiting requests, which keeps the order of
//! the requests about one lease. An exception: if another process loads the scripts meanwhile, a later request about the
//! lease may have been executed. The earlier one is then not sent again.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::op::Attempt;
use crate::time::Time;
use crate::wire::batch::{Asked, Call};

/// The calls and requests that wait until the scripts are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reload<K, R, C> {
    /// Calls that were not executed.
    pub again: Vec<Call<K, R, C>>,
    /// Requests that arrived meanwhile.
    pub waiting: Vec<Asked<K, R>>,
    /// Attempts for which a later call was executed.
    overtaken: BTreeSet<Attempt>,
}

impl<K, R, C> Reload<K, R, C> {
    pub const EMPTY: Self = Self { again: Vec::new(), waiting: Vec::new(), overtaken: BTreeSet::new() };

    /// The server executed a call about `attempt`.
    pub fn ran(&mut self, attempt: Attempt) {
        self.overtaken.insert(attempt);
    }

    fn batches(&mut self) -> impl Iterator<Item = &mut Vec<Asked<K, R>>> {
        self.again.iter_mut().filter_map(|call| match call {
            Call::Batch(batch) => Some(&mut batch.asked),
            Call::Admission(_) | Call::Own(_) => None,
        })
    }

    /// When the first sender gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        let again = self.again.iter().flat_map(|call| match call {
            Call::Batch(batch) => &batch.asked[..],
            Call::Admission(_) | Call::Own(_) => &[],
        });
        again.chain(&self.waiting).filter(|asked| asked.reply.is_some()).map(|asked| asked.request.give_up_at).min()
    }

    /// Takes the receivers of the requests whose sender gives up now, and removes these requests. Releases stay: a late one is useful.
    pub fn expire(&mut self, now: Time) -> Vec<R> {
        let mut expired = Vec::new();
        let mut keep = |asked: &mut Asked<K, R>| {
            let is_over = asked.is_over(now);
            if is_over {
                expired.extend(asked.reply.take());
            }
            !is_over || asked.request.op.is_release()
        };
        for asked in self.batches() {
            asked.retain_mut(&mut keep);
        }
        self.waiting.retain_mut(keep);
        expired
    }

    /// Removes the requests that were overtaken, when the scripts are loaded. They were not executed, and are not sent again.
    pub fn take_overtaken(&mut self) -> Vec<Asked<K, R>> {
        let overtaken = core::mem::take(&mut self.overtaken);
        let mut late = Vec::new();
        for asked in self.batches() {
            late.extend(asked.extract_if(.., |asked| overtaken.contains(&asked.attempt())));
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::samples::{asked, attempts, batch, release, seal};
    use alloc::vec;

    fn again(reload: &mut Reload<usize, u128, ()>) -> Vec<u128> {
        reload.batches().flat_map(|asked| attempts(asked)).collect()
    }

    #[test]
    fn an_overtaken_request_is_not_sent_and_was_not_executed() {
        let mut reload = Reload {
            again: vec![batch([asked(seal(1), 1, 500)]), batch([2, 3].map(|attempt| asked(seal(attempt), 1, 500)))],
            ..Reload::EMPTY
        };
        reload.ran(Attempt(1));
        reload.ran(Attempt(3));
        assert_eq!(attempts(&reload.take_overtaken()), [1, 3]);
        assert_eq!(again(&mut reload), [2]);
    }

    #[test]
    fn a_waiting_request_gives_up_in_time() {
        let again_of = vec![batch([asked(seal(1), 1, 300)]), batch([asked(seal(2), 1, 400)])];
        let mut reload = Reload { again: again_of, waiting: vec![asked(seal(3), 1, 300)], ..Reload::EMPTY };
        assert_eq!(reload.next_expiry(), Some(Time(300)));
        assert_eq!(reload.expire(Time(300)), [1, 3]);
        assert_eq!((reload.next_expiry(), reload.expire(Time(399)).len()), (Some(Time(400)), 0));
        assert_eq!(reload.expire(Time(400)), [2]);
        assert_eq!(again(&mut reload), [0; 0]);
    }

    #[test]
    fn a_release_waits_longer_than_its_sender() {
        let again_of = vec![batch([asked(seal(1), 1, 300), asked(release(2), 1, 300)])];
        let mut reload = Reload { again: again_of, waiting: vec![asked(release(3), 1, 300)], ..Reload::EMPTY };
        assert_eq!(reload.expire(Time(300)), [1, 2, 3]);
        assert_eq!((reload.next_expiry(), reload.expire(Time(301)).len()), (None, 0));
        assert_eq!((again(&mut reload), attempts(&reload.waiting)), (vec![2], vec![3]));
    }
}
