//! From the keeper's threads to the engine: the newest view of each lease.
//!
//! A keeper never waits for the engine: it replaces the view, and names the lease once until the engine has looked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redislease_core::lease::{Renewal, View};
use redislease_core::time::Time;
use tokio::sync::Notify;

use crate::keeper::Observer;
use crate::metrics::lease::{LeaseRecord, QuorumRenewals};
use crate::operator::index::LeaseId;
use crate::operator::quorums::InUse;
use crate::plan::needs_turn;

/// The leases that have something new.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    leases: Mutex<Vec<LeaseId>>,
    wake: Notify,
}

impl Mailbox {
    /// Takes the leases that have something new.
    pub fn take(&self) -> Vec<LeaseId> {
        std::mem::take(&mut locked(&self.leases))
    }

    /// Returns when a lease has something new since the last call.
    pub async fn filled(&self) {
        self.wake.notified().await;
    }

    fn add(&self, lease: LeaseId) {
        locked(&self.leases).push(lease);
        self.wake.notify_one();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole between any two statements that change it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the machine of one lease shows.
#[derive(Debug)]
pub(super) struct Slot {
    lease: LeaseId,
    mailbox: Arc<Mailbox>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    view: View,
    /// The engine has not taken the view yet.
    is_new: bool,
    /// The mailbox names the lease.
    is_named: bool,
    ended: bool,
}

/// What is new of a machine.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// The newest view, if it was not taken yet.
    pub view: Option<View>,
    /// The newest end of belief in the running term.
    pub stop_at: Option<Time>,
    /// The machine has ended.
    pub ended: bool,
}

impl Slot {
    pub fn new(lease: LeaseId, mailbox: Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self { lease, mailbox, state: Mutex::default() })
    }

    /// Takes what is new.
    pub fn take(&self) -> News {
        let mut state = locked(&self.state);
        state.is_named = false;
        let view = std::mem::take(&mut state.is_new).then(|| state.view.clone());
        let stop_at = state.view.standing.term().and_then(|term| term.stop_at);
        News { view, stop_at, ended: state.ended }
    }

    fn show(&self, view: &View) {
        let mut state = locked(&self.state);
        let wakes = needs_turn(&state.view, view);
        (state.view, state.is_new) = (view.clone(), true);
        self.name(state, wakes);
    }

    /// The machine has ended.
    pub fn end(&self) {
        let mut state = locked(&self.state);
        state.ended = true;
        self.name(state, true);
    }

    fn name(&self, mut state: MutexGuard<'_, State>, wakes: bool) {
        if wakes && !std::mem::replace(&mut state.is_named, true) {
            drop(state);
            self.mailbox.add(self.lease);
        }
    }
}

/// What a machine tells of itself: to the engine, and to the metrics.
pub(super) struct Watcher {
    pub slot: Arc<Slot>,
    pub record: Arc<LeaseRecord>,
    pub quorum: Option<Arc<QuorumRenewals>>,
    /// The machine uses the quorum's connections as long as it lives.
    pub _in_use: Option<Arc<InUse>>,
}

impl Observer for Watcher {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.record.renewed(renewal);
        if let Some(quorum) = &self.quorum {
            quorum.renewed(renewal, ttl_ms);
        }
    }

    fn changed(&self, view: &View) {
        self.record.viewed(view);
        self.slot.show(view);
    }

    fn ended(&self) {
        self.slot.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_core::lease::{Standing, TermId, TermView};
    use redislease_core::op::{Attempt, Holder, Token};

    fn held(stop_at: u64, failed_rounds: u32) -> View {
        let id = TermId { attempt: Attempt(1), token: Token(1), holder: Holder("c/u/n/l/p/uid".into()) };
        let (valid_until, stop_at) = (Some(Time(stop_at + 5)), Some(Time(stop_at)));
        View { standing: Standing::Held(TermView { id, valid_until, stop_at, failed_rounds }), ..View::default() }
    }

    #[test]
    fn the_newest_view_is_kept_and_the_lease_named_once() {
        let mailbox = Arc::new(Mailbox::default());
        let slot = Slot::new(LeaseId(7), mailbox.clone());
        slot.show(&held(10, 0));
        slot.show(&View::default());
        slot.show(&held(20, 0));
        assert_eq!(mailbox.take(), [LeaseId(7)]);
        assert_eq!(slot.take(), News { view: Some(held(20, 0)), stop_at: Some(Time(20)), ended: false });
        assert_eq!(slot.take(), News { view: None, stop_at: Some(Time(20)), ended: false });
        slot.end();
        assert_eq!((mailbox.take(), slot.take().ended), (vec![LeaseId(7)], true));
    }

    #[test]
    fn a_renewal_wakes_nobody_and_is_in_the_next_view() {
        let mailbox = Arc::new(Mailbox::default());
        let slot = Slot::new(LeaseId(7), mailbox.clone());
        slot.show(&held(10, 0));
        slot.take();
        mailbox.take();
        slot.show(&held(20, 1));
        assert_eq!(mailbox.take(), [LeaseId(7)], "the first failure is told");
        slot.take();
        slot.show(&held(30, 1));
        assert_eq!((mailbox.take(), slot.take().stop_at), (vec![], Some(Time(30))));
    }
}
