//! Passes the newest view of one machine from the keeper's threads to its reader.
//!
//! A keeper never blocks: it replaces the view and wakes the reader once, until the reader takes the view. The last view of a term that
//! the newest view does not name is kept for the reader too.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redislease_core::lease::View;
use redislease_core::time::Time;
use redislease_plan::plan::{must_be_read_before, needs_turn};

/// The newest view of one keeper machine.
pub(super) struct Slot {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    view: View,
    /// Whether the view was not taken yet.
    is_new: bool,
    /// An earlier view that was not taken yet, and must be before. Boxed: most leases never have one.
    before: Option<Box<View>>,
    /// Whether the reader was woken and has not taken the view yet.
    is_awaited: bool,
    ended: bool,
}

/// The changes of a machine since the last [`Slot::take`].
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// A view from before the newest one, of a term that the newest one does not name.
    pub before: Option<Box<View>>,
    /// The newest view, if it was not taken yet.
    pub view: Option<View>,
    /// The newest `stop_at` of the running term.
    pub stop_at: Option<Time>,
    /// The machine has ended.
    pub ended: bool,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Slot {
    /// Creates a slot that calls `wake`, which must not block, when the reader must take the view: once until it does.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), wake: Box::new(wake) })
    }

    /// Takes the changes.
    pub fn take(&self) -> News {
        let mut state = self.state();
        state.is_awaited = false;
        let view = std::mem::take(&mut state.is_new).then(|| state.view.clone());
        News { before: state.before.take(), view, stop_at: stop_at(&state.view), ended: state.ended }
    }

    /// The newest `stop_at` of the running term. Takes nothing.
    pub fn stop_at(&self) -> Option<Time> {
        stop_at(&self.state().view)
    }

    /// Stores a new view.
    pub fn show(&self, view: &View) {
        let mut state = self.state();
        let wakes = needs_turn(&state.view, view);
        if state.is_new && must_be_read_before(&state.view, view) {
            state.before = Some(Box::new(std::mem::take(&mut state.view)));
        }
        (state.view, state.is_new) = (view.clone(), true);
        self.wake(state, wakes);
    }

    /// The machine has ended.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        self.wake(state, true);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>, wakes: bool) {
        if wakes && !std::mem::replace(&mut state.is_awaited, true) {
            drop(state);
            (self.wake)();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stop_at(view: &View) -> Option<Time> {
    view.standing.term().and_then(|term| term.stop_at)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use redislease_core::lease::{Standing, TermId, TermView};
    use redislease_core::op::{Attempt, Holder, Token};

    fn held(stop_at: u64, failed_rounds: u32) -> View {
        let id = TermId { attempt: Attempt(1), token: Token(1), holder: Holder("c/u/n/l/p/uid".into()) };
        let (valid_until, stop_at) = (Some(Time(stop_at + 5)), Some(Time(stop_at)));
        View { standing: Standing::Held(TermView { id, valid_until, stop_at, failed_rounds }), ..View::default() }
    }

    fn counted() -> (Arc<Slot>, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = woken.clone();
        (Slot::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)), woken)
    }

    #[test]
    fn the_newest_view_is_kept_and_wakes_once() {
        let (slot, woken) = counted();
        slot.show(&View::default());
        slot.show(&held(10, 0));
        slot.show(&held(20, 0));
        assert_eq!((woken.load(Ordering::Relaxed), slot.stop_at()), (1, Some(Time(20))));
        let stop_at = Some(Time(20));
        assert_eq!(slot.take(), News { view: Some(held(20, 0)), stop_at, ..News::default() });
        assert_eq!(slot.take(), News { stop_at, ..News::default() });
        slot.end();
        assert_eq!((woken.load(Ordering::Relaxed), slot.take().ended), (2, true));
    }

    #[test]
    fn a_term_that_ended_before_the_reader_came_is_read_first() {
        let (slot, _) = counted();
        slot.show(&held(10, 0));
        slot.show(&View::default());
        let news = slot.take();
        assert_eq!((news.before, news.view), (Some(Box::new(held(10, 0))), Some(View::default())));
        slot.show(&held(20, 0));
        assert_eq!(slot.take().before, None);
        slot.show(&View::default());
        assert_eq!(slot.take().before, None, "the term was read");
    }

    #[test]
    fn a_renewal_does_not_wake_the_reader_and_is_in_the_next_view() {
        let (slot, woken) = counted();
        slot.show(&held(10, 0));
        slot.take();
        slot.show(&held(20, 1));
        assert_eq!(woken.load(Ordering::Relaxed), 2, "the first failure must be seen");
        slot.take();
        slot.show(&held(30, 1));
        assert_eq!((woken.load(Ordering::Relaxed), slot.take().stop_at), (2, Some(Time(30))));
    }
}
