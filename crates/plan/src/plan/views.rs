//! The newest view of one keeper machine, for a reader that comes later.
//!
//! A keeper replaces the view and wakes its reader once, until the reader takes the view. The last view of a term that the newest
//! view does not name is kept for the reader too.

use redislease_core::lease::{Standing, View};
use redislease_core::time::Time;

/// The views of one keeper machine that its reader has not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Views {
    view: View,
    /// Whether the view was not taken yet.
    is_new: bool,
    /// An earlier view that was not taken yet, and must be before. Boxed: most leases never have one.
    before: Option<Box<View>>,
    /// Whether the reader was woken and has not taken the view yet.
    is_awaited: bool,
    ended: bool,
}

/// The changes of a keeper machine since the last [`Views::take`].
#[derive(Clone, Debug, Default, PartialEq)]
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

impl News {
    /// Splits off the views, in their order.
    pub fn take_views(&mut self) -> impl Iterator<Item = View> + use<> {
        self.before.take().map(|view| *view).into_iter().chain(self.view.take())
    }
}

impl Views {
    /// Takes the changes.
    pub fn take(&mut self) -> News {
        self.is_awaited = false;
        let view = std::mem::take(&mut self.is_new).then(|| self.view.clone());
        News { before: self.before.take(), view, stop_at: self.stop_at(), ended: self.ended }
    }

    /// The newest `stop_at` of the running term. Takes nothing.
    pub fn stop_at(&self) -> Option<Time> {
        self.view.standing.term().and_then(|term| term.stop_at)
    }

    /// Whether the reader was woken and has not taken the views yet.
    pub const fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Stores a new view. Returns whether the reader must be woken.
    pub fn show(&mut self, view: &View) -> bool {
        let wakes = needs_turn(&self.view, view);
        if self.is_new && must_be_read_before(&self.view, view) {
            self.before = Some(Box::new(std::mem::take(&mut self.view)));
        }
        (self.view, self.is_new) = (view.clone(), true);
        wakes && !std::mem::replace(&mut self.is_awaited, true)
    }

    /// The machine has ended. Returns whether the reader must be woken.
    pub fn end(&mut self) -> bool {
        self.ended = true;
        !std::mem::replace(&mut self.is_awaited, true)
    }
}

/// Whether a view that was not read must be read before the next one: it names a term that the next one does not, or says that the
/// term was not confirmed for a moment, or that a doubt began anew. A reader that is late, or whose process was paused, would never
/// learn that.
fn must_be_read_before(unread: &View, next: &View) -> bool {
    let named = |view: &View| {
        let ending = view.ending.as_ref().map(|ending| ending.id.attempt);
        [view.standing.term().map(|term| term.id.attempt), ending]
    };
    let is_unconfirmed = |view: &View| matches!(view.standing, Standing::Adopting(_) | Standing::Uncertain(_));
    let doubts_anew = |view: &View| matches!(view.standing, Standing::Adopting(_));
    if (is_unconfirmed(unread) && !is_unconfirmed(next)) || (doubts_anew(unread) && !doubts_anew(next)) {
        return true;
    }
    let next = named(next);
    named(unread).into_iter().flatten().any(|attempt| !next.contains(&Some(attempt)))
}

/// Whether a change of the view needs a turn of the reconciler. A renewal changes only times and needs none.
fn needs_turn(before: &View, now: &View) -> bool {
    let View { standing, ending, retry_at, refused_by, keys_read, refusal } = now;
    let same_standing = match (&before.standing, standing) {
        (Standing::Acquiring(attempt, holder), Standing::Acquiring(now, for_whom)) => {
            (attempt, holder) == (now, for_whom)
        }
        (before, now) => std::mem::discriminant(before) == std::mem::discriminant(now),
    };
    // The same standing has a term before and now, or never. The second failure in a row causes a Kubernetes event, the third does not.
    let terms = before.standing.term().zip(standing.term());
    let same_term =
        terms.is_none_or(|(was, is)| was.id == is.id && was.failed_rounds.min(2) == is.failed_rounds.min(2));
    let sooner = retry_at.is_some_and(|at| before.retry_at.is_some_and(|before| at < before));
    let same_retry = retry_at.is_some() == before.retry_at.is_some() && !sooner;
    let same_answer = *ending == before.ending && *refused_by == before.refused_by && *refusal == before.refusal;
    let same_keys = same_answer && *keys_read == before.keys_read;
    !(same_standing && same_term && same_retry && same_keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{acquiring, adopting, ending, held, idle, term, uncertain};
    use redislease_core::lease::{EndReason, Refusal, TermView};
    use redislease_core::op::{Attempt, Stage, Stored};

    fn renewed(stop_at: u64, failed_rounds: u32) -> View {
        let (valid_until, stop_at) = (Some(Time(stop_at + 5)), Some(Time(stop_at)));
        let term = TermView { id: term(1, 7, "a"), valid_until, stop_at, failed_rounds };
        View { standing: Standing::Held(term), ..View::default() }
    }

    #[test]
    fn the_newest_view_is_kept_and_wakes_once() {
        let mut views = Views::default();
        let wakes =
            [View::default(), renewed(10, 0), renewed(20, 0)].map(|view| (views.show(&view), views.is_awaited()));
        assert_eq!(wakes, [(false, false), (true, true), (false, true)]);
        assert_eq!(views.stop_at(), Some(Time(20)));
        let stop_at = Some(Time(20));
        assert_eq!(views.take(), News { view: Some(renewed(20, 0)), stop_at, ..News::default() });
        assert_eq!(views.take(), News { stop_at, ..News::default() });
        assert!(views.end() && views.take().ended);
    }

    #[test]
    fn a_term_that_ended_before_the_reader_came_is_read_first() {
        let mut views = Views::default();
        views.show(&renewed(10, 0));
        views.show(&View::default());
        let news = views.take();
        assert_eq!((news.before, news.view), (Some(Box::new(renewed(10, 0))), Some(View::default())));
        views.show(&renewed(20, 0));
        assert_eq!(views.take().before, None);
        views.show(&View::default());
        assert_eq!(views.take().before, None, "the term was read");
    }

    #[test]
    fn a_renewal_does_not_wake_the_reader_and_is_in_the_next_view() {
        let mut views = Views::default();
        assert!(views.show(&renewed(10, 0)));
        views.take();
        assert!(views.show(&renewed(20, 1)), "the first failure must be seen");
        views.take();
        assert!(!views.show(&renewed(30, 1)));
        assert_eq!(views.take().stop_at, Some(Time(30)));
    }

    #[test]
    fn a_view_of_a_term_that_the_next_view_does_not_name_must_be_read() {
        let (first, next) = (term(1, 7, "a"), term(2, 8, "b"));
        let (held_first, ending) = (held(first.clone()), ending(first.clone(), EndReason::Misses));
        assert!(!must_be_read_before(&View::default(), &held_first));
        assert!(!must_be_read_before(&held_first, &ending), "the next one names it too");
        assert!(must_be_read_before(&ending, &View::default()));
        assert!(must_be_read_before(&held_first, &held(next)));
        let (adopting, uncertain) = (adopting(first.clone()), uncertain(first));
        assert!(must_be_read_before(&adopting, &held_first));
        assert!(!must_be_read_before(&held_first, &adopting));
        assert!(must_be_read_before(&adopting, &uncertain), "the doubt began anew");
        assert!(!must_be_read_before(&uncertain, &adopting));
    }

    #[test]
    fn only_times_change_without_a_turn() {
        let [first, next] = [1, 2].map(|attempt| term(attempt, 7, "a"));
        let by = Stored { stage: Stage::Term, attempt: Attempt(9), number: 1, metadata: "?".into() };
        let refusal = Some(Refusal { asked_at: Time(1), until: Time(2) });
        for (before, now, needs) in [
            (acquiring(first.clone()), acquiring(first.clone()), false),
            (acquiring(first.clone()), acquiring(next.clone()), true),
            (View::default(), ending(first.clone(), EndReason::Misses), true),
            (View::default(), View { refused_by: Some(Box::new(by)), ..View::default() }, true),
            (View::default(), View { refusal, ..View::default() }, true),
            (View::default(), View { keys_read: true, ..View::default() }, true),
            (idle(10), idle(10), false),
            (idle(10), idle(20), false),
            (idle(20), idle(10), true),
            (idle(20), View::default(), true),
            (renewed(1, 0), renewed(2, 0), false),
            (renewed(1, 0), renewed(1, 2), true),
            (renewed(1, 2), renewed(1, 3), false),
            (renewed(1, 0), idle(1), true),
            (held(first), held(next), true),
        ] {
            assert_eq!(needs_turn(&before, &now), needs, "{before:?} {now:?}");
        }
    }
}
